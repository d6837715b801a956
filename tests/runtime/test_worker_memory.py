import json
import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from gdp.runtime.worker_memory import Growth, _available_bytes, bound_memory

SCRIPT = """
import json, mmap, resource, sys
kept = []
for line in sys.stdin:
    megabytes, touched = json.loads(line)
    try:
        kept.append(bytearray(megabytes * 2**20) if touched else mmap.mmap(-1, megabytes * 2**20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        print("got", flush=True)
    except (MemoryError, OSError):
        print("refused", flush=True)
"""


class Hungry:
    """A process that takes memory as it is told."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def take(self, megabytes: int, *, touched: bool) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([megabytes, touched]) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def hungry() -> Iterator[Hungry]:
    started = Hungry()
    yield started
    started.process.communicate()


def test_the_last_tenth_of_the_free_memory_is_refused(hungry):
    free = psutil.virtual_memory().available // 2**20
    assert hungry.take(free, touched=False) == "got"  # nothing is used, so without a bound it is there for the asking
    other = Hungry()
    bound_memory(other.process.pid)
    assert other.take(free, touched=False) == "refused"
    assert other.take(free // 4, touched=False) == "got"
    other.process.communicate()


def test_what_a_container_keeps_of_files_is_free(tmp_path):
    assert _available_bytes(tmp_path) > 2**20  # no container: the machine's
    for name, text in (
        ("max", str(100 * 2**10)),
        ("current", str(90 * 2**10)),
        ("stat", "anon 20480\nactive_file 10240\ninactive_file 61440\n"),
    ):
        (tmp_path / f"memory.{name}").write_text(text)
    assert _available_bytes(tmp_path) == 80 * 2**10
    (tmp_path / "memory.max").write_text("max")
    assert _available_bytes(tmp_path) > 2**20


def test_a_process_that_has_ended_has_no_bound_and_does_not_leak():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    bound_memory(ended.pid)
    assert not Growth().leaks(ended.pid)


def test_growth_counts_from_the_first_look_and_a_little_is_none(hungry):
    growth = Growth()
    assert hungry.take(64, touched=True) == "got"
    assert not growth.leaks(hungry.process.pid)
    assert hungry.take(256, touched=True) == "got"
    assert not growth.leaks(hungry.process.pid)
    assert hungry.take(400, touched=True) == "got"
    assert growth.leaks(hungry.process.pid)
    assert not Growth().leaks(hungry.process.pid)
    assert os.path.exists(f"/proc/{hungry.process.pid}")
