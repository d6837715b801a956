"""m-TOPO: topological order under memory limits (Baechi, Jeon et al., SoCC 2020).

Ops in topological order fill one device after the other, each up to the same share of the memory that the graph needs, plus that of the largest op, and never beyond what it has.

Deviations: groups of the coarsened graph (fusion, colocation) are filled in as wholes; a device that has less than its share leaves more to the rest; with a runtime, devices may
stay idle, since with all of them the published method ends slower than one device where memory is ample.
"""

import dataclasses

import numpy as np

from gdp.baselines.list_schedule import Schedule
from gdp.baselines.quotient import resident_bytes
from gdp.baselines.schedule_variants import Variant, best_variant, plain_variant
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class MTopo:
    """m-TOPO. With a runtime, the best over several coarsenings, numbers of devices (the fastest first), and with and without room for the largest op beside the share."""

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        def schedule(variant: Variant) -> Schedule:
            return m_topo(graph, cluster, variant)

        if self.runtime is None:
            return plain_variant(graph, cluster, schedule, name="m-topo")
        return best_variant(graph, cluster, schedule, name="m-topo", runtime=self.runtime, objective=self.objective)


def m_topo(graph: Graph, cluster: Cluster, variant: Variant) -> Schedule:
    """One m-TOPO placement of the given variant, whose option leaves out the room for the largest op. The end of a step is not predicted: infinite."""
    grouping = variant.grouping
    need = resident_bytes(graph, grouping)
    devices = np.flatnonzero(variant.allowed)
    left = int(need.sum())
    group_device = np.empty(grouping.num_groups, np.int32)
    number, filled, overflows = 0, 0, False
    room = _room(cluster, devices, 0, left, 0 if variant.option else int(need.max()))
    for group, size in enumerate(need.tolist()):
        while filled and filled + size > room and number + 1 < len(devices):
            number, filled = number + 1, 0
            room = _room(cluster, devices, number, left, 0 if variant.option else int(need.max()))
        group_device[group] = devices[number]
        filled += size
        left -= size
        overflows = overflows or filled > int(cluster.memory_bytes[devices[number]])
    return Schedule(device=grouping.expand(group_device), end_s=float("inf"), overflows=overflows)


def _room(cluster: Cluster, devices: np.ndarray, number: int, left: int, largest: int) -> int:
    """What the device may hold: the least level at which those from it on hold what is left, each at most its capacity; and the largest op."""
    capacity = np.sort(cluster.memory_bytes[devices[number:]]).tolist()
    level = 0
    for place, full in enumerate(capacity):
        level = -(-left // (len(capacity) - place))
        if level <= full:
            break
        left -= full
    return min(level + largest, int(cluster.memory_bytes[devices[number]]))
