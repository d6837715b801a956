"""m-SCT: small communication times under memory limits (Baechi, Jeon et al., SoCC 2020; SCT: Hanen and Munier, 1995).

A linear program picks a favourite child for each group (`gdp.baselines.favourite_child`); then ops start as in m-ETF, but a device waits for the favourite child of what it
ran last as long as a transfer would take.

Deviations: those of `gdp.baselines.m_etf`; a child is a favourite below 1/2 (Hanen and Munier), not below 0.1; the linear program is over groups, at most `_MAX_GROUPS` of
them, so that it is solved in seconds, and the schedule over ops.
"""

import dataclasses

import numpy as np
from jaxtyping import Float64

from gdp.baselines.earliest_start_schedule import earliest_start_schedule
from gdp.baselines.favourite_child import favourite_children
from gdp.baselines.heft import heft_rank_s
from gdp.baselines.list_schedule import Schedule
from gdp.baselines.quotient import quotient
from gdp.baselines.schedule_variants import Variant, best_variant, plain_variant, variant_problem
from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Placement

_MAX_GROUPS = 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class MSct:
    """m-SCT on groups of ops.

    With a runtime, the best over several coarsenings, numbers of devices (the fastest first), and the option: Baechi's account of memory, and work still to come of groups that
    are decided.
    """

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        rank = heft_rank_s(graph, cluster)
        known: dict[Grouping, np.ndarray] = {}

        def schedule(variant: Variant) -> Schedule:
            if variant.grouping not in known:
                known[variant.grouping] = favourite_children(quotient(graph, cluster, variant.grouping), cluster)
            return m_sct(graph, cluster, variant, rank=rank, favourite_child=known[variant.grouping])

        if self.runtime is None:
            return plain_variant(graph, cluster, schedule, name="m-sct", max_groups=_MAX_GROUPS)
        return best_variant(graph, cluster, schedule, name="m-sct", runtime=self.runtime, objective=self.objective, max_groups=_MAX_GROUPS)


def m_sct(graph: Graph, cluster: Cluster, variant: Variant, *, rank: Float64[np.ndarray, " ops"], favourite_child: np.ndarray) -> Schedule:
    """One m-SCT schedule of the given variant; `rank` is that of `heft_rank_s`, `favourite_child` (`[groups]`) that of `favourite_children`."""
    return earliest_start_schedule(
        variant_problem(graph, cluster, variant),
        rank=rank,
        favourite_child=favourite_child,
        allowed=variant.allowed,
        reserve=variant.option,
        keeps_tensors=variant.option,
    )
