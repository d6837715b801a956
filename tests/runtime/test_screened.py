import dataclasses
import json
import os

import numpy as np
import pytest
from branching_net import core_cluster

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch, Status
from gdp.placement import Origin, Placement
from gdp.runtime.journal import Journal, Measured, key_of
from gdp.runtime.screened import ScreenedRuntime
from gdp.runtime.simulator import Simulator

SLOWDOWN = 3.0
"""The measured machine needs this many times the predicted seconds."""


def graph_of(num_ops: int = 8) -> Graph:
    """Op `i` takes from op `i - 2`: two chains. Seconds are powers of two, so that sums are exact."""
    edges = [(op, op + 2) for op in range(num_ops - 2)]
    return Graph(
        op_type=("mul",) * num_ops,
        name=tuple(f"op{op}" for op in range(num_ops)),
        module_path=("",) * num_ops,
        flops=np.ones(num_ops),
        accessed_bytes=np.ones(num_ops, np.int64),
        param_bytes=np.zeros(num_ops, np.int64),
        temp_bytes=np.zeros(num_ops, np.int64),
        phase=np.zeros(num_ops, np.int8),
        colocation_group=np.full(num_ops, Graph.NO_GROUP, np.int32),
        tensor_producer=np.arange(num_ops, dtype=np.int32),
        tensor_bytes=np.zeros(num_ops, np.int64),
        tensor_shape=((0,),) * num_ops,
        tensor_dtype=("float32",) * num_ops,
        edge_tensor=np.array([producer for producer, _ in edges], np.int32),
        edge_consumer=np.array([consumer for _, consumer in edges], np.int32),
        source="two chains",
        measured_time_s={"core": 2.0 ** np.arange(num_ops)},
    )


GRAPH = graph_of()
CLUSTER = core_cluster(["gpu0", "gpu1"])


class SlowMachine:
    """A runtime that takes `SLOWDOWN` times as long as predicted (links aside), and remembers what it ran."""

    def __init__(self) -> None:
        self.ran: list[tuple[int, ...]] = []

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        self.ran.append(tuple(placement.device.tolist()))
        slow = dataclasses.replace(cluster, latency_s=cluster.latency_s * SLOWDOWN)
        return Simulator()(graph.with_measured_time({"core": graph.measured_time_s["core"] * SLOWDOWN}), slow, placement)

    def batch(self, graph: Graph, cluster: Cluster, device: np.ndarray) -> MeasurementBatch:
        raise AssertionError("one at a time")


def batches(seed: int, count: int = 3) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.integers(0, 2, (10, GRAPH.num_ops)).astype(np.int32) for _ in range(count)]


def same(left: MeasurementBatch, right: MeasurementBatch) -> bool:
    return all(np.array_equal(getattr(left, field.name), getattr(right, field.name)) for field in dataclasses.fields(left))


def test_the_most_promising_rows_are_measured_and_the_others_corrected(tmp_path):
    (device,) = batches(0, 1)
    predicted = Simulator().batch(GRAPH, CLUSTER, device)
    machine = SlowMachine()
    with Journal(tmp_path / "journal.jsonl") as journal:
        screened = ScreenedRuntime(predictor=Simulator(), runtime=machine, measured_per_batch=3, journal=journal)
        answer = screened.batch(GRAPH, CLUSTER, device)
    best = np.argsort(predicted.step_time_s, kind="stable")[:3]
    assert machine.ran == [tuple(device[row].tolist()) for row in best]
    assert sorted(np.flatnonzero(answer.num_runs).tolist()) == sorted(best.tolist())
    assert (screened.num_measured, screened.correction) == (3, pytest.approx(SLOWDOWN))
    assert answer.step_time_s == pytest.approx(predicted.step_time_s * SLOWDOWN)
    assert answer.busy_s == pytest.approx(predicted.busy_s * SLOWDOWN)
    assert screened.best is not None and np.array_equal(screened.best.device, device[best[0]])


def test_nothing_is_measured_twice(tmp_path):
    device = np.zeros((5, GRAPH.num_ops), np.int32)
    device[3:] = 1
    machine = SlowMachine()
    with Journal(tmp_path / "journal.jsonl") as journal:
        screened = ScreenedRuntime(predictor=Simulator(), runtime=machine, measured_per_batch=4, journal=journal)
        first = screened.batch(GRAPH, CLUSTER, device)
        second = screened.batch(GRAPH, CLUSTER, device)
        single = screened(GRAPH, CLUSTER, Placement(device=device[4].copy(), origin=Origin(placer="test")))
    assert len(machine.ran) == 2
    assert same(first, second)
    assert single.step_time_s == first.step_time_s[4]


def test_a_run_with_the_journal_of_another_goes_through_the_same_numbers(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        screened = ScreenedRuntime(predictor=Simulator(), runtime=SlowMachine(), measured_per_batch=2, journal=journal)
        answers = [screened.batch(GRAPH, CLUSTER, device) for device in batches(4)]
    machine = SlowMachine()
    with Journal(path) as journal:
        again = ScreenedRuntime(predictor=Simulator(), runtime=machine, measured_per_batch=2, journal=journal)
        assert all(same(again.batch(GRAPH, CLUSTER, device), answer) for device, answer in zip(batches(4), answers, strict=True))
    assert not machine.ran
    assert list(again.state().items()) == list(screened.state().items())


def test_a_snapshot_goes_on_as_if_nothing_had_been(tmp_path):
    with Journal(tmp_path / "journal.jsonl") as journal:
        screened = ScreenedRuntime(predictor=Simulator(), runtime=SlowMachine(), measured_per_batch=2, journal=journal)
        for device in batches(7)[:2]:
            screened.batch(GRAPH, CLUSTER, device)
        state = json.loads(json.dumps(screened.state()))
        expected = screened.batch(GRAPH, CLUSTER, batches(7)[2])
        resumed = ScreenedRuntime(predictor=Simulator(), runtime=SlowMachine(), measured_per_batch=2, journal=journal)
        resumed.restore(state)
        assert same(resumed.batch(GRAPH, CLUSTER, batches(7)[2]), expected)
    with Journal(tmp_path / "empty.jsonl") as journal, pytest.raises(InputError, match="lacks the measurement"):
        ScreenedRuntime(predictor=Simulator(), runtime=SlowMachine(), measured_per_batch=2, journal=journal).restore(state)


def test_what_is_predicted_not_to_run_is_not_tried(tmp_path):
    device = np.full((2, GRAPH.num_ops), 5, np.int32)
    with Journal(tmp_path / "journal.jsonl") as journal:
        screened = ScreenedRuntime(predictor=Simulator(), runtime=SlowMachine(), measured_per_batch=2, journal=journal)
        answer = screened.batch(GRAPH, CLUSTER, device)
        assert answer.status.tolist() == [Status.INVALID] * 2
        assert answer.num_runs.tolist() == [0, 0]
        assert (screened.num_measured, screened.best) == (0, None)
        with pytest.raises(InputError, match="at least 1"):
            ScreenedRuntime(predictor=Simulator(), runtime=SlowMachine(), measured_per_batch=0, journal=journal)


def measured_row(device: np.ndarray) -> Measured:
    placement = Placement(device=device.copy(), origin=Origin(placer="test"))
    return Measured(device=placement.device, measurement=SlowMachine()(GRAPH, CLUSTER, placement))


def written(path, *, count: int) -> list[Measured]:
    rows = [measured_row(device) for device in batches(9, 1)[0][:count]]
    with Journal(path) as journal:
        for row in rows:
            journal.append(GRAPH, CLUSTER, row)
    return rows


def test_a_journal_gives_back_what_was_written(tmp_path):
    path = tmp_path / "journal.jsonl"
    rows = written(path, count=3)
    failed = dataclasses.replace(
        rows[0].measurement,
        status=Status.FAILED,
        detail="no",
        step_time_s=np.inf,
        step_time_low_s=np.inf,
        step_time_high_s=np.inf,
        bottleneck_s=np.inf,
    )
    with Journal(path) as journal:
        device = batches(9, 1)[0][5]
        journal.append(GRAPH, CLUSTER, Measured(device=device, measurement=failed))
    with Journal(path) as journal:
        assert len(journal) == 4
        for row in [*rows, Measured(device=device, measurement=failed)]:
            found = journal.find(key_of(GRAPH, CLUSTER, row.device))
            assert found is not None and found.measurement.timeline is None
            for field in dataclasses.fields(Measurement):
                assert np.array_equal(getattr(found.measurement, field.name), getattr(row.measurement, field.name)), field.name
        best = journal.incumbent(GRAPH, CLUSTER)
        assert best is not None and best.measurement.step_time_s == min(row.measurement.step_time_s for row in rows)
        assert journal.incumbent(graph_of(4), CLUSTER) is None


def test_the_incumbent_is_not_the_lucky_one(tmp_path):
    """Of equal placements the fastest measurement is one that was low by chance; the scale goes on from one that was surely faster than the one before it."""
    rows = [measured_row(device) for device in batches(9, 1)[0][:4]]
    times = [(1.0, 0.9, 1.1), (0.97, 0.9, 1.05), (0.5, 0.45, 0.55), (0.49, 0.44, 0.54)]
    with Journal(tmp_path / "journal.jsonl") as journal:
        for row, (median, low, high) in zip(rows, times, strict=True):
            timed = dataclasses.replace(row.measurement, step_time_s=median, step_time_low_s=low, step_time_high_s=high)
            journal.append(GRAPH, CLUSTER, Measured(device=row.device, measurement=timed))
        incumbent = journal.incumbent(GRAPH, CLUSTER)
        assert incumbent is not None and incumbent.measurement.step_time_s == 0.5


def test_every_cut_of_the_last_line_is_survived(tmp_path):
    path = tmp_path / "journal.jsonl"
    rows = written(path, count=2)
    content = path.read_bytes()
    second = content.index(b"\n") + 1
    for length in range(second, len(content), 37):
        path.write_bytes(content[:length])
        with Journal(path) as journal:
            assert len(journal) == 1
            journal.append(GRAPH, CLUSTER, rows[1])
        assert path.read_bytes() == content


@pytest.mark.parametrize("line", [b"{}", b"nonsense", b"[1]", b"\xff\xfe", b'{"graph": 3}'])
def test_a_wrong_line_is_an_error(tmp_path, line):
    path = tmp_path / "journal.jsonl"
    written(path, count=1)
    path.write_bytes(line + b"\n" + path.read_bytes())
    with pytest.raises(InputError, match="line 1 of the journal"):
        Journal(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step_time_s": 0.0}, "its step_time_s is 0.0"),
        ({"step_time_s": None}, "its step_time_s is None"),
        ({"bottleneck_s": None}, "its bottleneck_s None"),
        ({"device": [0, 1, 0, 1, 0, 1, 0, 2]}, "not all of its ops are on the 2 devices"),
        ({"busy_s": [0.5]}, "1 values of busy_s but 2 of peak_memory_bytes"),
    ],
)
def test_a_line_that_contradicts_itself_is_an_error(tmp_path, change, message):
    path = tmp_path / "journal.jsonl"
    written(path, count=1)
    path.write_text(json.dumps(json.loads(path.read_text()) | change) + "\n")
    with pytest.raises(InputError, match=message):
        Journal(path)


def test_a_placement_of_another_length_is_an_error(tmp_path):
    path = tmp_path / "journal.jsonl"
    written(path, count=1)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"device": [0, 1]}) + "\n")
    with Journal(path) as journal, pytest.raises(InputError, match="a placement of 2 ops .* for a graph of 8 ops"):
        journal.incumbent(GRAPH, CLUSTER)


def test_a_journal_is_a_regular_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("")
    for path, message in (
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "file" / "x", "cannot open"),
    ):
        with pytest.raises(InputError, match=message):
            Journal(path)


def test_a_journal_has_one_writer(tmp_path):
    path = tmp_path / "journal.jsonl"
    with Journal(path), pytest.raises(InputError, match="in use"):
        Journal(path)
    with Journal(path):
        pass
