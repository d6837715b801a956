"""Two faults of every kind that needs no framework, one each of the kinds that need torch; `benchmarks/faults.py` injects fifty of each into the worker of PyTorch programs."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from branching_net import CORES, NAMES, branching_input, branching_program, core_cluster
from faults import FAULTS, OF_TORCH, FaultyRun, Left

from gdp.measurement import Status
from gdp.placement import Origin, Placement
from gdp.runtime import exclusive
from gdp.runtime.core_sets import cores_of
from gdp.runtime.measuring import Measuring
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.restarting import RestartingWorker
from gdp.runtime.timing import Protocol

pytestmark = pytest.mark.skipif(len(set(CORES)) < 2, reason="needs two cores")

CAPTURED = branching_program()
CLUSTER = core_cluster(NAMES)
ONE = Placement(device=np.zeros(CAPTURED.graph.num_ops, np.int32), origin=Origin(placer="test"))
QUICK = Protocol(max_warm_up=5, max_pairs=6)


@pytest.fixture(scope="module", autouse=True)
def own_locks(tmp_path_factory) -> Iterator[None]:
    """No other test and no run of a user is waited for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exclusive, "FOLDER", tmp_path_factory.mktemp("faults") / "locks")
        yield


@contextmanager
def light_run() -> Iterator[FaultyRun]:
    worker = RestartingWorker("light_worker", environment={}, timeout_s=60.0)
    measuring = Measuring(worker, nodes=CAPTURED.graph.name, check_device=cores_of, protocol=QUICK, incumbent=None)
    yield FaultyRun(lambda: measuring.measure(CAPTURED.graph, CLUSTER, ONE), worker, CORES, np.random.default_rng(0))
    worker.close()


@contextmanager
def torch_run() -> Iterator[FaultyRun]:
    with PyTorchRuntime(CAPTURED.program, (branching_input(),), timeout_s=60.0, protocol=QUICK) as runtime:
        runtime._worker._module = "faulty_worker"
        yield FaultyRun(lambda: runtime(CAPTURED.graph, CLUSTER, ONE), runtime._worker, CORES, np.random.default_rng(0))


@pytest.fixture(scope="module")
def light() -> Iterator[FaultyRun]:
    with light_run() as run:
        yield run


@pytest.fixture(scope="module")
def with_torch() -> Iterator[FaultyRun]:
    with torch_run() as run:
        yield run


def check_survived(run: FaultyRun, name: str) -> None:
    assert run.measure().status == Status.OK
    before = Left.now()
    failed, replaced = run.with_fault(name)
    assert failed.status == FAULTS[name].status and FAULTS[name].detail in failed.detail
    assert replaced
    assert run.is_free()
    after = run.measure()
    assert (after.status, after.num_runs) == (Status.OK, 6)
    left = Left.now()
    assert (left.descriptors, left.threads, len(left.processes)) == (before.descriptors, before.threads, len(before.processes))


@pytest.mark.parametrize("name", [name for name in FAULTS if name not in OF_TORCH])
def test_a_fault_is_a_status_and_the_run_goes_on(light, name):
    for _ in range(2):
        check_survived(light, name)


@pytest.mark.parametrize("name", ["host memory refused", "CUDA launch failure", "CUDA out of memory", "segmentation fault"])
def test_a_fault_of_a_pytorch_program_is_a_status_and_the_run_goes_on(with_torch, name):
    check_survived(with_torch, name)


def test_nothing_is_left_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = Left.now()
    with light_run() as run:
        assert run.measure().status == Status.OK
        assert len(list(tmp_path.iterdir())) == 1
        assert run.with_fault("segmentation fault, child left")[0].status == Status.FAILED
    assert Left.now() == before
    assert list(tmp_path.iterdir()) == []
