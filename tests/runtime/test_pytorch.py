import os
import signal
import tempfile

import numpy as np
import pytest
import torch
from branching_net import CORES, NAMES, BranchingNet, branching_input, branching_program, core_cluster

from gdp.capture.torch import capture
from gdp.errors import InputError
from gdp.measurement import Measurement, Status
from gdp.placement import Origin, Placement
from gdp.runtime.core_sets import cores_of
from gdp.runtime.journal import Measured
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import Protocol

pytestmark = pytest.mark.skipif(len(set(CORES)) < 2, reason="needs two cores")

CAPTURED = branching_program()
GRAPH = CAPTURED.graph
CLUSTER = core_cluster(NAMES)
QUICK = Protocol(max_warm_up=1, max_pairs=6)


def placed(device: np.ndarray) -> Placement:
    return Placement(device=device.astype(np.int32), origin=Origin(placer="test"))


ONE = placed(np.zeros(GRAPH.num_ops))


def together(device: np.ndarray) -> np.ndarray:
    """The placement with colocation groups united on the device of their first op."""
    first: dict[int, int] = {}
    return np.array(
        [device[first.setdefault(group, op)] if group >= 0 else device[op] for op, group in enumerate(GRAPH.colocation_group.tolist())],
        np.int32,
    )


@pytest.fixture(scope="module")
def runtime():
    with PyTorchRuntime(CAPTURED.program, (branching_input(),), timeout_s=60.0, protocol=QUICK) as running:
        yield running


def check_ok(measurement: Measurement) -> None:
    assert (measurement.status, measurement.detail, measurement.num_runs) == (Status.OK, "", 6)
    assert 0 < measurement.step_time_low_s <= measurement.step_time_s <= measurement.step_time_high_s < np.inf
    assert measurement.bottleneck_s == measurement.busy_s.max() > 0


def test_a_batch_of_any_placements_runs(runtime):
    generator = np.random.default_rng(2)
    device = np.stack([together(generator.integers(0, 2, GRAPH.num_ops).astype(np.int32)) for _ in range(3)])
    measured = runtime.batch(GRAPH, CLUSTER, device)
    simulated = Simulator().batch(GRAPH, CLUSTER, device)
    for row in range(len(device)):
        check_ok(measured[row])
    assert np.array_equal(measured.num_transfers, simulated.num_transfers)
    assert np.array_equal(measured.transferred_bytes, simulated.transferred_bytes)


def test_one_device_has_no_transfers_and_leaves_the_other_idle(runtime):
    measurement = runtime(GRAPH, CLUSTER, ONE)
    check_ok(measurement)
    assert (measurement.num_transfers, measurement.transferred_bytes, measurement.busy_s[1]) == (0, 0, 0.0)


def test_a_placement_outside_the_cluster_is_invalid(runtime):
    measurement = runtime(GRAPH, CLUSTER, placed(np.full(GRAPH.num_ops, 2)))
    assert (measurement.status, measurement.step_time_s) == (Status.INVALID, np.inf)


def test_a_killed_worker_is_a_failure_and_the_next_measurement_works(runtime):
    check_ok(runtime(GRAPH, CLUSTER, ONE))
    os.kill(runtime.worker_pid, signal.SIGKILL)
    failed = runtime(GRAPH, CLUSTER, ONE)
    assert (failed.status, failed.step_time_s) == (Status.FAILED, np.inf)
    assert "SIGKILL" in failed.detail
    check_ok(runtime(GRAPH, CLUSTER, ONE))


def test_a_stopped_worker_runs_out_of_time_and_the_next_measurement_works():
    with PyTorchRuntime(CAPTURED.program, (branching_input(),), timeout_s=8.0, protocol=QUICK) as runtime:
        check_ok(runtime(GRAPH, CLUSTER, ONE))
        stopped = runtime.worker_pid
        os.kill(stopped, signal.SIGSTOP)
        assert runtime(GRAPH, CLUSTER, ONE).status == Status.TIMED_OUT
        assert not os.path.exists(f"/proc/{stopped}")
        check_ok(runtime(GRAPH, CLUSTER, ONE))


def test_an_incumbent_of_an_earlier_run_carries_its_scale(runtime):
    earlier = Measured(
        device=ONE.device, measurement=Simulator()(GRAPH.with_measured_time({"core": np.full(GRAPH.num_ops, 1e6)}), CLUSTER, ONE)
    )
    scale_s = earlier.measurement.step_time_s
    with PyTorchRuntime(CAPTURED.program, (branching_input(),), timeout_s=60.0, protocol=QUICK, incumbent=earlier) as resumed:
        measurement = resumed(GRAPH, CLUSTER, ONE)
    # the same placement in turn with itself: the ratio is about 1, the seconds about those of the earlier run, millions
    assert scale_s / 20 < measurement.step_time_s < scale_s * 20


def test_a_comparison_runs_the_pairs_it_is_told(runtime):
    comparison = runtime.compare(GRAPH, CLUSTER, ONE, ONE, num_pairs=8)
    assert comparison is not None
    assert comparison.num_pairs in (8, 32)  # four times as many where eight were too noisy to tell
    assert comparison.low <= comparison.ratio <= comparison.high
    with PyTorchRuntime(CAPTURED.program, (branching_input(),), timeout_s=60.0, protocol=Protocol(max_warm_up=1, max_time_s=0.0)) as hasty:
        hurried = hasty.compare(GRAPH, CLUSTER, ONE, ONE, num_pairs=8)
        assert hurried is not None and hurried.num_pairs in (8, 32)
    with pytest.raises(InputError, match="second placement"):
        runtime.compare(GRAPH, CLUSTER, ONE, placed(np.full(GRAPH.num_ops, 2)))


def test_the_unplaced_program_on_all_cores_is_a_device_of_its_own(runtime):
    comparison = runtime.compare_with_all_cores(GRAPH, CLUSTER, ONE, num_pairs=8)
    if len({core for device in CLUSTER.devices for core in cores_of(device.name)}) < 2:
        assert comparison is None
    else:
        assert comparison is not None and comparison.num_pairs == 8
        assert comparison.candidate_s > 0 and comparison.incumbent_s > 0
    check_ok(runtime(GRAPH, CLUSTER, ONE))  # the worker is back on the cluster's own devices


def test_a_comparison_whose_worker_ends_has_no_answer(runtime):
    check_ok(runtime(GRAPH, CLUSTER, ONE))
    os.kill(runtime.worker_pid, signal.SIGKILL)
    assert runtime.compare(GRAPH, CLUSTER, ONE, ONE, num_pairs=8) is None
    check_ok(runtime(GRAPH, CLUSTER, ONE))


def test_a_program_that_cannot_be_saved_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    captured = capture(torch.nn.ReLU(), (torch.ones(2),))
    broken = torch.ones(2, requires_grad=True).exp()
    broken.detach = None  # type: ignore[method-assign] # what is saved calls it
    with pytest.raises(TypeError):
        PyTorchRuntime(captured.program, (broken,))
    assert list(tmp_path.iterdir()) == []


def test_a_profile_has_a_time_for_every_op_that_works(runtime):
    profile = runtime.profile(GRAPH, CLUSTER, num_steps=3)
    seconds = profile["core"]
    assert np.array_equal(seconds > 0, GRAPH.works)
    assert GRAPH.with_measured_time(profile).measured_time_s["core"] is not None


def test_a_program_without_weights_runs_on_random_ones():
    with torch.device("meta"):
        net = BranchingNet(num_branches=2, channels=4).eval()
    x = torch.empty((2, 4, 6, 6), device="meta")
    captured = capture(net, (x,))
    alternating = placed(np.zeros(captured.graph.num_ops))
    with PyTorchRuntime(captured.program, (x,), timeout_s=60.0, protocol=QUICK) as runtime:
        check_ok(runtime(captured.graph, CLUSTER, alternating))


def test_a_program_that_draws_random_numbers_is_checked_and_timed():
    captured = capture(
        torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5), torch.nn.Dropout(0.5)).train(), (torch.ones(2, 4),)
    )
    with PyTorchRuntime(captured.program, (torch.ones(2, 4),), timeout_s=60.0, protocol=QUICK) as runtime:
        for device in ([0] * captured.graph.num_ops, [number % 2 for number in range(captured.graph.num_ops)]):
            check_ok(runtime(captured.graph, CLUSTER, placed(np.array(device))))


def test_user_mistakes_are_told():
    with pytest.raises(InputError, match="example inputs"):
        PyTorchRuntime(CAPTURED.program, (branching_input(), 3))
    with PyTorchRuntime(CAPTURED.program, (branching_input(),)) as runtime:
        with pytest.raises(InputError, match="'gpu0' is not a device"):
            runtime(GRAPH, core_cluster(["gpu0"]), ONE)
        with pytest.raises(InputError, match="share core"):
            runtime(GRAPH, core_cluster([f"cpu:{CORES[0]}", f"cpu:{CORES[0]}-{CORES[0]}"]), ONE)
        other = capture(torch.nn.Tanh(), (torch.ones(2),)).graph
        with pytest.raises(InputError, match="captured from this program"):
            runtime(other, CLUSTER, placed(np.zeros(other.num_ops)))
        assert runtime.worker_pid is None
