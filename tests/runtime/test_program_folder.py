"""Folders of killed processes go, those in use and those of others stay."""

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from branching_net import CORES

from gdp.runtime.program_folder import ProgramFolder, remove_abandoned

ALONE = """
import sys, time
from gdp.runtime.program_folder import ProgramFolder
folder = ProgramFolder()
(folder.path / "program").write_text("x")
print(folder.path, flush=True)
time.sleep(600)
"""

WITH_A_WORKER = f"""
import sys, time
from pathlib import Path
from gdp.runtime import exclusive
from gdp.runtime.restarting import Devices, RestartingWorker
exclusive.FOLDER = Path(sys.argv[1])
worker = RestartingWorker("light_worker", environment={{}}, timeout_s=60.0)
protocol = {{"max_pairs": 6, "max_warm_up": 1}}
request = {{"command": "measure", "devices": ["one"], "candidate": [0], "incumbent": None, "protocol": protocol}}
worker.ask_about(["a"], Devices(cores={CORES[:1]!r}, gpus=()), request)
print(worker.folder, worker.pid, flush=True)
time.sleep(600)
"""

STARTING = """
import sys
from gdp.runtime.program_folder import ProgramFolder
for _ in range(200):
    one = ProgramFolder()
    (one.path / "program").write_text("x")
    other = ProgramFolder()
    assert (one.path / "program").exists() and other.path.exists()
    one.close()
    other.close()
"""


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder


def started(program: str, *arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})


def first_line(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def test_the_folder_of_a_killed_process_goes_when_the_next_one_starts(temporary: Path) -> None:
    process = started(ALONE)
    with process:
        folder = Path(*first_line(process))
        ProgramFolder().close()
        assert (folder / "program").exists()  # in use
        process.kill()
    assert (folder / "program").exists()
    own = ProgramFolder()
    assert list(temporary.iterdir()) == [own.path]
    own.close()
    own.close()
    assert list(temporary.iterdir()) == []


def test_a_worker_that_outlives_its_parent_keeps_its_folder_and_removes_it_itself(tmp_path: Path) -> None:
    process = started(WITH_A_WORKER, str(tmp_path / "locks"))
    with process:
        folder, pid = first_line(process)
        os.kill(int(pid), signal.SIGSTOP)
        while psutil.Process(int(pid)).status() != psutil.STATUS_STOPPED:  # on a busy machine it goes on for a moment
            time.sleep(0.001)
        process.kill()
    try:
        ProgramFolder().close()
        assert Path(folder).exists()
    finally:
        os.kill(int(pid), signal.SIGCONT)
    deadline = time.monotonic() + 60
    while Path(folder).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(folder).exists()


def test_what_nobody_made_as_such_a_folder_stays(temporary: Path, tmp_path: Path) -> None:
    abandoned = temporary / "gdp-abandoned"
    kept = [temporary / name for name in (f"gdp-{os.getuid()}", "gdp-fuzz-a", "other", "gdp-pipe", "gdp-link-to-lock")]
    elsewhere = tmp_path / "elsewhere"
    for folder in (abandoned, *kept, elsewhere):
        folder.mkdir()
    for folder in (abandoned, temporary / "other", elsewhere):
        (folder / "folder-in-use").touch()
    (kept[0] / "core-0").touch()
    os.mkfifo(temporary / "gdp-pipe" / "folder-in-use")
    (temporary / "gdp-link-to-lock" / "folder-in-use").symlink_to(elsewhere / "folder-in-use")
    link, file = temporary / "gdp-link", temporary / "gdp-file"
    link.symlink_to(elsewhere)
    file.touch()
    remove_abandoned(temporary)
    assert sorted(temporary.iterdir()) == sorted([*kept, link, file])
    assert (elsewhere / "folder-in-use").exists()
    remove_abandoned(temporary / "gone")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's folder")
def test_another_user_s_folder_stays_though_its_lock_is_free(temporary: Path) -> None:
    folder = temporary / "gdp-of-another"
    folder.mkdir()
    (folder / "folder-in-use").touch()
    os.chown(folder, 12345, -1)
    remove_abandoned(temporary)
    assert folder.exists()
    os.chown(folder, 0, -1)
    remove_abandoned(temporary)
    assert not folder.exists()


def test_processes_that_start_at_once_leave_each_other_s_folders(temporary: Path) -> None:
    processes = [started(STARTING) for _ in range(3)]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["", "", ""]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert list(temporary.iterdir()) == []


def test_the_lock_is_not_inherited_by_what_its_owner_runs() -> None:
    own = ProgramFolder()
    with subprocess.Popen(["sleep", "600"], close_fds=False) as process:
        os.close(own._lock)
        with open(own.path / "folder-in-use") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.kill()
    own._lock = -1
    own.close()
