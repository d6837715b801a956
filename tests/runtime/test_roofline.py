"""Seconds of ops, against numbers worked out by hand."""

import dataclasses

import numpy as np

from gdp.cluster import Cluster, Device
from gdp.graph import CONTROL, Graph
from gdp.runtime.roofline import op_time_s


def graph() -> Graph:
    """Compute-bound, memory-bound, a view, half precision, and an op whose only output is a control dependency."""
    return Graph(
        op_type=("a", "b", "view", "half", "control"),
        name=("a", "b", "view", "half", "control"),
        module_path=("",) * 5,
        flops=np.array([1000.0, 10.0, 0.0, 1000.0, 1000.0]),
        accessed_bytes=np.array([10, 400, 0, 0, 0], np.int64),
        param_bytes=np.zeros(5, np.int64),
        temp_bytes=np.zeros(5, np.int64),
        phase=np.zeros(5, np.int8),
        colocation_group=np.full(5, Graph.NO_GROUP, np.int32),
        tensor_producer=np.array([0, 1, 3, 3, 4], np.int32),
        tensor_bytes=np.array([4, 4, 0, 4, 0], np.int64),
        tensor_shape=((1,),) * 5,
        tensor_dtype=("float32", "int64", CONTROL, "float16", CONTROL),
        edge_tensor=np.zeros(0, np.int32),
        edge_consumer=np.zeros(0, np.int32),
        source="test",
    )


def cluster() -> Cluster:
    def device(name: str, kind: str, flops_per_s: dict[str, float], overhead_s: float) -> Device:
        return Device(name=name, kind=kind, memory_bytes=1, flops_per_s=flops_per_s, memory_bytes_per_s=100.0, op_overhead_s=overhead_s)

    return Cluster(
        name="test",
        devices=(
            device("x", "fast", {"float32": 100.0, "float16": 1000.0}, 0.5),
            device("y", "slow", {"float32": 10.0}, 0.0),
            device("z", "fast", {"float32": 100.0, "float16": 1000.0}, 0.5),
        ),
        bandwidth_bytes_per_s=np.ones((3, 3)),
        latency_s=np.zeros((3, 3)),
        channel=np.full((3, 3), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )


FAST = [10.5, 4.5, 0.0, 1.5, 10.5]
SLOW = [100.0, 4.0, 0.0, 100.0, 100.0]


def test_is_the_slower_of_arithmetic_and_memory_plus_overhead() -> None:
    np.testing.assert_array_equal(op_time_s(graph(), cluster()), np.array([FAST, SLOW, FAST]).T)


def test_measured_seconds_go_before_the_roofline_for_their_kind_alone() -> None:
    measured = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    seconds = op_time_s(graph().with_measured_time({"slow": measured, "absent": measured}), cluster())
    np.testing.assert_array_equal(seconds, np.array([FAST, measured, FAST]).T)


def test_is_kept_by_identity_and_cannot_be_written() -> None:
    one, on = graph(), cluster()
    assert op_time_s(one, on) is op_time_s(one, on)
    assert op_time_s(dataclasses.replace(one), on) is not op_time_s(one, on)
    assert not op_time_s(one, on).flags.writeable
