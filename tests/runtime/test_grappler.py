"""Grappler's estimate of small placed programs: closed forms, and agreement with the simulator that is given its costs."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gdp.capture.tensorflow import capture_graph_def
from gdp.capture.tensorflow_import import import_tensorflow
from gdp.cluster import Cluster, Device
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Runtime, Status
from gdp.placement import Origin, Placement
from gdp.runtime.grappler import Grappler
from gdp.runtime.simulator import Simulator

pytestmark = pytest.mark.tensorflow

SIZE = 256
FLOPS_PER_S, BYTES_PER_S = 1e12, 1e11
BANDWIDTH, LATENCY_S = 1e9, 1e-3
MATRIX_BYTES = 4 * SIZE**2
PRODUCT_S = 2 * SIZE**3 / FLOPS_PER_S + 3 * MATRIX_BYTES / BYTES_PER_S
TRANSFER_S = LATENCY_S + MATRIX_BYTES / BANDWIDTH
ROUNDING_S = 1e-9


def cluster_of(num_devices: int = 2, *, channel: int | None = 0, memory_bytes: int = 2**40) -> Cluster:
    """Equal devices; all pairs share a channel, or none has one."""
    device = Device(
        name="d0",
        kind="fast",
        memory_bytes=memory_bytes,
        flops_per_s={"float32": FLOPS_PER_S},
        memory_bytes_per_s=BYTES_PER_S,
        op_overhead_s=0.0,
    )
    square = (num_devices, num_devices)
    return Cluster(
        name="test",
        devices=tuple(dataclasses.replace(device, name=f"d{number}") for number in range(num_devices)),
        bandwidth_bytes_per_s=np.full(square, BANDWIDTH),
        latency_s=np.full(square, LATENCY_S),
        channel=np.full(square, Cluster.NO_CHANNEL if channel is None else channel, np.int32),
        channel_name=() if channel is None else ("bus",),
    )


def program(build: Callable[[Any], Any]) -> tuple[Graph, Any]:
    """A graph, and the GraphDef of the tensors that `build` returns."""
    tf = import_tensorflow()
    traced = tf.Graph()
    with traced.as_default():
        results = build(tf)
    graph_def = traced.as_graph_def(add_shapes=True)
    return capture_graph_def(graph_def, keep=[result.name for result in results], source="test"), graph_def


def chain(tf: Any) -> Any:
    x = tf.compat.v1.placeholder(tf.float32, (SIZE, SIZE), name="x")
    first = tf.linalg.matmul(x, x, name="first")
    return [tf.linalg.matmul(first, first, name="second")]


def after_a_long_op(tf: Any) -> Any:
    """`join` needs a short op where it runs, and waits for a long one elsewhere without taking its data."""
    x = tf.compat.v1.placeholder(tf.float32, (SIZE, SIZE), name="x")
    long = tf.linalg.matmul(x, x, name="long")
    short = tf.nn.relu(tf.compat.v1.placeholder(tf.float32, (8, 8), name="small"), name="short")
    with tf.control_dependencies([long]):
        return [tf.nn.relu(short, name="join")]


def network(tf: Any) -> Any:
    """Branches of different sizes and lengths, so that no two moments coincide, with a variable, its update, and control dependencies."""
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(SIZE, SIZE), name="weight", shared_name="weight")
    read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32, name="read")
    ends, gradients = [], []
    for branch in range(4):
        x = tf.compat.v1.placeholder(tf.float32, (SIZE + 17 * branch, SIZE), name=f"x_{branch}")
        value = tf.linalg.matmul(x, read, name=f"start_{branch}")
        for step in range(branch):
            value = tf.linalg.matmul(value, read, name=f"branch_{branch}_{step}")
        with tf.control_dependencies(ends[-1:]):
            ends.append(tf.nn.relu(value, name=f"end_{branch}"))
        gradients.append(tf.linalg.matmul(x, ends[-1], transpose_a=True, name=f"gradient_{branch}"))
    total = tf.add_n(gradients, name="total")
    with tf.control_dependencies([tf.raw_ops.AssignSubVariableOp(resource=handle, value=total, name="update")]):
        return [tf.identity(total, name="result")]


def on(graph: Graph, **device_of: int) -> Placement:
    """Device 0 but for the named ops."""
    return Placement(device=np.array([device_of.get(name, 0) for name in graph.name], np.int32), origin=Origin(placer="user"))


def random_rows(graph: Graph, num_devices: int, *, count: int) -> np.ndarray:
    """`[count, ops]` devices at random, those of a colocation group alike."""
    generator = np.random.default_rng(0)
    rows = generator.integers(num_devices, size=(count, graph.num_ops), dtype=np.int32)
    for group in range(int(graph.colocation_group.max()) + 1):
        members = np.flatnonzero(graph.colocation_group == group)
        rows[:, members] = rows[:, members[:1]]
    return rows


def test_an_op_takes_its_arithmetic_and_its_traffic() -> None:
    graph, graph_def = program(chain)
    seconds = Grappler(graph_def=graph_def).op_time_s(graph, cluster_of())
    assert list(seconds) == ["fast"]
    placeholder, first, second = (seconds["fast"][graph.name.index(name)] for name in ("x", "first", "second"))
    assert placeholder == pytest.approx(1e-9)
    assert first == second == pytest.approx(PRODUCT_S, abs=2 * ROUNDING_S)


def test_seconds_are_those_of_each_kind_of_device() -> None:
    graph, graph_def = program(chain)
    cluster = cluster_of()
    slow = dataclasses.replace(
        cluster.devices[1], kind="slow", flops_per_s={"float32": FLOPS_PER_S / 4}, memory_bytes_per_s=BYTES_PER_S / 4
    )
    seconds = Grappler(graph_def=graph_def).op_time_s(graph, dataclasses.replace(cluster, devices=(cluster.devices[0], slow)))
    op = graph.name.index("first")
    assert seconds["slow"][op] == pytest.approx(4 * seconds["fast"][op], abs=8 * ROUNDING_S)


@pytest.mark.parametrize("channel", [0, None], ids=["shared", "none"])
def test_a_transfer_takes_its_latency_and_its_bytes(channel: int | None) -> None:
    graph, graph_def = program(chain)
    grappler = Grappler(graph_def=graph_def)
    assert isinstance(grappler, Runtime)
    measured = grappler(graph, cluster_of(channel=channel), on(graph, second=1))
    assert measured.status == Status.OK
    assert measured.step_time_s == pytest.approx(2 * PRODUCT_S + TRANSFER_S, abs=10 * ROUNDING_S)
    assert measured.busy_s == pytest.approx([PRODUCT_S] * 2, abs=10 * ROUNDING_S)
    assert measured.bottleneck_s == pytest.approx(PRODUCT_S if channel is None else TRANSFER_S, abs=10 * ROUNDING_S)
    assert (measured.num_transfers, measured.transferred_bytes) == (1, MATRIX_BYTES)


def test_left_to_itself_grappler_sends_for_nothing() -> None:
    graph, graph_def = program(chain)
    measured = Grappler(graph_def=graph_def, transfers_take_time=False)(graph, cluster_of(), on(graph, second=1))
    assert measured.step_time_s == pytest.approx(2 * PRODUCT_S, abs=10 * ROUNDING_S)


def test_left_to_itself_grappler_heeds_no_control_dependency_from_elsewhere() -> None:
    graph, graph_def = program(after_a_long_op)
    placement = on(graph, small=1, short=1, join=1)
    alone = Grappler(graph_def=graph_def, transfers_take_time=False)(graph, cluster_of(), placement)
    assert alone.step_time_s == pytest.approx(PRODUCT_S, abs=10 * ROUNDING_S)
    relu_s = Grappler(graph_def=graph_def).op_time_s(graph, cluster_of())["fast"][graph.name.index("join")]
    heeded = Grappler(graph_def=graph_def)(graph, cluster_of(), placement)
    assert heeded.step_time_s == pytest.approx(PRODUCT_S + LATENCY_S + relu_s, abs=10 * ROUNDING_S)


@pytest.mark.parametrize("channel", [0, None], ids=["shared", "none"])
def test_with_equal_costs_grappler_and_the_simulator_agree(channel: int | None) -> None:
    graph, graph_def = program(network)
    cluster = cluster_of(3, channel=channel)
    grappler = Grappler(graph_def=graph_def)
    rows = random_rows(graph, 3, count=30)
    judged = grappler.batch(graph, cluster, rows)
    simulated = Simulator().batch(graph.with_measured_time(grappler.op_time_s(graph, cluster)), cluster, rows)
    assert judged.step_time_s == pytest.approx(simulated.step_time_s, abs=graph.num_ops * ROUNDING_S)
    assert judged.bottleneck_s == pytest.approx(simulated.bottleneck_s, abs=graph.num_ops * ROUNDING_S)
    assert judged.num_transfers.tolist() == simulated.num_transfers.tolist()
    assert judged.transferred_bytes.tolist() == simulated.transferred_bytes.tolist()


def test_of_ops_ready_at_one_moment_the_lowest_number_goes_first_or_the_first_name() -> None:
    def build(tf: Any) -> Any:
        x = tf.compat.v1.placeholder(tf.float32, (SIZE, SIZE), name="x")
        late, early = (tf.linalg.matmul(x, x, name=name) for name in ("z_lower_number", "a_first_name"))
        return [tf.linalg.matmul(late, late, name="b_follows_on_another_device"), early]

    graph, graph_def = program(build)
    placement = on(graph, b_follows_on_another_device=1)
    by_number = Grappler(graph_def=graph_def)(graph, cluster_of(), placement)
    by_name = Grappler(graph_def=graph_def, ties="name")(graph, cluster_of(), placement)
    assert by_name.step_time_s - by_number.step_time_s == pytest.approx(PRODUCT_S, abs=10 * ROUNDING_S)


def test_peaks_hold_the_variables() -> None:
    graph, graph_def = program(network)
    weight = on(graph, **dict.fromkeys(("weight", "read", "update"), 1))
    measured = Grappler(graph_def=graph_def)(graph, cluster_of(), weight)
    assert measured.peak_memory_bytes[1] >= 2 * MATRIX_BYTES  # the variable, and what is read from it
    unused = Grappler(graph_def=graph_def)(graph, cluster_of(), on(graph))
    assert unused.peak_memory_bytes[1] == 0


def test_peaks_leave_out_copies_from_elsewhere() -> None:
    graph, graph_def = program(chain)
    placement = on(graph, second=1)
    judged, simulated = (runtime(graph, cluster_of(), placement) for runtime in (Grappler(graph_def=graph_def), Simulator()))
    assert judged.peak_memory_bytes.tolist() == [2 * MATRIX_BYTES, MATRIX_BYTES]
    assert simulated.peak_memory_bytes.tolist() == [2 * MATRIX_BYTES, 2 * MATRIX_BYTES]


def test_what_does_not_fit_is_out_of_memory_and_what_is_no_placement_invalid() -> None:
    graph, graph_def = program(network)
    grappler = Grappler(graph_def=graph_def)
    needed = int(grappler(graph, cluster_of(), on(graph)).peak_memory_bytes[0])
    assert grappler(graph, cluster_of(memory_bytes=needed), on(graph)).status == Status.OK
    full = grappler(graph, cluster_of(memory_bytes=needed - 1), on(graph))
    assert full.status == Status.OUT_OF_MEMORY
    assert full.step_time_s == full.bottleneck_s == np.inf
    assert "d0" in full.detail
    split = grappler(graph, cluster_of(), on(graph, weight=1))
    assert split.status == Status.INVALID
    assert "colocation" in split.detail


def test_another_program_is_refused() -> None:
    graph, _ = program(chain)
    _, other = program(network)
    with pytest.raises(InputError, match="'x' among them, are no nodes of the GraphDef"):
        Grappler(graph_def=other)(graph, cluster_of(), on(graph))
