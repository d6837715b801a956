"""Small graphs and clusters that the tests of the features share."""

import dataclasses

import numpy as np

from gdp.cluster import Cluster, Device
from gdp.graph import Graph


def diamond() -> Graph:
    """0 -> 1 -> 3 and 0 -> 2 -> 3; op 2 holds parameters and is a type that no vocabulary knows."""
    return Graph(
        op_type=("aten.mm.default", "aten.relu.default", "mine.own.default", "aten.add.Tensor"),
        name=("a", "b", "c", "d"),
        module_path=("",) * 4,
        flops=np.array([1e9, 2e9, 5e9, 3e9]),
        accessed_bytes=np.zeros(4, np.int64),
        param_bytes=np.array([0, 0, 700, 0], np.int64),
        temp_bytes=np.array([0, 50, 0, 0], np.int64),
        phase=np.array([0, 0, 1, 2], np.int8),
        colocation_group=np.full(4, Graph.NO_GROUP, np.int32),
        tensor_producer=np.array([0, 1, 2], np.int32),
        tensor_bytes=np.array([400, 100, 200], np.int64),
        tensor_shape=((10, 10), (25,), (-1, 5)),
        tensor_dtype=("float32",) * 3,
        edge_tensor=np.array([0, 0, 1, 2], np.int32),
        edge_consumer=np.array([1, 2, 3, 3], np.int32),
        source="tests.features",
    )


def cluster(*, memory_bytes: tuple[int, ...] = (10_000, 10_000), speed: tuple[float, ...] = (1e12, 1e12), name: str = "test") -> Cluster:
    count = len(speed)
    return Cluster(
        name=name,
        devices=tuple(
            Device(
                name=f"gpu{number}",
                kind=f"kind{speed[number]:g}",
                memory_bytes=memory_bytes[number],
                flops_per_s={"float32": speed[number]},
                memory_bytes_per_s=1e15,
                op_overhead_s=0.0,
            )
            for number in range(count)
        ),
        bandwidth_bytes_per_s=np.full((count, count), 1e6),
        latency_s=np.full((count, count), 1e-4),
        channel=np.full((count, count), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )


def slower(cluster: Cluster, factor: float) -> Cluster:
    """The same cluster with every speed divided by `factor`, and latencies multiplied by it."""
    devices = tuple(
        dataclasses.replace(
            device,
            flops_per_s={key: value / factor for key, value in device.flops_per_s.items()},
            memory_bytes_per_s=device.memory_bytes_per_s / factor,
        )
        for device in cluster.devices
    )
    return dataclasses.replace(
        cluster, devices=devices, bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s / factor, latency_s=cluster.latency_s * factor
    )
