"""What learning changes as it goes: all that a snapshot must hold for the run to continue exactly."""

import dataclasses
import math

import numpy as np
import torch
from jaxtyping import Int32, Int64

from gdp.errors import InputError
from gdp.learn.advantage import History
from gdp.learn.task import Rollouts, Task
from gdp.measurement import Measurement, Objective
from gdp.policy.policy import Policy


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Incumbent:
    """The best placement of a task so far."""

    device: Int32[np.ndarray, " ops"]
    group_device: Int64[torch.Tensor, " groups"]
    """the decision per group; of an arbitrary placement, where most of the group's work lies."""
    measurement: Measurement
    update: int
    """in which update it was found; 0 for one that was there before."""


@dataclasses.dataclass(kw_only=True, eq=False)
class Learner:
    """A policy in training. The one record that is not frozen: `learn` moves it forward."""

    policy: Policy
    optimizer: torch.optim.Adam
    torch_generator: torch.Generator
    """draws placements."""
    numpy_generator: np.random.Generator
    """draws tasks, minibatches, and the moves and regions of a search."""
    imitation_step: int = 0
    """steps of the warm-up done (`gdp.learn.imitation`)."""
    update: int = 0
    evaluations: int = 0
    """placements evaluated so far."""
    last_improvement: int = 0
    """the update in which a task's incumbent last got better."""
    history: dict[str, History] = dataclasses.field(default_factory=dict)
    """rewards so far, by task."""
    incumbent: dict[str, Incumbent] = dataclasses.field(default_factory=dict)
    """best placement so far, by task."""
    found: dict[str, Incumbent] = dataclasses.field(default_factory=dict)
    """the best of what this learning tried, by task: samples of the policy, or all that a search with it tried, where it began among them."""
    curve: list[tuple[float, float, float]] = dataclasses.field(default_factory=list)
    """of fine-tuning: evaluations spent, seconds of the best placement found, mean sampled time over the reference; one entry an update."""

    def descend(self, gradient_norm: float) -> float:
        """One step of the optimiser, the gradient scaled down to `gradient_norm` where it is larger; returns the norm that it had.

        Raises `InputError` where it is no finite number, before it reaches the weights.
        """
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, gradient_norm))
        if not math.isfinite(norm):
            raise InputError(
                f"training has diverged: after {self.imitation_step} steps of imitation and {self.update} updates the gradient is {norm}; "
                "lower the learning rate, or the weights of the loss"
            )
        self.optimizer.step()
        return norm

    def offer(self, task: Task, candidate: Incumbent, *, objective: Objective) -> None:
        """Makes `candidate` the task's incumbent if it ran and is faster."""
        if _is_better(candidate, self.incumbent.get(task.name), objective):
            self.incumbent[task.name] = candidate
            self.last_improvement = self.update

    def offer_best(self, task: Task, rollouts: Rollouts, *, objective: Objective) -> None:
        """Offers the fastest of the sampled placements that really ran, not only in a prediction."""
        seconds = np.where(rollouts.measurements.num_runs > 0, rollouts.measurements.objective_s(objective), np.inf)
        row = int(seconds.argmin())
        candidate = Incumbent(
            device=rollouts.op_device[row].copy(),
            group_device=rollouts.device[row, -1].clone(),
            measurement=rollouts.measurements[row],
            update=self.update,
        )
        self.offer_found(task, candidate, objective=objective)
        self.offer(task, candidate, objective=objective)

    def offer_found(self, task: Task, candidate: Incumbent, *, objective: Objective) -> None:
        """Makes `candidate`, which this learning tried, the best of what it found if it ran and is faster."""
        if _is_better(candidate, self.found.get(task.name), objective):
            self.found[task.name] = candidate


def _is_better(candidate: Incumbent, best: Incumbent | None, objective: Objective) -> bool:
    """Whether it really ran, not only in a prediction, and is faster."""
    best_s = np.inf if best is None else best.measurement.objective_s(objective)
    return candidate.measurement.num_runs > 0 and candidate.measurement.objective_s(objective) < best_s


def new_learner(policy: Policy, *, parameters: list[torch.nn.Parameter], seed: int) -> Learner:
    """A learner at its start that moves the given parameters; the policy's others are frozen."""
    moved = {id(parameter) for parameter in parameters}
    for parameter in policy.parameters():
        parameter.requires_grad_(id(parameter) in moved)
    torch_seed, numpy_seed = np.random.SeedSequence(seed).generate_state(2, np.uint64)
    return Learner(
        policy=policy,
        optimizer=torch.optim.Adam(parameters, lr=0.0, eps=1e-5),
        torch_generator=torch.Generator().manual_seed(int(torch_seed)),
        numpy_generator=np.random.default_rng(int(numpy_seed)),
    )
