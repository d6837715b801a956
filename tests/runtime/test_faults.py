"""Two faults of every quick kind and one of every slow one; `benchmarks/faults.py` injects fifty of each."""

import tempfile
from collections.abc import Iterator

import numpy as np
import pytest
from branching_net import CORES, NAMES, branching_input, branching_program, core_cluster
from faults import FAULTS, FaultyRun, Left

from gdp.measurement import Status
from gdp.placement import Origin, Placement
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.timing import Protocol

pytestmark = pytest.mark.skipif(len(set(CORES)) < 2, reason="needs two cores")

CAPTURED = branching_program()
CLUSTER = core_cluster(NAMES)
ONE = Placement(device=np.zeros(CAPTURED.graph.num_ops, np.int32), origin=Origin(placer="test"))


@pytest.fixture(scope="module")
def run() -> Iterator[FaultyRun]:
    protocol = Protocol(max_warm_up=5, max_pairs=6)
    with PyTorchRuntime(CAPTURED.program, (branching_input(),), timeout_s=4.0, protocol=protocol) as runtime:
        yield FaultyRun(runtime, CAPTURED.graph, CLUSTER, ONE, np.random.default_rng(0))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_status_and_the_run_goes_on(run, name):
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


def test_nothing_is_left_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = Left.now()
    with PyTorchRuntime(CAPTURED.program, (branching_input(),), timeout_s=4.0) as runtime:
        faulty = FaultyRun(runtime, CAPTURED.graph, CLUSTER, ONE, np.random.default_rng(1))
        assert faulty.measure().status == Status.OK
        assert len(list(tmp_path.iterdir())) == 1
        assert faulty.with_fault("segmentation fault, child left")[0].status == Status.FAILED
    assert Left.now() == before
    assert list(tmp_path.iterdir()) == []
