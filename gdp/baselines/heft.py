"""HEFT: heterogeneous earliest finish time (Topcuoglu, Hariri and Wu, IEEE TPDS 13, 2002, section 4.1), with insertion.

Ops are decided by falling upward rank: mean seconds over devices plus the longest of mean transfer and rank over consumers (equation 8). Each goes into
the idle gap, of any device, in which it ends first.

Deviations: transfers occupy the cluster's channels, gaps of which they fill, too; a tensor is sent to a device once; a device without room for an op is avoided; ops of one group
follow the first of them, which looks ahead to the whole group; ops without work in front of all others go with their first consumer. Where each op is a group
of its own, links have no channel and memory is ample, this is HEFT as published.
"""

import dataclasses

import numpy as np
from jaxtyping import Float64

from gdp.baselines.insertion_schedule import insertion_schedule
from gdp.baselines.list_schedule import Schedule
from gdp.baselines.schedule_variants import Variant, best_variant, plain_variant, variant_problem
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Placement
from gdp.runtime.levels import b_level, mean_transfer_s
from gdp.runtime.roofline import op_time_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class Heft:
    """HEFT on the chains of ops that gain nothing from a cut.

    With a runtime, the best over several coarsenings, numbers of devices (the fastest first), and whether work still to come of groups that are decided counts.
    """

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        rank = heft_rank_s(graph, cluster)

        def schedule(variant: Variant) -> Schedule:
            return heft(graph, cluster, variant, rank=rank)

        if self.runtime is None:
            return plain_variant(graph, cluster, schedule, name="heft")
        return best_variant(graph, cluster, schedule, name="heft", runtime=self.runtime, objective=self.objective)


def heft(graph: Graph, cluster: Cluster, variant: Variant, *, rank: Float64[np.ndarray, " ops"]) -> Schedule:
    """One HEFT schedule of the given variant; `rank` is that of `heft_rank_s`."""
    problem = variant_problem(graph, cluster, variant)
    anywhere = np.full(variant.grouping.num_groups, -1, np.int32)
    return insertion_schedule(problem, priority=rank, preferred=anywhere, allowed=variant.allowed, reserve=variant.option)


def heft_rank_s(graph: Graph, cluster: Cluster) -> Float64[np.ndarray, " ops"]:
    """HEFT's upward rank (equation 8); a transfer counts its mean over all pairs of devices."""
    transfer_s = mean_transfer_s(cluster, graph.tensor_bytes[graph.edge_tensor].astype(np.float64))
    return b_level(graph, op_time_s(graph, cluster).mean(axis=1), transfer_s)
