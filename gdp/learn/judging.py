"""Teaching a policy's judge: which changes of a placement get better, and by how much, from searches on pretraining tasks.

A task is searched as it will be when the judge is used, by the judge of the round before (at first by none), and beside every change that is tried a few of its rivals are
simulated, too: so the judge sees the placements that its own choices lead to (DAgger, Ross et al., AISTATS 2011), and what it would have missed.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int32
from torch.nn.functional import binary_cross_entropy_with_logits

from gdp.baselines.local_search import LocalSearch, starting_points_of_search
from gdp.errors import InputError
from gdp.features.move_features import MOVE_FEATURES
from gdp.learn.limits import MAX_EVALUATIONS, MAX_OPS, MAX_SAMPLES, MAX_STEPS, check_counts, check_learning_rate
from gdp.learn.task import Task
from gdp.measurement import Timeline
from gdp.policy.judge import JudgeNetwork, StepView, among_rivals
from gdp.runtime.simulator import Simulator

_RIVALS = 5
"""Simulated beside every change that is tried."""

_PATIENCE = 150
"""Evaluations without a better placement after which a search has nothing more to teach."""

_LEAST_GAIN, _MOST_GAIN = 1e-7, 0.3
"""Relative: less is none, and more counts as this."""

_GAIN_WEIGHT = 0.1
"""Of the squared error of the logarithm of gains, beside the cross-entropy of whether there is one."""

_WEIGHT_DECAY = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgingConfig:
    """How a judge is taught; `policy.judge_width` says whether there is one."""

    rounds: int
    """of searching and teaching; each searches with the judge of the one before. 0 keeps the judge of the policy to go on from."""
    tasks_per_round: int
    min_ops: int
    max_ops: int
    """sizes of the synthetic graphs among them, uniform in the logarithm."""
    min_evaluations: int
    max_evaluations: int
    """budgets of the searches, uniform in the logarithm."""
    steps: int
    """of the optimiser, in every round, over all that is known by then."""
    batch_size: int
    learning_rate: float
    """rises to this and falls again (one cycle, Smith and Topin, 2019)."""

    def __post_init__(self) -> None:
        check_counts(
            "judging",
            (
                ("rounds", self.rounds, 0, MAX_SAMPLES),
                ("tasks_per_round", self.tasks_per_round, 1, MAX_SAMPLES),
                ("max_ops", self.max_ops, 8, MAX_OPS),
                ("min_evaluations", self.min_evaluations, 1, MAX_EVALUATIONS),
                ("max_evaluations", self.max_evaluations, 1, MAX_EVALUATIONS),
                ("steps", self.steps, 1, MAX_STEPS),
                ("batch_size", self.batch_size, 1, MAX_SAMPLES),
            ),
        )
        check_learning_rate("judging.learning_rate", self.learning_rate)
        if not 8 <= self.min_ops <= self.max_ops or self.min_evaluations > self.max_evaluations:
            raise InputError(
                f"judging has ops from {self.min_ops} to {self.max_ops} and evaluations from {self.min_evaluations} to {self.max_evaluations}; "
                "both must ascend, ops from 8 on"
            )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class JudgedMoves:
    """Changes of placements and what became of them."""

    inputs: Float32[np.ndarray, "moves inputs"]
    """as the network sees them."""
    gain: Float32[np.ndarray, " moves"]
    """by how much the step got shorter, relative; -1 where the change does not run."""

    @staticmethod
    def none() -> "JudgedMoves":
        return JudgedMoves(inputs=np.zeros((0, 2 * len(MOVE_FEATURES)), np.float32), gain=np.zeros(0, np.float32))


def judged_moves(task: Task, network: JudgeNetwork | None, *, config: JudgingConfig, generator: np.random.Generator) -> JudgedMoves:
    """What one search of the task shows; the generator is consumed. The task's runtime must be a simulator."""
    assert isinstance(task.runtime, Simulator)
    low, high = np.log(config.min_evaluations), np.log(config.max_evaluations)
    evaluations = int(np.exp(generator.uniform(low, high)))
    recorder = _Recorder(task, network, generator)
    search = LocalSearch(
        runtime=task.runtime, evaluations=evaluations, seed=0, predictor=task.runtime, judge=lambda graph, cluster: recorder
    )
    start = starting_points_of_search(task.graph, task.cluster, evaluations=evaluations, seed=0)[:evaluations]
    under_way = search.begin(task.graph, task.cluster, start)
    since = 0
    while np.isfinite(under_way.best_s) and len(under_way.tried_s) < evaluations and since < _PATIENCE:
        before_s = under_way.best_s
        under_way.step(generator)
        since = 0 if under_way.best_s < before_s else since + 1
    return recorder.moves()


class _Recorder:
    """The judge of a search that keeps what it saw."""

    def __init__(self, task: Task, network: JudgeNetwork | None, generator: np.random.Generator) -> None:
        self._task, self._network, self._generator = task, network, generator
        self._view = StepView(task.graph, task.cluster)
        self._inputs: list[np.ndarray] = []
        self._gain: list[np.ndarray] = []

    def see(self, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> None:
        self._view.see(device, timeline)

    def choose(self, candidates: Int32[np.ndarray, "candidates ops"], removes_wait: Bool[np.ndarray, " candidates"]) -> int:
        inputs = among_rivals(self._view.features(candidates, removes_wait))
        chosen = 0 if self._network is None else int(self._network.log_promise(torch.from_numpy(inputs)).argmax())
        rivals = self._generator.choice(len(candidates), size=min(_RIVALS, len(candidates)), replace=False)
        rows = np.unique(np.append(rivals, chosen))
        seconds = self._task.runtime.batch(self._task.graph, self._task.cluster, candidates[rows]).step_time_s
        self._inputs.append(inputs[rows])
        self._gain.append(np.maximum(1 - seconds / self._view.step_s, -1.0))
        return chosen

    def moves(self) -> JudgedMoves:
        if not self._gain:
            return JudgedMoves.none()
        return JudgedMoves(inputs=np.concatenate(self._inputs), gain=np.concatenate(self._gain).astype(np.float32))


def teach(
    network: JudgeNetwork, known: Sequence[JudgedMoves], *, config: JudgingConfig, generator: torch.Generator
) -> Iterator[dict[str, float]]:
    """Fits the network, from the weights it has, to all moves that are `known`; yields the metrics of each step. The generator is consumed."""
    where = network.mean.device
    inputs = torch.from_numpy(np.concatenate([moves.inputs for moves in known])).to(where)
    gain = torch.from_numpy(np.concatenate([moves.gain for moves in known])).to(where)
    if not (gain > _LEAST_GAIN).any():
        raise InputError(
            "none of the searches that are to teach the judge found anything better; let judging have more tasks, or larger graphs"
        )
    network.mean.copy_(inputs.mean(dim=0))
    network.deviation.copy_(inputs.std(dim=0) + 1e-3)
    better, log_gain = (gain > _LEAST_GAIN).float(), gain.clamp(_LEAST_GAIN, _MOST_GAIN).log()
    optimizer = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=_WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, config.learning_rate, total_steps=config.steps)
    for _ in range(config.steps):
        rows = torch.randint(len(gain), (config.batch_size,), generator=generator).to(where)
        logit, predicted = network(inputs[rows])
        improves = binary_cross_entropy_with_logits(logit, better[rows])
        error = ((predicted - log_gain[rows]).square() * better[rows]).sum() / better[rows].sum().clamp(min=1)
        loss = improves + _GAIN_WEIGHT * error
        if not torch.isfinite(loss):
            raise InputError(f"teaching the judge has diverged: its loss is {float(loss.detach())}; lower judging.learning_rate")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield {"judge/improves_loss": float(improves.detach()), "judge/gain_error": float(error.detach())}
