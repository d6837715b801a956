"""Fine-tuning: adapts a policy to one graph on one cluster, and returns the best placement that was found, by whatever means.

Simple placements are candidates from the start, so the result is never worse than the best of them; at the end the finalists are judged
once more side by side, and when one device wins, that is the result.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64, Int32, Int64

from gdp.baselines.contiguous import Contiguous
from gdp.baselines.list_scheduling import ListScheduling
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.metis import Metis
from gdp.baselines.single_device import single_devices
from gdp.candidate import Candidate
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.learn.config import LearnConfig
from gdp.learn.explore import Exploration
from gdp.learn.finalists import Compare, Judgement, judge, verdict
from gdp.learn.imitation import group_decisions
from gdp.learn.learner import Incumbent, Learner
from gdp.learn.limits import MAX_EVALUATIONS, MAX_OPS, MAX_SAMPLES, check_counts
from gdp.learn.loop import Update, learn
from gdp.learn.sources import FixedTasks
from gdp.learn.task import Task, TaskReward
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement, Placer
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import Comparison

FINE_TUNED = "fine-tuned"
"""Name of the candidate that was found while the policy learned: by its samples, or by the search that it takes part in, whose starting points are simple placements, too."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """What fine-tuning spends, and on what."""

    evaluations: int
    """placements that may be tried, those of the candidate `zero-shot` and the starting points of the search among them.
    A policy that samples whole placements rounds them down to whole updates, at least one."""
    zero_shot_samples: int
    """simulated placements of the policy before it learns, for the candidate `zero-shot`."""
    search_evaluations: int
    """simulated placements that local search may try as one of the candidates; 0 leaves it out."""
    parameters: Literal["conditioning_and_heads", "all"]
    """what moves: the layers that condition the policy on the graph and its heads, or everything."""
    max_groups: int
    """decisions of a policy that samples whole placements; a larger graph is grouped more coarsely."""

    def __post_init__(self) -> None:
        check_counts(
            "finetune",
            (
                ("evaluations", self.evaluations, 1, MAX_EVALUATIONS),
                ("zero_shot_samples", self.zero_shot_samples, 1, MAX_SAMPLES),
                ("search_evaluations", self.search_evaluations, 0, MAX_EVALUATIONS),
                ("max_groups", self.max_groups, 1, MAX_OPS),
            ),
        )
        if self.zero_shot_samples >= max(2, self.evaluations):
            raise InputError(
                f"finetune.zero_shot_samples is {self.zero_shot_samples} of finetune.evaluations {self.evaluations}; "
                "leave some for the search: raise evaluations, or lower zero_shot_samples"
            )
        if self.parameters not in ("conditioning_and_heads", "all"):
            raise InputError(f"finetune.parameters is {self.parameters!r}; it must be conditioning_and_heads or all")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FinetuneResult:
    """What fine-tuning found."""

    judgement: Judgement
    """the placement to use, and all candidates: the best that was found while the policy learned is the last, left out when none runs."""
    verdict: str
    """one sentence for people."""
    against_all_cores: Comparison | None = None
    """of the placement to use with the unplaced program on all CPU cores as one device, where that was timed."""
    bound_s: float | None = None
    """no placement takes less in the simulator, where that was asked."""
    evaluations: Int64[np.ndarray, " updates"]
    """evaluations spent after each update; where none was needed, by the starting points."""
    best_s: Float64[np.ndarray, " updates"]
    """objective of the best placement that was found after each update, the zero-shot one included."""
    mean_sampled_s: Float64[np.ndarray, " updates"]
    """mean objective of the valid placements of each update; infinite where none was valid."""


@runtime_checkable
class Watch(Protocol):
    """Sees every update as it is done: to log it, to take a snapshot, to raise when the run shall stop."""

    def __call__(self, update: Update) -> None: ...


def finetune(
    learner: Learner,
    task: Task,
    candidates: Sequence[Candidate],
    *,
    exploration: Exploration | None,
    predictor: Runtime,
    compare: Compare | None,
    reward: TaskReward,
    config: LearnConfig,
    objective: Objective,
    origin: Origin,
    watch: Watch,
) -> FinetuneResult:
    """Learns on one task from where `learner` stands, then gives the verdict: by `exploration` where there is one, else from whole placements that the policy samples.

    `candidates` are the placements that need no learning (`simple_candidates`); what is found begins with the zero-shot one, whose evaluations count with the others.
    The task's runtime evaluates what the policy proposes (it may predict most of a batch), `predictor` simulates, `compare` times two placements in turn where times
    are measured, `origin` is written into the fine-tuned placement with the evaluations spent. Raises `InputError` when no placement can run.
    """
    for candidate in candidates:
        if candidate.placement.origin.placer == origin.placer and not learner.curve:
            own = _incumbent(task, candidate)
            learner.offer_found(task, own, objective=objective)
            learner.offer(task, own, objective=objective)
            learner.evaluations += candidate.placement.origin.evaluations
    updates = learn(learner, FixedTasks(tasks=(task,)), reward, config=config, objective=objective)
    for update in updates if exploration is None else exploration.updates(reward):
        learner.curve.append(
            (learner.evaluations, _own_best_s(learner, task, objective), update.metrics.get("train/sampled_ratio", np.inf))
        )
        watch(update)
    if not learner.curve:
        learner.curve.append((learner.evaluations, _own_best_s(learner, task, objective), np.inf))
    known = list(candidates)
    found = learner.found.get(task.name)
    if found is not None:
        placement = Placement(device=found.device.copy(), origin=dataclasses.replace(origin, evaluations=learner.evaluations))
        known.append(
            Candidate(
                name=FINE_TUNED,
                placement=placement,
                predicted=predictor(task.graph, task.cluster, placement),
                measured=None if compare is None else found.measurement,
            )
        )
    judgement = judge(known, learned=(origin.placer,), compare=compare, objective=objective)
    winner = judgement.best
    if not np.isfinite(winner.objective_s(objective)):
        raise InputError(
            f"no placement of the graph from {task.graph.source!r} could run on cluster {task.cluster.name!r}: {winner.judged.detail}"
        )
    curve = np.array(learner.curve, np.float64).reshape(-1, 3)
    return FinetuneResult(
        judgement=judgement,
        verdict=verdict(judgement, task.cluster, objective=objective),
        evaluations=curve[:, 0].astype(np.int64),
        best_s=curve[:, 1],
        mean_sampled_s=curve[:, 2] * task.reference_s,
    )


def placers_to_beat(*, predictor: Simulator, search_evaluations: int, seed: int, objective: Objective) -> dict[str, Placer]:
    """The placers that need no learning, by the names of their candidates; those that try placements try them on `predictor`."""
    placers: dict[str, Placer] = {
        "contiguous": Contiguous(runtime=predictor, objective=objective),
        "metis": Metis(seed=seed),
        "list scheduling": ListScheduling(runtime=predictor, objective=objective),
    }
    if search_evaluations:
        placers["local search"] = LocalSearch(
            runtime=predictor,
            evaluations=search_evaluations,
            seed=seed,
            objective=objective,
            predictor=predictor if objective == "step_time" else None,
        )
    return placers


def simple_candidates(
    graph: Graph, cluster: Cluster, placers: Mapping[str, Placer], *, predictor: Runtime, judge: Runtime | None
) -> list[Candidate]:
    """One device alone, and what `placers` propose: all predicted, and measured where there is a `judge`.

    Equal devices are measured each, since real ones may differ; in a prediction the first of them stands for all.
    """
    kinds = [(device.kind, device.memory_bytes) for device in cluster.devices]
    placements = {
        f"one device: {device.name}": Placement(device=row.copy(), origin=Origin(placer="single-device"))
        for number, (device, row) in enumerate(zip(cluster.devices, single_devices(graph, cluster), strict=True))
        if judge is not None or kinds.index(kinds[number]) == number
    }
    placements |= {name: placer(graph, cluster) for name, placer in placers.items()}
    rows = np.stack([placement.device for placement in placements.values()])
    predicted = predictor.batch(graph, cluster, rows)
    measured = None if judge is None else judge.batch(graph, cluster, rows)
    return [
        Candidate(name=name, placement=placement, predicted=predicted[row], measured=None if measured is None else measured[row])
        for row, (name, placement) in enumerate(placements.items())
    ]


def _incumbent(task: Task, candidate: Candidate) -> Incumbent:
    device: Int32[np.ndarray, " ops"] = candidate.placement.device
    return Incumbent(device=device, group_device=torch.from_numpy(group_decisions(task, device)), measurement=candidate.judged, update=0)


def _own_best_s(learner: Learner, task: Task, objective: Objective) -> float:
    best = learner.found.get(task.name)
    return np.inf if best is None else best.measurement.objective_s(objective)
