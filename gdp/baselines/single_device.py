"""Everything on one device: what every placement must be compared with."""

import dataclasses

import numpy as np

from gdp.baselines.score import best_of
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.runtime.roofline import op_time_s


@dataclasses.dataclass(frozen=True, kw_only=True)
class SingleDevice:
    """The best single device.

    With a runtime every device is tried, and one that runs out of memory is passed over as long as another does not. Without one, the device with the least
    predicted time among those whose memory holds the parameters; if none does, the one with most memory.
    """

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        if self.runtime is not None:
            device = best_of(graph, cluster, single_devices(graph, cluster), runtime=self.runtime, objective=self.objective)
            return Placement(device=device, origin=Origin(placer="single-device", evaluations=cluster.num_devices))
        holds = cluster.memory_bytes >= graph.param_bytes.sum()
        seconds = np.where(holds, op_time_s(graph, cluster).sum(axis=0), np.inf)
        best = int(seconds.argmin()) if holds.any() else int(cluster.memory_bytes.argmax())
        return Placement(device=np.full(graph.num_ops, best, np.int32), origin=Origin(placer="single-device"))


def single_devices(graph: Graph, cluster: Cluster) -> np.ndarray:
    """`[devices ops]` int32: row `d` puts every op on device `d`."""
    return np.repeat(np.arange(cluster.num_devices, dtype=np.int32)[:, None], graph.num_ops, axis=1)
