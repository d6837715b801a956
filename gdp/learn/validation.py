"""How good a policy is at first sight: its best guess and a few samples on tasks that it does not learn on, against the simple placements."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float64

from gdp.baselines.list_scheduling import ListScheduling
from gdp.baselines.metis import Metis
from gdp.errors import InputError
from gdp.learn.limits import MAX_SAMPLES, MAX_STEPS, check_counts
from gdp.learn.task import Task
from gdp.measurement import Objective
from gdp.policy.placer import candidates
from gdp.policy.policy import Policy

CANNOT_RUN_RATIO = 10.0
"""Stands for the ratio of a placement that cannot run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """What is validated on, and how often."""

    workloads: tuple[str, ...]
    """names of the catalog; the one name `*` stands for all of the validation split. Empty for no validation."""
    synthetic: int
    """random graphs beside them."""
    presets: tuple[str, ...]
    """every workload is placed on every one of these clusters."""
    every_updates: int
    every_imitation_steps: int
    num_samples: int
    """placements sampled beside the best guess."""

    def __post_init__(self) -> None:
        check_counts(
            "validation",
            (
                ("every_updates", self.every_updates, 1, MAX_STEPS),
                ("every_imitation_steps", self.every_imitation_steps, 1, MAX_STEPS),
                ("num_samples", self.num_samples, 1, MAX_SAMPLES - 1),
                ("synthetic", self.synthetic, 0, MAX_SAMPLES),
            ),
        )
        if (self.workloads or self.synthetic) and not self.presets:
            raise InputError("validation has graphs but no presets; name cluster presets")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Validated:
    """What a policy reached."""

    metrics: dict[str, float]
    """by the names that docs/metrics.md explains."""
    best_s: Float64[np.ndarray, " tasks"]
    """objective of the best guess or of the best sample, per task; infinite where none can run."""


class Validation:
    """Fixed tasks with the times of the simple placements, to hold policies against."""

    def __init__(self, tasks: Sequence[Task], *, num_samples: int, objective: Objective) -> None:
        self.tasks, self.num_samples, self._objective = tuple(tasks), num_samples, objective
        self._list_scheduling_s = np.array(
            [
                self._seconds(task, ListScheduling(runtime=task.runtime, objective=objective)(task.graph, task.cluster).device[None])[0]
                for task in tasks
            ]
        )
        self._metis_s = np.array([self._seconds(task, Metis(seed=0)(task.graph, task.cluster).device[None])[0] for task in tasks])
        self._simple_s = np.array([task.reference_s for task in tasks])

    def __call__(self, policy: Policy) -> Validated:
        """Geometric means of ratios of seconds; below 1 the policy is faster. Draws from its own generator, the same every time."""
        generator = torch.Generator().manual_seed(0)
        greedy_s, best_s = np.empty(len(self.tasks)), np.empty(len(self.tasks))
        for number, task in enumerate(self.tasks):
            decided = candidates(policy, task.graph, task.grouping, task.tensors, num_samples=self.num_samples + 1, generator=generator)
            seconds = self._seconds(task, task.grouping.expand(decided.numpy().astype(np.int32)))
            greedy_s[number], best_s[number] = seconds[0], seconds.min()
        metrics = {
            "valid/greedy_over_simple": geometric_mean(greedy_s, self._simple_s),
            "valid/sampled_over_simple": geometric_mean(best_s, self._simple_s),
            "valid/sampled_over_list_scheduling": geometric_mean(best_s, self._list_scheduling_s),
            "valid/sampled_over_metis": geometric_mean(best_s, self._metis_s),
            "valid/greedy_failed_fraction": float((~np.isfinite(greedy_s)).mean()),
        }
        return Validated(metrics=metrics, best_s=best_s)

    def rows(self, result: Validated) -> list[dict[str, str | float]]:
        """What a policy reached, task by task."""
        return [
            {
                "workload": task.name.rpartition("@")[0],
                "cluster": task.cluster.name,
                "policy_s": float(best_s),
                "list_scheduling_s": float(list_s),
                "metis_s": float(metis_s),
                "best_simple_s": task.reference_s,
                "ratio": float(best_s / task.reference_s),
            }
            for task, best_s, list_s, metis_s in zip(self.tasks, result.best_s, self._list_scheduling_s, self._metis_s, strict=True)
        ]

    def _seconds(self, task: Task, device: np.ndarray) -> np.ndarray:
        return task.runtime.batch(task.graph, task.cluster, device).objective_s(self._objective)


def geometric_mean(seconds: Float64[np.ndarray, " tasks"], reference_s: Float64[np.ndarray, " tasks"]) -> float:
    """Geometric mean of `seconds / reference_s` over the tasks whose reference can run, 1 when there is none; a ratio above `CANNOT_RUN_RATIO` counts as that."""
    runs = np.isfinite(reference_s)
    ratio = np.minimum(seconds[runs] / reference_s[runs], CANNOT_RUN_RATIO)
    return float(np.exp(np.log(ratio).mean())) if runs.any() else 1.0
