import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from branching_net import CORES, NAMES, branching_input, branching_program, core_cluster

from gdp.errors import InputError
from gdp.measurement import Status
from gdp.placement import Origin, Placement
from gdp.runtime import exclusive
from gdp.runtime.core_sets import cores_of
from gdp.runtime.journal import Measured
from gdp.runtime.measuring import Measuring
from gdp.runtime.pool import Pool, Seat, check_seats, measured_each
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.restarting import RestartingWorker
from gdp.runtime.timing import Protocol

pytestmark = pytest.mark.skipif(CORES != (0, 1), reason="needs the cores 0 and 1")

CAPTURED = branching_program()
NUM_OPS = CAPTURED.graph.num_ops
CLUSTER = core_cluster(["cpu:0", "cpu:2"])
SEATS = (("cpu:0", "cpu:2"), ("cpu:1", "cpu:3"))
"""The second one is half as fast."""
QUICK = Protocol(max_warm_up=1, max_pairs=6)


@pytest.fixture(autouse=True)
def own_place(monkeypatch, tmp_path) -> None:
    """Locks and files of these tests alone, and two cores more than there may be: no step of the worker computes anything."""
    monkeypatch.setattr(exclusive, "FOLDER", tmp_path / "locks")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})


@contextmanager
def measuring_processes(count: int, *, timeout_s: float = 60.0) -> Iterator[list[Measuring]]:
    workers = [RestartingWorker("seat_worker", environment={}, timeout_s=timeout_s) for _ in range(count)]
    try:
        yield [Measuring(worker, nodes=CAPTURED.graph.name, check_device=cores_of, protocol=QUICK, incumbent=None) for worker in workers]
    finally:
        for worker in workers:
            worker.close()


@contextmanager
def two_seats() -> Iterator[Pool]:
    with measuring_processes(2) as measuring:
        yield Pool([Seat(runtime=one, devices=devices) for one, devices in zip(measuring, SEATS, strict=True)])


def rows(*ops_away: list[int]) -> np.ndarray:
    """Placements with these ops on device 1."""
    device = np.zeros((len(ops_away), NUM_OPS), np.int32)
    for row, ops in enumerate(ops_away):
        device[row, ops] = 1
    return device


def seconds(device: np.ndarray) -> list[float]:
    """What the first seat's worker tells of these placements."""
    return (1.0 + device.sum(axis=1)).tolist()


def test_placements_are_measured_at_the_same_time_and_on_one_scale():
    device = rows([1, 2, 3], [NUM_OPS - 1], [0, 4], [1], [])
    with two_seats() as pool:
        order = [row for row, _ in pool.each(CAPTURED.graph, CLUSTER, device)]
        again = pool.batch(CAPTURED.graph, CLUSTER, device)
    assert order[0] == 0 and order.index(1) > order.index(2)  # the second waits for the third, which another seat measures meanwhile
    assert sorted(order) == [0, 1, 2, 3, 4]
    assert again.status.tolist() == [Status.OK] * 5
    assert again.step_time_s.tolist() == pytest.approx(seconds(device))


def test_the_incumbent_of_a_batch_is_its_fastest_and_the_next_one_s_scale():
    device = rows([1, 2, 3], [2], [2, 3])
    with two_seats() as pool:
        pool.batch(CAPTURED.graph, CLUSTER, device)
        (incumbent,) = pool._incumbent.values()
    assert (incumbent.device == device[1]).all() and incumbent.measurement.step_time_s == pytest.approx(2.0)


def test_a_scale_goes_on_from_an_earlier_run():
    anchor = rows([1, 2, 3])[0]
    with measuring_processes(1) as (alone,):
        measurement = alone.against(CAPTURED.graph, CLUSTER, Placement(device=anchor, origin=Origin(placer="test")), None)
    with measuring_processes(1) as (slow,):
        pool = Pool([Seat(runtime=slow, devices=SEATS[1])], incumbent=Measured(device=anchor, measurement=measurement))
        assert pool.batch(CAPTURED.graph, CLUSTER, rows([5])).step_time_s.tolist() == pytest.approx([2.0])


def test_a_worker_that_ends_costs_its_own_placement_alone():
    device = rows([1], list(range(NUM_OPS)), [2, 3], [4], [5])
    with two_seats() as pool:
        measured = pool.batch(CAPTURED.graph, CLUSTER, device)
        after = pool.batch(CAPTURED.graph, CLUSTER, device[2:])
    assert measured.status.tolist() == [Status.OK, Status.FAILED, Status.OK, Status.OK, Status.OK]
    assert "SIGSEGV" in measured.detail[1]
    assert after.step_time_s.tolist() == pytest.approx(seconds(device[2:]))


def test_the_first_placement_that_runs_is_measured_with_nobody_beside_it():
    device = rows(list(range(NUM_OPS)), [2], [3, 4])
    with two_seats() as pool:
        order = [row for row, _ in pool.each(CAPTURED.graph, CLUSTER, device)]
        (incumbent,) = pool._incumbent.values()
    assert order == [0, 1, 2] and (incumbent.device == device[1]).all()


def test_a_seat_measures_on_its_own_devices():
    with measuring_processes(1) as (slow,):
        pool = Pool([Seat(runtime=slow, devices=SEATS[1])])
        assert pool.batch(CAPTURED.graph, CLUSTER, rows([1], [2, 3])).step_time_s.tolist() == pytest.approx([4.0, 6.0])


def test_what_was_not_begun_when_the_caller_stops_is_not_measured():
    with measuring_processes(2) as measuring:
        pool = Pool([Seat(runtime=one, devices=devices) for one, devices in zip(measuring, SEATS, strict=True)])
        measured = pool.each(CAPTURED.graph, CLUSTER, rows(*([op] for op in range(NUM_OPS - 1))))
        first, second = next(measured), next(measured)
        measured.close()
        assert first[0] == 0 and second[0] > 0
        assert sum(one._num_measured for one in measuring) < NUM_OPS - 2


def test_a_refusal_in_a_seat_is_the_caller_s():
    other = branching_program(num_branches=4).graph
    with two_seats() as pool, pytest.raises(InputError, match="which the program has not"):
        pool.batch(other, CLUSTER, np.zeros((4, other.num_ops), np.int32))


@pytest.mark.parametrize(
    ("devices", "sentence"),
    [
        ([("cpu:0",), ("cpu:1", "cpu:2")], "are 2 devices to measure on beside the cluster's 1"),
        ([("cpu:0",), ("cpu:1-2",)], "'cpu:1-2' is not like 'cpu:0', whose part it is to take: 2 cores, not 1 core"),
        ([("cpu:0-1",), ("cpu:1,2",)], "'cpu:0-1' and 'cpu:1,2' to measure on side by side share core 1"),
        ([("cpu:0",), ("gpu0",)], "'gpu0' is not a device that programs run on"),
    ],
)
def test_seats_must_be_alike_and_apart(devices, sentence):
    with pytest.raises(InputError, match=sentence):
        check_seats(devices)


def test_other_runtimes_measure_one_after_the_other():
    with measuring_processes(1) as (alone,):
        measured = list(measured_each(alone.measure, CAPTURED.graph, CLUSTER, rows([1], [2, 3])))
    assert [row for row, _ in measured] == [0, 1]
    assert [measurement.step_time_s for _, measurement in measured] == pytest.approx([2.0, 3.0])


def test_real_programs_run_side_by_side(monkeypatch):
    monkeypatch.undo()
    cluster = core_cluster(NAMES[:1])
    placements = np.zeros((3, NUM_OPS), np.int32)
    with (
        PyTorchRuntime(CAPTURED.program, (branching_input(),), protocol=QUICK, memory_share=0.5) as first,
        PyTorchRuntime(CAPTURED.program, (branching_input(),), protocol=QUICK, memory_share=0.5) as second,
    ):
        pool = Pool([Seat(runtime=first, devices=("cpu:0",)), Seat(runtime=second, devices=("cpu:1",))])
        measured = pool.batch(CAPTURED.graph, cluster, placements)
        assert first.worker_pid is not None and second.worker_pid is not None
    assert measured.status.tolist() == [Status.OK] * 3, measured.detail
