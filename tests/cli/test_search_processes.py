"""What happens to searches in other processes when one fails, and when the process that asked for them is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gdp.errors import InputError
from tests.cli.slow_search import run

ROOT = Path(__file__).resolve().parents[2]


def test_all_are_searched(tmp_path: Path) -> None:
    assert run(tmp_path, 0.0, first=1)
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == list(range(1, 13))


def test_when_one_fails_the_others_are_not_begun(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the disk is full"):
        run(tmp_path, 1.0, first=0)
    assert len(list(tmp_path.iterdir())) <= 6, "those in hand, and what the pool has handed out already"


def test_none_is_left_when_who_asked_is_killed(tmp_path: Path) -> None:
    asking = subprocess.Popen([sys.executable, "-m", "tests.cli.slow_search", str(tmp_path), "600"], cwd=ROOT)
    deadline = time.monotonic() + 120
    while len(list(tmp_path.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    workers = [int(path.suffix[1:]) for path in tmp_path.iterdir()]
    assert len(workers) == 2
    while any(_lives(worker) for worker in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(_lives(worker) for worker in workers)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"
