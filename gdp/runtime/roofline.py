"""Seconds of every op on every device (docs/simulator.md).

Measured seconds where the graph has them for the device's kind, else the roofline model (Williams et al., CACM 2009):
`max(flops / flops_per_s, accessed_bytes / memory_bytes_per_s) + op_overhead_s`. An op that does no work takes no time.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float64

from gdp.cluster import Cluster, Device
from gdp.graph import CONTROL, Graph


@lru_cache(maxsize=64)
def op_time_s(graph: Graph, cluster: Cluster) -> Float64[np.ndarray, "ops devices"]:
    """Seconds of each op on each device, read-only. The last 64 answers are kept, by identity of the arguments."""
    by_kind: dict[str, np.ndarray] = {}
    for device in cluster.devices:
        if device.kind not in by_kind:
            measured = graph.measured_time_s.get(device.kind)
            by_kind[device.kind] = _roofline_s(graph, device) if measured is None else measured
    seconds = np.ascontiguousarray(np.stack([by_kind[device.kind] for device in cluster.devices], axis=1))
    seconds.flags.writeable = False
    return seconds


def _roofline_s(graph: Graph, device: Device) -> np.ndarray:
    classes = _dtype_class(graph)
    flops_per_s = np.array([device.flops_per_s.get(name, device.flops_per_s["float32"]) for name in classes])
    work_s = np.maximum(graph.flops / flops_per_s, graph.accessed_bytes / device.memory_bytes_per_s)
    return np.where(graph.works, work_s + device.op_overhead_s, 0.0)


def _dtype_class(graph: Graph) -> list[str]:
    """The class of arithmetic of each op: the dtype of its first output that carries data, `float32` where there is none."""
    classes = ["float32"] * graph.num_ops
    for producer, dtype in zip(reversed(graph.tensor_producer.tolist()), reversed(graph.tensor_dtype), strict=True):
        if dtype != CONTROL:
            classes[producer] = "int8" if dtype == "uint8" else dtype
    return classes
