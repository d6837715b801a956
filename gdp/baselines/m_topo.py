"""m-TOPO: topological order under memory limits (Baechi, Jeon et al., SoCC 2020).

Ops in topological order fill one device after the other, each up to the same share of the memory that the graph needs, plus that of the largest op, and never beyond what it has.

Deviations: groups of the coarsened graph (fusion, colocation) are filled in as wholes; a device that has less than its share leaves more to the rest; where all tensors
together exceed the memory (they are not all held at once), devices are filled in proportion to what they have; with a runtime, devices may stay idle, since with all of them
the published method ends slower than one device where memory is ample.
"""

import dataclasses

import numpy as np

from gdp.baselines.list_schedule import Schedule
from gdp.baselines.quotient import resident_bytes, stage_order
from gdp.baselines.schedule_variants import Variant, best_variant, plain_variant
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class MTopo:
    """m-TOPO.

    With a runtime, the best over several coarsenings, numbers of devices (the fastest first), and the plain order or the one with backward ops beside their forward ops,
    which Baechi co-places.
    """

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        def schedule(variant: Variant) -> Schedule:
            return m_topo(graph, cluster, variant)

        if self.runtime is None:
            return plain_variant(graph, cluster, schedule, name="m-topo")
        return best_variant(graph, cluster, schedule, name="m-topo", runtime=self.runtime, objective=self.objective)


def m_topo(graph: Graph, cluster: Cluster, variant: Variant) -> Schedule:
    """One m-TOPO placement of the given variant, whose option is the stage order. The end of a step is not predicted: infinite."""
    grouping = variant.grouping
    need = resident_bytes(graph, grouping)
    order = stage_order(graph, grouping).tolist() if variant.option else range(grouping.num_groups)
    devices = np.flatnonzero(variant.allowed)
    capacity = cluster.memory_bytes[devices].astype(np.float64).tolist()
    left, largest = float(need.sum()), float(need.max())
    overflows = left > sum(capacity)
    if overflows:
        capacity = [one * left / max(sum(capacity), 1.0) for one in capacity]
    group_device = np.empty(grouping.num_groups, np.int32)
    number, filled, room = 0, 0.0, _room(capacity, left, largest)
    for group in order:
        size = float(need[group])
        while filled and filled + size > room and number + 1 < len(devices):
            number, filled = number + 1, 0.0
            room = _room(capacity[number:], left, largest)
        group_device[group] = devices[number]
        filled += size
        left -= size
    return Schedule(device=grouping.expand(group_device), end_s=float("inf"), overflows=overflows)


def _room(capacity: list[float], left: float, largest: float) -> float:
    """What the first device may hold: the least level at which all hold what is left, each at most its capacity, and the largest op beside it."""
    level = 0.0
    for place, full in enumerate(sorted(capacity)):
        level = left / (len(capacity) - place)
        if level <= full:
            break
        left -= full
    return min(level + largest, capacity[0])
