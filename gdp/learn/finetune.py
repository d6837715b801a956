"""Fine-tuning: adapts a policy to one graph on one cluster, and returns the best placement that was found, by whatever means.

Simple placements are candidates from the start, so the result is never worse than the best of them; at the end the finalists are judged
once more side by side, and when one device wins, that is the result.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64, Int32, Int64

from gdp.baselines.contiguous import Contiguous
from gdp.baselines.list_scheduling import ListScheduling
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.metis import Metis
from gdp.baselines.single_device import single_devices
from gdp.candidate import Candidate, best_single
from gdp.candidate import best as best_of
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.learn.config import LearnConfig
from gdp.learn.imitation import group_decisions
from gdp.learn.learner import Incumbent, Learner
from gdp.learn.loop import Update, learn
from gdp.learn.sources import FixedTasks
from gdp.learn.task import Task, TaskReward
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement, Placer
from gdp.runtime.timing import Comparison

FINE_TUNED = "fine-tuned"
"""Name of the candidate that the policy found while it learned."""

_FINALISTS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class FinetuneConfig:
    """What fine-tuning spends, and on what."""

    evaluations: int
    """placements that the policy may try in the runtime; rounded down to whole updates, at least one."""
    zero_shot_samples: int
    """simulated placements of the policy before it learns, for the candidate `zero-shot`."""
    search_evaluations: int
    """simulated placements that local search may try as one of the candidates; 0 leaves it out."""
    parameters: Literal["conditioning_and_heads", "all"]
    """what moves: the layers that condition the policy on the graph and its heads, or everything."""
    max_groups: int
    """decisions; a larger graph is grouped more coarsely."""

    def __post_init__(self) -> None:
        for name, value, least in (
            ("evaluations", self.evaluations, 1),
            ("zero_shot_samples", self.zero_shot_samples, 1),
            ("search_evaluations", self.search_evaluations, 0),
            ("max_groups", self.max_groups, 1),
        ):
            if value < least:
                raise InputError(f"finetune.{name} is {value}; it must be at least {least}")
        if self.parameters not in ("conditioning_and_heads", "all"):
            raise InputError(f"finetune.parameters is {self.parameters!r}; it must be conditioning_and_heads or all")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class FinetuneResult:
    """What fine-tuning found; `best` is the placement to use."""

    best: Candidate
    candidates: tuple[Candidate, ...]
    """all of them, the best that the policy found while it learned last; that is left out when the policy found none that runs."""
    best_single: Candidate | None
    """the best placement on one device; `None` when no device can hold the program."""
    comparison: Comparison | None
    """of `best` with the best single device, timed in turn; `None` in simulation, or when they are one."""
    verdict: str
    """one sentence for people."""
    against_all_cores: Comparison | None = None
    """of `best` with the unplaced program on all CPU cores as one device, where that was timed."""
    evaluations: Int64[np.ndarray, " updates"]
    """evaluations spent after each update."""
    best_s: Float64[np.ndarray, " updates"]
    """objective of the best placement that the policy has found after each update, the zero-shot one included."""
    mean_sampled_s: Float64[np.ndarray, " updates"]
    """mean objective of the valid placements of each update; infinite where none was valid."""


Compare = Callable[[Placement, Placement], Comparison | None]
"""Times a placement in turn with another one, for a final verdict; `None` when one of them could not run to the end."""


@runtime_checkable
class Watch(Protocol):
    """Sees every update as it is done: to log it, to take a snapshot, to raise when the run shall stop."""

    def __call__(self, update: Update) -> None: ...


def finetune(
    learner: Learner,
    task: Task,
    candidates: Sequence[Candidate],
    *,
    runtime: Runtime,
    predictor: Runtime,
    compare: Compare | None,
    reward: TaskReward,
    config: LearnConfig,
    objective: Objective,
    origin: Origin,
    watch: Watch,
) -> FinetuneResult:
    """Learns on one task from where `learner` stands, then gives the verdict.

    `candidates` are the placements that need no learning (`simple_candidates`); the policy learns from its own alone, the zero-shot one first, whose evaluations
    count with its own. `runtime` evaluates what the policy proposes (it may predict most of a batch), `predictor`
    simulates, `compare` times a placement in turn with the best single device where times are measured, `origin` is written into the fine-tuned placement with the
    evaluations spent. Raises `InputError` when no placement can run.
    """
    for candidate in candidates:
        if candidate.placement.origin.placer == origin.placer and learner.update == 0:
            own = _incumbent(task, candidate)
            learner.offer_own(task, own, objective=objective)
            learner.offer(task, own, objective=objective)
            learner.evaluations += candidate.placement.origin.evaluations
    for update in learn(learner, FixedTasks(tasks=(task,)), runtime, reward, config=config, objective=objective):
        learner.curve.append(
            (learner.evaluations, _own_best_s(learner, task, objective), update.metrics.get("train/sampled_ratio", np.inf))
        )
        watch(update)
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
    single = best_single(known, objective=objective)
    known, winner, comparison = _choose(known, single, compare=compare, objective=objective)
    if not np.isfinite(winner.objective_s(objective)):
        raise InputError(
            f"no placement of the graph from {task.graph.source!r} could run on cluster {task.cluster.name!r}: {winner.judged.detail}"
        )
    curve = np.array(learner.curve, np.float64).reshape(-1, 3)
    return FinetuneResult(
        best=winner,
        candidates=tuple(known),
        best_single=single,
        comparison=comparison,
        verdict=verdict(winner, single, comparison, task.cluster, objective=objective),
        evaluations=curve[:, 0].astype(np.int64),
        best_s=curve[:, 1],
        mean_sampled_s=curve[:, 2] * task.reference_s,
    )


def simple_placers(*, predictor: Runtime, search_evaluations: int, seed: int, objective: Objective) -> dict[str, Placer]:
    """The placers that need no learning, by the names of their candidates; those that try placements try them on `predictor`."""
    placers: dict[str, Placer] = {
        "contiguous": Contiguous(runtime=predictor, objective=objective),
        "metis": Metis(seed=seed),
        "list scheduling": ListScheduling(),
    }
    if search_evaluations:
        placers["local search"] = LocalSearch(runtime=predictor, evaluations=search_evaluations, seed=seed, objective=objective)
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


def verdict(winner: Candidate, single: Candidate | None, comparison: Comparison | None, cluster: Cluster, *, objective: Objective) -> str:
    """What to tell the user: which placement won, and by how much over the best single device."""
    used = winner.num_devices
    if used == 1:
        return f"one device is best: {cluster.devices[int(winner.placement.device[0])].name}"
    if single is None:
        return f"{winner.name} is best, on {used} devices; no single device can hold the program"
    alone = single.name.removeprefix("one device: ") + " alone"
    if comparison is None:
        ratio = single.objective_s(objective) / winner.objective_s(objective)
        return f"{winner.name} is best, on {used} devices: {ratio:.2f} times as fast as {alone}"
    gain = f"{1 / comparison.ratio:.2f} times as fast as {alone} (95 % interval {1 / comparison.high:.2f} to {1 / comparison.low:.2f}, timed in turn)"
    if comparison.verdict == "faster":
        return f"{winner.name} is best, on {used} devices: {gain}"
    return f"{winner.name} seems best, on {used} devices: {gain}; the machine is too noisy to be certain"


def _choose(
    known: list[Candidate], single: Candidate | None, *, compare: Compare | None, objective: Objective
) -> tuple[list[Candidate], Candidate, Comparison | None]:
    """The candidates, the one to use, and how that compared with the best single device when the two were timed in turn.

    The fastest of many noisy measurements looks faster than it is, so the `_FINALISTS` fastest are timed against one device once more, for a fixed number of steps, and
    what they then take is what the candidates say. The fastest that is surely faster than one device is used, else the first that may be, else that device. What
    is timed in turn is the step, so a bottleneck stays as it was measured.
    """
    if compare is None or single is None or objective != "step_time":
        return known, best_of(known, objective=objective), None
    ahead = [candidate for candidate in known if candidate.num_devices > 1 and np.isfinite(candidate.objective_s(objective))]
    compared: dict[str, Comparison] = {}
    for finalist in sorted(ahead, key=lambda candidate: candidate.objective_s(objective))[:_FINALISTS]:
        comparison = compare(finalist.placement, single.placement)
        if comparison is not None:
            compared[finalist.name] = comparison
    known = [_timed_in_turn(candidate, compared.get(candidate.name), single) for candidate in known]
    for verdict in ("faster", "too_noisy"):
        held = [candidate for candidate in known if candidate.name in compared and compared[candidate.name].verdict == verdict]
        if held:
            winner = best_of(held, objective=objective)
            return known, winner, compared[winner.name]
    return known, single, None


def _timed_in_turn(candidate: Candidate, comparison: Comparison | None, single: Candidate) -> Candidate:
    """The candidate with the step time that the comparison found, on the scale of the single device's."""
    if comparison is None or candidate.measured is None:
        return candidate
    reference_s = single.judged.step_time_s
    measured = dataclasses.replace(
        candidate.measured,
        step_time_s=comparison.ratio * reference_s,
        step_time_low_s=comparison.low * reference_s,
        step_time_high_s=comparison.high * reference_s,
        num_runs=comparison.num_pairs,
    )
    return dataclasses.replace(candidate, measured=measured)


def _incumbent(task: Task, candidate: Candidate) -> Incumbent:
    device: Int32[np.ndarray, " ops"] = candidate.placement.device
    return Incumbent(device=device, group_device=torch.from_numpy(group_decisions(task, device)), measurement=candidate.judged, update=0)


def _own_best_s(learner: Learner, task: Task, objective: Objective) -> float:
    best = learner.found.get(task.name)
    return np.inf if best is None else best.measurement.objective_s(objective)
