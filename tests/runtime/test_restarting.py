import functools
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
from branching_net import CORES

from gdp.errors import InputError
from gdp.measurement import Status
from gdp.runtime import exclusive, restarting
from gdp.runtime.exclusive import Exclusive
from gdp.runtime.process import ChildFailed
from gdp.runtime.restarting import Devices, RestartingWorker

FIRST = Devices(cores=CORES[:1], gpus=())
REQUEST = {"command": "measure", "devices": ["one"], "candidate": [0], "incumbent": None, "protocol": {"max_pairs": 6, "max_warm_up": 1}}


@pytest.fixture(autouse=True)
def own_locks(monkeypatch, tmp_path):
    """No other test and no run of a user is waited for."""
    monkeypatch.setattr(exclusive, "FOLDER", tmp_path / "locks")


@pytest.fixture
def worker() -> Iterator[RestartingWorker]:
    started = RestartingWorker("light_worker", environment={}, timeout_s=60.0)
    yield started
    started.close()
    assert not started.folder.exists()


def test_one_worker_answers_until_the_program_or_the_devices_change(worker):
    pids = []
    for ops, devices in ((["a"], FIRST), (["a"], FIRST), (["b"], FIRST), (["b"], Devices(cores=CORES, gpus=("7",)))):
        assert len(worker.ask_about(ops, devices, REQUEST)["candidate_s"]) == 6
        pids.append(worker.pid)
    assert pids[0] == pids[1] and len(set(pids)) == 3
    worker.end()
    assert worker.pid is None


def test_a_worker_keeps_to_its_cores_and_to_a_part_of_the_memory(worker):
    worker.ask_about(["a"], FIRST, REQUEST)
    assert os.sched_getaffinity(worker.pid) == set(FIRST.cores)
    soft, hard = resource.prlimit(worker.pid, resource.RLIMIT_DATA)
    assert 0 < soft == hard < psutil.virtual_memory().total
    worker.ask_about(["a"], Devices(cores=FIRST.cores, gpus=("7",)), REQUEST)
    assert os.sched_getaffinity(worker.pid) == os.sched_getaffinity(0)  # threads that feed a GPU run anywhere


def test_a_system_without_room_for_files_is_the_user_s_to_mend(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="cannot write a folder for the measuring process: No such file"):
        RestartingWorker("light_worker", environment={}, timeout_s=60.0)


def test_what_lies_in_the_working_folder_is_not_executed(worker, monkeypatch, tmp_path):
    (tmp_path / "queue.py").write_text("raise SystemExit('executed')\n")
    monkeypatch.chdir(tmp_path)
    assert len(worker.ask_about(["a"], FIRST, REQUEST)["candidate_s"]) == 6


def test_a_worker_has_the_locks_open_so_that_they_outlive_its_parent(worker):
    worker.ask_about(["a"], FIRST, REQUEST)
    opened = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{worker.pid}/fd")]
    assert str(exclusive.FOLDER / f"core-{FIRST.cores[0]}") in opened


def test_a_measurement_waits_for_another_one_on_its_core(worker, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(restarting, "Exclusive", functools.partial(Exclusive, silent_s=0.0, tell=told.append))
    other = Exclusive(FIRST.cores)
    answers: list[dict] = []
    waiting = threading.Thread(target=lambda: answers.append(worker.ask_about(["a"], FIRST, REQUEST)))
    with other.held():
        waiting.start()
        while not told:
            time.sleep(0.01)
        assert told == [f"waiting for process {os.getpid()}, which measures on core-{FIRST.cores[0]}"]
        assert worker.pid is None and not answers
    waiting.join()
    other.close()
    assert len(answers) == 1


def test_an_answer_of_failure_ends_the_worker(worker):
    with pytest.raises(ChildFailed, match="KeyError: 'nonsense'") as caught:
        worker.ask_about(["a"], FIRST, {"command": "nonsense"})
    assert (caught.value.status, worker.pid) == (Status.FAILED, None)
    assert worker.ask_about(["a"], FIRST, REQUEST)["incumbent_s"] == []
