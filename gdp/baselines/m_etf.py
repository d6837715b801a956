"""m-ETF: earliest task first under memory limits (Baechi, Jeon et al., SoCC 2020; ETF: Hwang et al., SIAM J. Comput. 18, 1989).

Of all ready ops on all devices with room, the pair that can start first is taken, the longest upward rank first among equals.

Deviations: transfers contend for the cluster's channels; slow devices count as starting later (`gdp.baselines.earliest_start_schedule`); memory is counted as it is
held during the step, and with the option as Baechi does in training, every tensor to the end. Fusion is the coarsening. Devices may stay idle, since with all of them the published
method ends slower than one device where transfers are dear.
"""

import dataclasses

import numpy as np
from jaxtyping import Float64

from gdp.baselines.earliest_start_schedule import earliest_start_schedule
from gdp.baselines.heft import heft_rank_s
from gdp.baselines.list_schedule import Schedule
from gdp.baselines.schedule_variants import Variant, best_variant, plain_variant, variant_problem
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class MEtf:
    """m-ETF on the chains of ops that gain nothing from a cut.

    With a runtime, the best over several coarsenings, numbers of devices (the fastest first), and the option: Baechi's account of memory, and work still to come of groups that
    are decided.
    """

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        rank = heft_rank_s(graph, cluster)

        def schedule(variant: Variant) -> Schedule:
            return m_etf(graph, cluster, variant, rank=rank)

        if self.runtime is None:
            return plain_variant(graph, cluster, schedule, name="m-etf")
        return best_variant(graph, cluster, schedule, name="m-etf", runtime=self.runtime, objective=self.objective)


def m_etf(graph: Graph, cluster: Cluster, variant: Variant, *, rank: Float64[np.ndarray, " ops"]) -> Schedule:
    """One m-ETF schedule of the given variant; `rank` is that of `heft_rank_s`."""
    return earliest_start_schedule(
        variant_problem(graph, cluster, variant),
        rank=rank,
        favourite_child=np.full(variant.grouping.num_groups, -1, np.int32),
        allowed=variant.allowed,
        reserve=variant.option,
        keeps_tensors=variant.option,
    )
