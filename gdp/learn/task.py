"""What is learned on: one graph on one cluster, made ready for the policy, and the placements that were tried on it."""

import dataclasses
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Float64, Int32, Int64

from gdp.baselines.contiguous import contiguous_splits
from gdp.baselines.list_scheduling import ListScheduling
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.metis import Metis
from gdp.capture.coarsening import Grouping, coarsen
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.features.featurize import featurize
from gdp.features.graph_tensors import GraphTensors
from gdp.graph import Graph
from gdp.learn.config import RewardConfig
from gdp.measurement import MeasurementBatch, Objective, Runtime, Status
from gdp.reward import RewardFn, negative_sqrt_time
from gdp.runtime.simulator import Simulator

_LAST_RESORT_EVALUATIONS = 400


class NothingRuns(InputError):
    """No placement of a graph that was tried can run on a cluster."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """One graph to place on one cluster."""

    name: str
    """unique within a run: rewards of the same name share their baseline and their incumbent."""
    graph: Graph
    cluster: Cluster
    grouping: Grouping
    """ops that are decided together."""
    tensors: GraphTensors
    """what the policy sees."""
    runtime: Runtime
    """evaluates its placements."""
    reference_s: float
    """time of the best simple placement that can run; rewards are relative to it."""


@runtime_checkable
class TaskSource(Protocol):
    """Draws the next task to learn on."""

    def __call__(self, generator: np.random.Generator) -> Task: ...


TaskReward = Callable[[Task], RewardFn]
"""The reward of a task's placements."""


def relative_reward(config: RewardConfig) -> TaskReward:
    """`gdp.reward.negative_sqrt_time`, relative to each task's reference time."""

    def reward(task: Task) -> RewardFn:
        return negative_sqrt_time(reference_s=task.reference_s, invalid=config.invalid, objective=config.objective)

    return reward


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Rollouts:
    """Placements that the policy sampled for one task, and what became of them. One episode is one placement."""

    device: Int64[torch.Tensor, "samples passes groups"]
    """the decisions of every decoding pass; the last pass is the placement."""
    log_prob: Float32[torch.Tensor, "samples passes groups"]
    """log-probability of each decision under the policy that sampled it."""
    op_device: Int32[np.ndarray, "samples ops"]
    measurements: MeasurementBatch
    reward: Float64[np.ndarray, " samples"]

    @property
    def valid(self) -> Bool[np.ndarray, " samples"]:
        """Which placements could run."""
        return np.asarray(self.measurements.status == Status.OK)


def make_task(
    name: str,
    graph: Graph,
    cluster: Cluster,
    *,
    runtime: Simulator,
    features: FeatureConfig,
    max_groups: int | None,
    objective: Objective,
    reference_s: float | None = None,
) -> Task:
    """Groups and featurises a graph. Its rewards are relative to `reference_s`, else to the simple placements, which are timed.

    Raises `NothingRuns` when none of these can run.
    """
    grouping = coarsen(graph, max_groups=max_groups)
    return Task(
        name=name,
        graph=graph,
        cluster=cluster,
        grouping=grouping,
        tensors=featurize(graph, cluster, grouping, features, dispatch=runtime.dispatch),
        runtime=runtime,
        reference_s=simple_reference_s(graph, cluster, runtime=runtime, objective=objective) if reference_s is None else reference_s,
    )


def simple_reference_s(graph: Graph, cluster: Cluster, *, runtime: Runtime, objective: Objective) -> float:
    """Seconds of the best simple placement that can run: everything on one device, a contiguous split, METIS, list scheduling. Where none of them can, of one
    that a short local search finds.

    Raises `NothingRuns` when that finds none either.
    """
    listed = ListScheduling(runtime=runtime, objective=objective)(graph, cluster).device
    simple = [contiguous_splits(graph, cluster), Metis(seed=0)(graph, cluster).device[None], listed[None]]
    best = float(runtime.batch(graph, cluster, np.concatenate(simple)).objective_s(objective).min())
    if not np.isfinite(best):
        found = LocalSearch(runtime=runtime, evaluations=_LAST_RESORT_EVALUATIONS, seed=0, objective=objective)(graph, cluster)
        best = runtime(graph, cluster, found).objective_s(objective)
    if not np.isfinite(best):
        raise NothingRuns(
            f"no placement of the graph from {graph.source!r} that was tried can run on cluster {cluster.name!r}: neither one device, a contiguous split, METIS, list scheduling "
            f"nor {_LAST_RESORT_EVALUATIONS} steps of local search; give the cluster more memory or make the program smaller"
        )
    return best
