"""Small graphs and machines that the tests of the baselines share."""

import numpy as np

from gdp.cluster import Cluster, Device
from gdp.graph import Graph, Phase


def small_graph(
    edges: list[tuple[int, int]],
    *,
    seconds: list[float],
    param_bytes: list[int] | None = None,
    module_path: list[str] | None = None,
    phase: list[Phase] | None = None,
    colocation: list[int] | None = None,
    tensor_bytes: list[int] | None = None,
) -> Graph:
    """Ops that take `seconds` at one FLOP a second and produce a tensor each, of one byte unless `tensor_bytes` says otherwise."""
    count = len(seconds)
    return Graph(
        op_type=("aten.linear.default",) * count,
        name=tuple(f"op{op}" for op in range(count)),
        module_path=tuple(module_path or [""] * count),
        flops=np.array(seconds, np.float64),
        accessed_bytes=np.zeros(count, np.int64),
        param_bytes=np.array(param_bytes or [0] * count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        phase=np.array(phase or [Phase.FORWARD] * count, np.int8),
        colocation_group=np.array(colocation or [Graph.NO_GROUP] * count, np.int32),
        tensor_producer=np.arange(count, dtype=np.int32),
        tensor_bytes=np.array(tensor_bytes or [1] * count, np.int64),
        tensor_shape=((-1,),) * count,
        tensor_dtype=("int8",) * count,
        edge_tensor=np.array([producer for producer, _ in edges], np.int32),
        edge_consumer=np.array([consumer for _, consumer in edges], np.int32),
        source="tests.baselines",
    )


def machine(*, memory_bytes: list[int], flops_per_s: list[float] | None = None, transfer_s: float = 0.0) -> Cluster:
    """Devices whose every transfer takes `transfer_s` and contends with no other."""
    count = len(memory_bytes)
    speeds = flops_per_s or [1.0] * count
    return Cluster(
        name="a small machine",
        devices=tuple(
            Device(
                name=f"gpu{number}",
                kind=f"speed {speed:g}",
                memory_bytes=memory,
                flops_per_s={"float32": speed},
                memory_bytes_per_s=1.0,
                op_overhead_s=0.0,
            )
            for number, (memory, speed) in enumerate(zip(memory_bytes, speeds, strict=True))
        ),
        bandwidth_bytes_per_s=np.full((count, count), np.inf),
        latency_s=np.full((count, count), transfer_s),
        channel=np.full((count, count), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )
