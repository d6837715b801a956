"""Laws that hold for the simulated time of any graph, cluster and placement."""

import dataclasses
import multiprocessing
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, Status
from gdp.runtime import simulator as simulator_module
from gdp.runtime.roofline import op_time_s
from gdp.runtime.simulator import Simulator
from gdp.runtime.verdict import Dispatch
from tests.strategies import placement, seeded_cluster, seeded_device, seeded_graph

Case = tuple[Graph, Cluster, np.ndarray]

seeds = st.integers(0, 2**32 - 1)
dispatches: st.SearchStrategy[Dispatch] = st.sampled_from(["ready_order", "program_order", "priority"])
law = settings(max_examples=60, deadline=None)


def roomy(cluster: Cluster) -> Cluster:
    return dataclasses.replace(cluster, devices=tuple(dataclasses.replace(device, memory_bytes=2**50) for device in cluster.devices))


def case(seed: int) -> Case:
    generator = np.random.default_rng(seed)
    graph = seeded_graph(generator, num_ops=int(generator.integers(1, 30)))
    cluster = roomy(seeded_cluster(generator, num_devices=int(generator.integers(1, 5))))
    return graph, cluster, seeded_device(generator, graph, cluster)


def run(graph: Graph, cluster: Cluster, device: np.ndarray, dispatch: Dispatch) -> Measurement:
    rank = np.arange(graph.num_ops) % 3 * 1.0 if dispatch == "priority" else None
    return Simulator(dispatch=dispatch, rank=rank, with_timeline=True)(graph, cluster, placement(device))


def transfer_s(graph: Graph, cluster: Cluster, tensor: int, source: int, destination: int) -> float:
    return cluster.latency_s[source, destination] + graph.tensor_bytes[tensor] / cluster.bandwidth_bytes_per_s[source, destination]


@law
@given(seed=seeds, dispatch=dispatches)
def test_lies_between_the_critical_path_and_the_serial_sum(seed: int, dispatch: Dispatch) -> None:
    graph, cluster, device = case(seed)
    seconds = op_time_s(graph, cluster)[np.arange(graph.num_ops), device]
    start, path, sent = np.zeros(graph.num_ops), np.zeros(graph.num_ops), {}
    by_consumer = np.argsort(graph.edge_consumer, kind="stable").tolist()
    edges = iter([*by_consumer, -1])
    edge = next(edges)
    for op in range(graph.num_ops):
        while edge >= 0 and graph.edge_consumer[edge] == op:
            tensor, producer = int(graph.edge_tensor[edge]), int(graph.edge_producer[edge])
            arrival = path[producer]
            if device[producer] != device[op]:
                sent[tensor, int(device[op])] = transfer_s(graph, cluster, tensor, int(device[producer]), int(device[op]))
                arrival = arrival + sent[tensor, int(device[op])]
            start[op] = max(start[op], arrival)
            edge = next(edges)
        path[op] = start[op] + seconds[op]
    measured = run(graph, cluster, device, dispatch)
    # rounding is monotone, so the path, summed as the simulator sums, is a bound to the last bit; the serial sum is in another order
    assert path.max() <= measured.step_time_s
    assert measured.step_time_s <= (seconds.sum() + sum(sent.values())) * (1 + 1e-12)
    assert measured.num_transfers == len(sent)
    assert measured.transferred_bytes == sum(int(graph.tensor_bytes[tensor]) for tensor, _ in sent)
    np.testing.assert_allclose(measured.busy_s, np.bincount(device, seconds, minlength=cluster.num_devices), rtol=1e-12)
    assert measured.busy_s.max() <= measured.bottleneck_s <= measured.step_time_s * (1 + 1e-12)


@law
@given(seed=seeds, dispatch=dispatches)
def test_timeline_is_possible(seed: int, dispatch: Dispatch) -> None:
    graph, cluster, device = case(seed)
    measured = run(graph, cluster, device, dispatch)
    timeline = measured.timeline
    assert timeline is not None
    arrival = {
        (tensor, at): end
        for tensor, at, end in zip(
            timeline.transfer_tensor.tolist(), timeline.transfer_destination.tolist(), timeline.transfer_end_s.tolist(), strict=True
        )
    }
    for tensor, consumer in zip(graph.edge_tensor.tolist(), graph.edge_consumer.tolist(), strict=True):
        producer = graph.tensor_producer[tensor]
        there = timeline.op_end_s[producer] if device[producer] == device[consumer] else arrival[tensor, int(device[consumer])]
        assert there <= timeline.op_start_s[consumer]
    spans = [(f"device {device[op]}", timeline.op_start_s[op], timeline.op_end_s[op]) for op in range(graph.num_ops)]
    for number, (source, destination) in enumerate(zip(timeline.transfer_source, timeline.transfer_destination, strict=True)):
        if cluster.channel[source, destination] != Cluster.NO_CHANNEL:
            span = timeline.transfer_start_s[number], timeline.transfer_end_s[number]
            spans.append((f"channel {cluster.channel[source, destination]}", *span))
    for (where, _, end), (then, start, _) in zip(sorted(spans), sorted(spans)[1:], strict=False):
        assert where != then or end <= start, "one thing at a time"
    for at in range(cluster.num_devices):
        assert timeline.memory_time_s[at][0] == 0
        assert (np.diff(timeline.memory_time_s[at]) >= 0).all()
        assert timeline.memory_bytes[at].max() == measured.peak_memory_bytes[at]
        assert timeline.memory_bytes[at][-1] == graph.param_bytes[device == at].sum(), "only parameters are left at the end"


def assert_same_times(one: Measurement, other: Measurement, *, factor: float = 1.0) -> None:
    assert one.step_time_s * factor == other.step_time_s
    assert one.bottleneck_s * factor == other.bottleneck_s
    assert one.num_transfers == other.num_transfers


@law
@given(seed=seeds, dispatch=dispatches)
def test_order_of_edges_does_not_matter(seed: int, dispatch: Dispatch) -> None:
    graph, cluster, device = case(seed)
    order = np.random.default_rng(seed).permutation(graph.num_edges)
    shuffled = dataclasses.replace(graph, edge_tensor=graph.edge_tensor[order], edge_consumer=graph.edge_consumer[order])
    one, other = run(graph, cluster, device, dispatch), run(shuffled, cluster, device, dispatch)
    assert_same_times(one, other)
    assert (one.peak_memory_bytes == other.peak_memory_bytes).all()


@law
@given(seed=seeds, dispatch=dispatches, channels=st.booleans())
def test_relabelling_equal_devices_does_not_matter(seed: int, dispatch: Dispatch, channels: bool) -> None:
    """With a channel per pair or none: on a shared channel the number of the destination breaks ties."""
    graph, cluster, device = case(seed)
    count = cluster.num_devices
    channel = np.arange(count**2, dtype=np.int32).reshape(count, count) if channels else np.full((count, count), -1, np.int32)
    first = cluster.devices[0]
    cluster = dataclasses.replace(
        cluster,
        devices=tuple(dataclasses.replace(first, name=f"gpu{number}") for number in range(count)),
        bandwidth_bytes_per_s=np.full((count, count), 3.0),
        latency_s=np.full((count, count), 0.25),
        channel=channel,
        channel_name=tuple(f"channel{number}" for number in range(channel.max() + 1)),
    )
    label = np.random.default_rng(seed).permutation(count).astype(np.int32)
    one, other = run(graph, cluster, device, dispatch), run(graph, cluster, label[device], dispatch)
    assert_same_times(one, other)
    assert (one.peak_memory_bytes == other.peak_memory_bytes[label]).all()


@law
@given(seed=seeds)
def test_renumbering_ops_does_not_matter_without_ties(seed: int) -> None:
    """With distinct ranks and without channels nothing ties, so another topological order gives the same step."""
    graph, cluster, device = case(seed)
    generator = np.random.default_rng(seed)
    cluster = dataclasses.replace(cluster, channel=np.full_like(cluster.channel, Cluster.NO_CHANNEL))
    number = topological_numbers(graph, generator)
    old = np.argsort(number)
    tensors = np.argsort(number[graph.tensor_producer], kind="stable")
    per_op = {
        field: getattr(graph, field)[old] for field in ("flops", "accessed_bytes", "param_bytes", "temp_bytes", "phase", "colocation_group")
    }
    renumbered = dataclasses.replace(
        graph,
        **per_op,
        tensor_producer=number[graph.tensor_producer][tensors].astype(np.int32),
        tensor_bytes=graph.tensor_bytes[tensors],
        edge_tensor=np.argsort(tensors)[graph.edge_tensor].astype(np.int32),
        edge_consumer=number[graph.edge_consumer].astype(np.int32),
        measured_time_s=reordered(graph.measured_time_s, old),
    )
    rank = generator.permutation(graph.num_ops) * 1.0
    one = Simulator(dispatch="priority", rank=rank)(graph, cluster, placement(device))
    other = Simulator(dispatch="priority", rank=rank[old])(renumbered, cluster, placement(device[old]))
    assert one.step_time_s == other.step_time_s
    assert (one.peak_memory_bytes == other.peak_memory_bytes).all()


def reordered(seconds: Mapping[str, np.ndarray], order: np.ndarray) -> dict[str, np.ndarray]:
    return {kind: values[order] for kind, values in seconds.items()}


def topological_numbers(graph: Graph, generator: np.random.Generator) -> np.ndarray:
    """`[ops]` new numbers in a random topological order."""
    missing = np.bincount(graph.edge_consumer, minlength=graph.num_ops)
    free, number = [op for op in range(graph.num_ops) if not missing[op]], np.zeros(graph.num_ops, np.int64)
    for position in range(graph.num_ops):
        op = free.pop(int(generator.integers(len(free))))
        number[op] = position
        for consumer in graph.edge_consumer[graph.edge_producer == op].tolist():
            missing[consumer] -= 1
            if not missing[consumer]:
                free.append(consumer)
    return number


@law
@given(seed=seeds, dispatch=dispatches)
def test_doubling_every_time_doubles_the_result(seed: int, dispatch: Dispatch) -> None:
    graph, cluster, device = case(seed)
    slow_graph = graph.with_measured_time({kind: 2 * seconds for kind, seconds in graph.measured_time_s.items()})
    slow = dataclasses.replace(cluster, latency_s=2 * cluster.latency_s, bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s / 2)
    assert_same_times(run(graph, cluster, device, dispatch), run(slow_graph, slow, device, dispatch), factor=2.0)


@law
@given(seed=seeds, dispatch=dispatches)
def test_an_unused_device_changes_nothing(seed: int, dispatch: Dispatch) -> None:
    graph, cluster, device = case(seed)

    def grown(matrix: np.ndarray) -> np.ndarray:
        return (
            np.pad(matrix, (0, 1), constant_values=0 if cluster.num_channels else -1)
            if matrix is cluster.channel
            else np.pad(matrix, (0, 1), mode="edge")
        )

    larger = dataclasses.replace(
        cluster,
        devices=(*cluster.devices, dataclasses.replace(cluster.devices[0], name="unused")),
        **{field: grown(getattr(cluster, field)) for field in ("bandwidth_bytes_per_s", "latency_s", "channel")},
    )
    one, other = run(graph, cluster, device, dispatch), run(graph, larger, device, dispatch)
    assert_same_times(one, other)
    assert [*one.peak_memory_bytes, 0] == other.peak_memory_bytes.tolist()


@law
@given(seed=seeds, dispatch=dispatches)
def test_one_device_takes_the_sum_of_all_ops(seed: int, dispatch: Dispatch) -> None:
    graph, cluster, device = case(seed)
    measured = run(graph, cluster, np.zeros_like(device), dispatch)
    np.testing.assert_allclose(measured.step_time_s, op_time_s(graph, cluster)[:, 0].sum(), rtol=1e-12)
    assert measured.num_transfers == measured.transferred_bytes == 0
    assert measured.busy_s[0] == measured.bottleneck_s == measured.step_time_s


@law
@given(seed=seeds)
def test_inputs_are_not_modified_and_a_second_run_is_the_same(seed: int) -> None:
    graph, cluster, device = case(seed)
    before = graph.sha256, cluster.sha256, device.copy()
    one, other = run(graph, cluster, device, "ready_order"), run(graph, cluster, device, "ready_order")
    assert (graph.sha256, cluster.sha256) == before[:2]
    assert (device == before[2]).all()
    assert_same_times(one, other)


@law
@given(seed=seeds, dispatch=dispatches)
def test_memory_just_enough_is_enough_and_a_byte_less_is_a_status(seed: int, dispatch: Dispatch) -> None:
    graph, cluster, device = case(seed)
    peak = run(graph, cluster, device, dispatch).peak_memory_bytes
    exact = tuple(dataclasses.replace(at, memory_bytes=int(need)) for at, need in zip(cluster.devices, peak, strict=True))
    assert run(graph, dataclasses.replace(cluster, devices=exact), device, dispatch).status == Status.OK
    worst = int(peak.argmax())
    if peak[worst] == 0:
        return
    tight = (*exact[:worst], dataclasses.replace(exact[worst], memory_bytes=int(peak[worst]) - 1), *exact[worst + 1 :])
    over = run(graph, dataclasses.replace(cluster, devices=tight), device, dispatch)
    assert over.status == Status.OUT_OF_MEMORY
    assert over.step_time_s == over.bottleneck_s == over.step_time_low_s == over.step_time_high_s == np.inf
    assert f"device 'gpu{worst}'" in over.detail and ": 1 B too much" in over.detail
    assert (over.peak_memory_bytes == peak).all()


def test_threads_change_nothing() -> None:
    generator = np.random.default_rng(5)
    graph = seeded_graph(generator, num_ops=60)
    cluster = seeded_cluster(generator, num_devices=3)
    device = np.stack([seeded_device(generator, graph, cluster) for _ in range(37)])
    device[11, 3] = 99
    one = Simulator().batch(graph, cluster, device)
    assert one.status[11] == Status.INVALID
    for num_threads in (2, 3, 64):
        many = Simulator(num_threads=num_threads).batch(graph, cluster, device)
        for field in dataclasses.fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(many, field.name))
        assert len(Simulator(num_threads=num_threads).batch(graph, cluster, device[:0])) == 0


def test_a_forked_process_has_threads_of_its_own() -> None:
    generator = np.random.default_rng(6)
    graph, cluster = seeded_graph(generator, num_ops=30), seeded_cluster(generator, num_devices=3)
    device = np.stack([seeded_device(generator, graph, cluster) for _ in range(20)])
    simulator = Simulator(num_threads=2)
    here = simulator.batch(graph, cluster, device).step_time_s
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=lambda: send.send(simulator.batch(graph, cluster, device).step_time_s), daemon=True)
    child.start()
    try:
        assert receive.poll(60), "the child waits for threads that only its parent has"
        np.testing.assert_array_equal(receive.recv(), here)
    finally:
        child.kill()
        child.join()


def test_a_failing_batch_stops_its_threads_and_says_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(7)
    graph, cluster = seeded_graph(generator, num_ops=30), seeded_cluster(generator, num_devices=3)
    device = np.stack([seeded_device(generator, graph, cluster) for _ in range(64)])
    rows_taken: list[int] = []

    def failing(plan: object, rows: np.ndarray, *rest: object) -> None:
        rows_taken.append(len(rows))
        raise RuntimeError("the kernel failed")

    monkeypatch.setattr(simulator_module, "simulate_rows", failing)
    with pytest.raises(RuntimeError, match="the kernel failed"):
        Simulator(num_threads=4).batch(graph, cluster, device)
    assert sum(rows_taken) < len(device)
    monkeypatch.undo()
    again, alone = (Simulator(num_threads=number).batch(graph, cluster, device) for number in (4, 1))
    np.testing.assert_array_equal(again.peak_memory_bytes, alone.peak_memory_bytes)


def test_what_is_no_placement_is_a_status_with_a_sentence() -> None:
    graph, cluster, device = case(3)
    colocated = dataclasses.replace(graph, colocation_group=np.where(np.arange(graph.num_ops) < 2, 7, Graph.NO_GROUP).astype(np.int32))
    cluster = roomy(seeded_cluster(np.random.default_rng(0), num_devices=2))
    split, outside = np.zeros_like(device), np.zeros_like(device)
    split[1], outside[0] = 1, 2
    for wrong, parts in (
        (split, ["group 7", "'0'", "'1'", "gpu0", "gpu1"]),
        (outside, ["device 2", "'0'"]),
        (split[:-1], [str(graph.num_ops)]),
    ):
        measured = Simulator()(colocated, cluster, placement(wrong))
        assert measured.status == Status.INVALID
        assert measured.step_time_s == measured.bottleneck_s == np.inf
        assert all(part in measured.detail for part in parts), measured.detail
    negative = Simulator().batch(graph, cluster, np.full((1, graph.num_ops), -1, np.int32))
    assert negative.status.tolist() == [Status.INVALID] and "device -1" in negative.detail[0]


def test_wrong_settings_are_input_errors() -> None:
    graph, cluster, device = case(3)
    for simulator in (
        Simulator(dispatch="priority"),
        Simulator(rank=np.zeros(graph.num_ops)),
        Simulator(dispatch="priority", rank=np.zeros(graph.num_ops + 1)),
        Simulator(dispatch="priority", rank=np.full(graph.num_ops, np.nan)),
    ):
        with pytest.raises(InputError, match="rank"):
            simulator(graph, cluster, placement(device))
    with pytest.raises(InputError, match="num_threads"):
        Simulator(num_threads=0)


def test_times_that_no_double_holds_are_input_errors() -> None:
    generator = np.random.default_rng(1)
    graph, cluster = seeded_graph(generator, num_ops=20), seeded_cluster(generator, num_devices=2)
    still = dataclasses.replace(cluster, bandwidth_bytes_per_s=np.full((2, 2), 5e-324))
    with pytest.raises(InputError, match="longer than a double"):
        Simulator()(graph, still, placement(np.zeros(20)))
