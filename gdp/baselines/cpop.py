"""CPoP: critical path on a processor (Topcuoglu, Hariri and Wu, IEEE TPDS 13, 2002, section 4.2), with insertion.

An op's priority is its upward plus its downward rank, that is the longest path through it. The ops of one longest path all go to the device that runs them in the least time; every
other op, by falling priority among the ready ones, into the idle gap in which it ends first.

Deviations: those of `gdp.baselines.heft`. Groups with an op of the path go to the path's device as long as it has room.
"""

import dataclasses

import numpy as np
from jaxtyping import Float64, Int64

from gdp.baselines.heft import heft_rank_s
from gdp.baselines.insertion_schedule import insertion_schedule
from gdp.baselines.list_schedule import Schedule
from gdp.baselines.schedule_variants import Variant, best_variant, plain_variant, variant_problem
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Placement
from gdp.runtime.levels import mean_transfer_s, t_level
from gdp.runtime.roofline import op_time_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cpop:
    """CPoP on the chains of ops that gain nothing from a cut. With a runtime, the best over the variants that `Heft` has."""

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        priority = cpop_priority_s(graph, cluster)
        path = critical_path(graph, priority)

        def schedule(variant: Variant) -> Schedule:
            return cpop(graph, cluster, variant, priority=priority, path=path)

        if self.runtime is None:
            return plain_variant(graph, cluster, schedule, name="cpop")
        return best_variant(graph, cluster, schedule, name="cpop", runtime=self.runtime, objective=self.objective)


def cpop(
    graph: Graph, cluster: Cluster, variant: Variant, *, priority: Float64[np.ndarray, " ops"], path: Int64[np.ndarray, " path"]
) -> Schedule:
    """One CPoP schedule of the given variant; `priority` and `path` are those of `cpop_priority_s` and `critical_path`."""
    problem = variant_problem(graph, cluster, variant)
    groups = np.unique(variant.grouping.group_of_op[path])
    on_path_s = np.where(variant.allowed, problem.group_s[groups].sum(axis=0), np.inf)
    preferred = np.full(variant.grouping.num_groups, -1, np.int32)
    preferred[groups] = int(on_path_s.argmin())
    return insertion_schedule(problem, priority=priority, preferred=preferred, allowed=variant.allowed, reserve=variant.option)


def cpop_priority_s(graph: Graph, cluster: Cluster) -> Float64[np.ndarray, " ops"]:
    """Seconds of the longest path through each op, in mean op times and transfers."""
    transfer_s = mean_transfer_s(cluster, graph.tensor_bytes[graph.edge_tensor].astype(np.float64))
    return np.asarray(heft_rank_s(graph, cluster) + t_level(graph, op_time_s(graph, cluster).mean(axis=1), transfer_s))


def critical_path(graph: Graph, priority: Float64[np.ndarray, " ops"]) -> Int64[np.ndarray, " path"]:
    """The ops of one longest path: from the source of highest priority (of equals the first), always on to the consumer of highest priority."""
    order = np.argsort(graph.edge_producer, kind="stable")
    start = np.searchsorted(graph.edge_producer[order], np.arange(graph.num_ops + 1))
    consumer = graph.edge_consumer[order]
    sources = np.setdiff1d(np.arange(graph.num_ops), graph.edge_consumer)
    path = [int(sources[priority[sources].argmax()])]
    while start[path[-1]] < start[path[-1] + 1]:
        after = consumer[start[path[-1]] : start[path[-1] + 1]]
        path.append(int(after[priority[after].argmax()]))
    return np.array(path, np.int64)
