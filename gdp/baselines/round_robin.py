"""Groups dealt out to the devices in turn, in topological order."""

import dataclasses

import numpy as np

from gdp.baselines.list_schedule import Schedule
from gdp.baselines.quotient import quotient, stage_order
from gdp.baselines.schedule_variants import Variant, best_variant, plain_variant
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundRobin:
    """The i-th group that works goes to device `i mod devices`; a group without work goes with the one before it.

    With a runtime, the best over several coarsenings, numbers of devices (the fastest first), and groups counted in topological order or with
    backward work beside its forward work.
    """

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        def schedule(variant: Variant) -> Schedule:
            return round_robin(graph, cluster, variant)

        if self.runtime is None:
            return plain_variant(graph, cluster, schedule, name="round-robin")
        return best_variant(graph, cluster, schedule, name="round-robin", runtime=self.runtime, objective=self.objective)


def round_robin(graph: Graph, cluster: Cluster, variant: Variant) -> Schedule:
    """One dealing of the given variant, whose option is the stage order. The end of a step is not predicted: infinite."""
    grouping = variant.grouping
    order = stage_order(graph, grouping) if variant.option else np.arange(grouping.num_groups)
    devices = np.flatnonzero(variant.allowed)
    works = quotient(graph, cluster, grouping).time_s.sum(axis=1)[order] > 0
    turn = np.maximum(np.cumsum(works) - 1, 0)
    group_device = np.empty(grouping.num_groups, np.int32)
    group_device[order] = devices[turn % len(devices)]
    return Schedule(device=grouping.expand(group_device), end_s=float("inf"), overflows=False)
