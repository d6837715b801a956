import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from lock_state import come_free

from gdp.errors import InputError
from gdp.runtime.exclusive import Exclusive


class Holder:
    """A process that runs `body` with `locks`, an `Exclusive`; it prints lines, and goes on when a line is written to it."""

    def __init__(self, folder: Path, cores: list[int], body: str) -> None:
        opening = f"""
            import subprocess, sys
            from pathlib import Path
            from gdp.runtime.exclusive import Exclusive
            locks = Exclusive({cores!r}, silent_s=0.0, folder=Path({str(folder)!r}), tell=lambda line: print(line, flush=True))
        """
        self.process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(opening) + textwrap.dedent(body)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None and self.process.stdin is not None
        self.process.stdout.close()
        self.process.stdin.close()


HOLD = """
    with locks.held():
        print("held", flush=True)
        sys.stdin.readline()
    print("free", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def holding(folder) -> Iterator[Holder]:
    holder = Holder(folder, [0, 1], HOLD)
    assert holder.line() == "held"
    yield holder
    holder.kill()


def taken_at_once(folder: Path, cores: list[int]) -> bool:
    return come_free(cores, within_s=0.0, folder=folder)


def test_what_is_held_is_refused_with_the_holder_s_number_and_free_afterwards(folder, holding):
    told: list[str] = []
    locks = Exclusive([1, 2], wait_s=0.2, silent_s=0.1, folder=folder, tell=told.append)
    with pytest.raises(InputError, match=f"process {holding.process.pid} has been measuring on core-1 for 0.2 s"), locks.held():
        pass
    assert told == [f"waiting for process {holding.process.pid}, which measures on core-1"]
    assert taken_at_once(folder, [2])
    holding.go_on()
    assert holding.line() == "free"
    with locks.held():
        assert not taken_at_once(folder, [1])
    locks.close()
    assert taken_at_once(folder, [0, 1, 2])


def test_who_waits_goes_on_when_the_holder_is_done(folder, holding):
    waiting = Holder(folder, [0], HOLD)
    assert waiting.line() == f"waiting for process {holding.process.pid}, which measures on core-0"
    holding.go_on()
    assert waiting.line() == "held"
    waiting.kill()


def test_a_killed_holder_leaves_the_lock_free(folder, holding):
    assert not taken_at_once(folder, [0])
    holding.process.send_signal(signal.SIGKILL)
    holding.process.wait()
    assert taken_at_once(folder, [0, 1])


def test_a_lock_outlives_a_killed_parent_until_the_child_that_measures_ends(folder):
    parent = Holder(
        folder,
        [0],
        """
        with locks.held():
            child = subprocess.Popen(["sleep", "1000"], pass_fds=locks.descriptors)
            print(child.pid, flush=True)
            child.wait()
        """,
    )
    child = int(parent.line())
    parent.process.send_signal(signal.SIGKILL)
    parent.process.wait()
    assert not taken_at_once(folder, [0])
    os.kill(child, signal.SIGKILL)
    parent.kill()
    locks = Exclusive([0], wait_s=60.0, folder=folder, tell=lambda line: None)  # the system takes a moment to end it
    with locks.held():
        pass
    locks.close()


def test_processes_that_name_cores_in_any_order_never_lock_each_other_out(folder):
    count = """
        for _ in range(60):
            with locks.held():
                number = int(counter.read_text())
                counter.write_text(str(number + 1))
        print("done", flush=True)
    """
    counter = folder.parent / "counter"
    counter.write_text("0")
    opening = f"\ncounter = Path({str(counter)!r})\n"
    orders = ([0, 1, 2], [2, 0], [1, 0])
    holders = [Holder(folder, order, opening + textwrap.dedent(count)) for order in orders]
    for holder in holders:
        while "waiting" in (line := holder.line()):
            pass
        assert line == "done"
        holder.kill()
    assert counter.read_text() == "180"  # core-0 is everyone's: an increment that another interrupts would be lost


def test_who_measures_again_and_again_lets_another_in(folder):
    greedy = Holder(
        folder,
        [0],
        """
        import time
        with locks.held():
            print("held", flush=True)
        while True:
            with locks.held():
                time.sleep(0.01)
        """,
    )
    assert greedy.line() == "held"
    locks = Exclusive([0], wait_s=60.0, folder=folder, tell=lambda line: None)
    for _ in range(10):
        with locks.held():
            pass
    locks.close()
    greedy.kill()


def test_an_error_inside_frees_the_lock(folder):
    locks = Exclusive([0], folder=folder)
    with pytest.raises(ZeroDivisionError), locks.held():
        _ = 1 / 0
    assert taken_at_once(folder, [0])
    locks.close()


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    shared, file, link = tmp_path / "shared", tmp_path / "file", tmp_path / "link"
    shared.mkdir()
    shared.chmod(0o777)
    file.write_text("")
    link.symlink_to(tmp_path)
    for folder in (shared, file, link, tmp_path / "absent" / "folder"):
        with pytest.raises(InputError, match="folder"):
            Exclusive([0], folder=folder)
    own = tmp_path / "own"
    own.mkdir(mode=0o700)
    (own / "core-0").symlink_to(file)
    with pytest.raises(InputError, match="core-0"):
        Exclusive([0], folder=own)


def test_a_full_disk_keeps_nobody_from_measuring(folder, monkeypatch):
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    locks = Exclusive([0], folder=folder)
    with locks.held():
        pass
    locks.close()


def test_cores_and_gpus_are_apart(folder):
    first, second = Exclusive([0], ["1"], folder=folder), Exclusive([1], ["MIG-GPU-5af0/1/0"], wait_s=0.0, folder=folder)
    with first.held(), second.held():
        third = Exclusive([], ["1"], wait_s=0.0, folder=folder, tell=lambda line: None)
        with pytest.raises(InputError, match=f"process {os.getpid()} has been measuring on gpu-1"), third.held():
            pass
    for locks in (first, second, third):
        locks.close()
