"""The chain that sets the step time: a schedule by hand, and a law of simulated ones."""

import numpy as np
import pytest

from gdp.cluster import Cluster, Device, preset
from gdp.graph import Graph
from gdp.report.chain import chain
from gdp.workloads.synthetic import layered
from tests.report.example_page import predict


def three_ops() -> tuple[Graph, Cluster]:
    """`a` (1 s) and `b` (5 s) on one device; `c` (2 s) on another reads `a` by a transfer of 3 s."""
    graph = Graph(
        op_type=("A", "B", "C"),
        name=("a", "b", "c"),
        module_path=("", "", ""),
        flops=np.array([1.0, 5.0, 2.0]),
        accessed_bytes=np.zeros(3, np.int64),
        param_bytes=np.zeros(3, np.int64),
        temp_bytes=np.zeros(3, np.int64),
        phase=np.zeros(3, np.int8),
        colocation_group=np.full(3, -1, np.int32),
        tensor_producer=np.array([0], np.int32),
        tensor_bytes=np.array([3]),
        tensor_shape=((3,),),
        tensor_dtype=("int8",),
        edge_tensor=np.array([0], np.int32),
        edge_consumer=np.array([2], np.int32),
        source="by hand",
    )
    device = {"kind": "k", "memory_bytes": 100, "flops_per_s": {"float32": 1.0}, "memory_bytes_per_s": 1.0, "op_overhead_s": 0.0}
    cluster = Cluster(
        name="two",
        devices=(Device(name="x", **device), Device(name="y", **device)),
        bandwidth_bytes_per_s=np.ones((2, 2)),
        latency_s=np.zeros((2, 2)),
        channel=np.zeros((2, 2), np.int32),
        channel_name=("bus",),
    )
    return graph, cluster


def test_the_chain_goes_through_the_transfer_when_it_ends_last() -> None:
    graph, cluster = three_ops()
    slow_b, slow_c = np.array([0, 1, 1], np.int32), np.array([0, 0, 1], np.int32)
    measurement = predict(graph, cluster, slow_c)
    assert measurement.timeline is not None
    found = chain(graph, cluster, slow_c, measurement.timeline)
    assert (found.ops.tolist(), found.transfers.tolist()) == ([1, 0], []) or (found.ops.tolist(), found.transfers.tolist()) == ([2, 0], [0])
    assert found.compute_s + found.transfer_s == measurement.step_time_s == 6.0

    measurement = predict(graph, cluster, slow_b)
    assert measurement.timeline is not None
    found = chain(graph, cluster, slow_b, measurement.timeline)
    assert (found.ops.tolist(), found.transfers.tolist()) == ([2, 1], [])
    assert (found.compute_s, found.transfer_s, found.idle_s) == (7.0, 0.0, 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_in_a_simulated_step_something_on_the_chain_is_always_going_on(seed: int) -> None:
    generator = np.random.default_rng(seed)
    graph, cluster = layered(generator, num_ops=200, training=False), preset("p100x4")
    device = generator.integers(4, size=graph.num_ops).astype(np.int32)
    for group in np.unique(graph.colocation_group[graph.colocation_group >= 0]):
        device[graph.colocation_group == group] = 0
    measurement = predict(graph, cluster, device)
    assert measurement.timeline is not None
    found = chain(graph, cluster, device, measurement.timeline)
    assert found.compute_s + found.transfer_s == pytest.approx(measurement.step_time_s, rel=1e-9)
    assert found.idle_s < 1e-9 * measurement.step_time_s
    assert found.transfer_s > 0
