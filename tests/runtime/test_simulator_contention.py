"""Closed forms for shared channels and unequal devices, through both implementations."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from gdp.cluster import Cluster, Device
from gdp.graph import Graph
from gdp.measurement import Measurement
from gdp.placement import Placement
from gdp.runtime.simulator import Simulator
from gdp.runtime.specification import simulate
from tests.strategies import placement

Implementation = Callable[[Graph, Cluster, Placement], Measurement]


def specified(graph: Graph, cluster: Cluster, placed: Placement) -> Measurement:
    return simulate(graph, cluster, placed, dispatch="ready_order", rank=None)


both = pytest.mark.parametrize("run", [specified, Simulator(with_timeline=True)], ids=["specification", "kernel"])


def ops_and_tensors(seconds: dict[str, list[float]], tensors: list[tuple[int, int, list[int]]]) -> Graph:
    """Ops with measured seconds by device kind, and tensors `(producer, bytes, consumers)` in the order of producers."""
    num_ops = len(next(iter(seconds.values())))
    return Graph(
        op_type=("op",) * num_ops,
        name=tuple(f"op{op}" for op in range(num_ops)),
        module_path=("",) * num_ops,
        flops=np.zeros(num_ops),
        accessed_bytes=np.zeros(num_ops, np.int64),
        param_bytes=np.zeros(num_ops, np.int64),
        temp_bytes=np.zeros(num_ops, np.int64),
        phase=np.zeros(num_ops, np.int8),
        colocation_group=np.full(num_ops, Graph.NO_GROUP, np.int32),
        tensor_producer=np.array([producer for producer, _, _ in tensors], np.int32),
        tensor_bytes=np.array([size for _, size, _ in tensors], np.int64),
        tensor_shape=((-1,),) * len(tensors),
        tensor_dtype=("float32",) * len(tensors),
        edge_tensor=np.array([tensor for tensor, (_, _, consumers) in enumerate(tensors) for _ in consumers], np.int32),
        edge_consumer=np.array([op for _, _, consumers in tensors for op in consumers], np.int32),
        source="tests",
        measured_time_s={kind: np.array(values) for kind, values in seconds.items()},
    )


def three_devices(*, kinds: tuple[str, str, str] = ("fast", "fast", "fast"), channel: list[list[int]]) -> Cluster:
    """Links of latency 1 and one byte per second."""
    channels = np.array(channel, np.int32)
    return Cluster(
        name="three",
        devices=tuple(
            Device(
                name=f"gpu{number}", kind=kind, memory_bytes=1000, flops_per_s={"float32": 1.0}, memory_bytes_per_s=1.0, op_overhead_s=0.0
            )
            for number, kind in enumerate(kinds)
        ),
        bandwidth_bytes_per_s=np.ones((3, 3)),
        latency_s=np.ones((3, 3)),
        channel=channels,
        channel_name=tuple(f"channel{number}" for number in range(channels.max() + 1)),
    )


ONE_BUS = [[0, 0, 0], [0, 0, 0], [0, 0, 0]]
A_CHANNEL_PER_SOURCE = [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
NONE = [[-1, -1, -1], [-1, -1, -1], [-1, -1, -1]]


@both
@pytest.mark.parametrize(
    ("channel", "arrival_s", "occupied_s"), [(ONE_BUS, 2 + 4 + 6, 10), (A_CHANNEL_PER_SOURCE, 2 + 6, 6), (NONE, 2 + 6, 0)]
)
def test_one_channel_takes_the_sum_of_two_transfers_and_two_channels_the_longer(
    run: Implementation, channel: list[list[int]], arrival_s: float, occupied_s: float
) -> None:
    """Two ops of 2 s on two devices send 3 and 5 bytes (4 and 6 s) to a third, whose op needs both and takes 1 s; another op ends there while they are on their way."""
    graph = ops_and_tensors({"fast": [2.0, 2.0, 1.0, 3.0]}, [(0, 3, [2]), (1, 5, [2])])
    measured = run(graph, three_devices(channel=channel), placement(np.array([0, 1, 2, 2])))
    assert measured.step_time_s == arrival_s + 1
    assert measured.bottleneck_s == max(occupied_s, 1 + 3)
    assert measured.num_transfers == 2 and measured.transferred_bytes == 8


@both
def test_on_one_channel_the_lower_producer_goes_first_and_its_consumer_starts_meanwhile(run: Implementation) -> None:
    graph = ops_and_tensors({"fast": [2.0, 2.0, 1.0, 1.0]}, [(0, 3, [2]), (1, 5, [3])])
    timeline = run(graph, three_devices(channel=ONE_BUS), placement(np.array([0, 1, 2, 2]))).timeline
    assert timeline is not None
    assert timeline.transfer_start_s.tolist() == [2, 6] and timeline.transfer_end_s.tolist() == [6, 12]
    assert timeline.op_start_s.tolist() == [0, 0, 6, 12]


@both
def test_a_tensor_crosses_once_per_device_however_many_consumers_wait_for_it(run: Implementation) -> None:
    graph = ops_and_tensors({"fast": [2.0, 1.0, 1.0, 1.0, 1.0]}, [(0, 3, [1, 2, 3, 4])])
    measured = run(graph, three_devices(channel=ONE_BUS), placement(np.array([0, 1, 1, 2, 2])))
    assert measured.num_transfers == 2
    assert measured.step_time_s == 2 + 4 + 4 + 1 + 1


@both
@pytest.mark.parametrize(("device", "busy_s"), [([0, 0, 0], [6, 0, 0]), ([1, 1, 1], [0, 60, 0]), ([0, 1, 2], [1, 20, 3])])
def test_an_op_takes_the_seconds_of_its_own_device(run: Implementation, device: list[int], busy_s: list[float]) -> None:
    """Three independent ops: each device takes the sum of its own, by its kind; the slowest device is the step."""
    graph = ops_and_tensors({"fast": [1.0, 2.0, 3.0], "slow": [10.0, 20.0, 30.0]}, [])
    measured = run(graph, three_devices(kinds=("fast", "slow", "fast"), channel=ONE_BUS), placement(np.array(device)))
    assert measured.busy_s.tolist() == busy_s
    assert measured.step_time_s == measured.bottleneck_s == max(busy_s)


@both
def test_a_chain_over_unequal_devices_takes_each_ones_seconds_and_the_transfers_between(run: Implementation) -> None:
    graph = ops_and_tensors({"fast": [1.0, 2.0, 3.0], "slow": [10.0, 20.0, 30.0]}, [(0, 3, [1]), (1, 5, [2])])
    cluster = three_devices(kinds=("fast", "slow", "fast"), channel=A_CHANNEL_PER_SOURCE)
    slower = dataclasses.replace(cluster, bandwidth_bytes_per_s=np.array([[1.0, 1, 1], [1, 1, 0.5], [1, 1, 1]]))
    assert run(graph, cluster, placement(np.array([0, 1, 2]))).step_time_s == 1 + (1 + 3) + 20 + (1 + 5) + 3
    assert run(graph, slower, placement(np.array([0, 1, 2]))).step_time_s == 1 + (1 + 3) + 20 + (1 + 10) + 3
