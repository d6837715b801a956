"""How much memory a measuring process may take, and whether it keeps more from one measurement to the next."""

import resource
from pathlib import Path

import psutil

_SHARE = 0.9
"""of the memory that is free when a worker starts; the rest is for whoever else is there."""

_LEAK_BYTES = 2**29
"""What a worker may keep beyond its first measurement: what an allocator holds on to for the next step, of other placements than that of the first."""


def bound_memory(pid: int, *, share: float = 1.0) -> None:
    """Bounds the private memory of the process, so that it is refused an allocation where it would else take the machine's last memory: a status instead of a kill. Of what is
    free it gets its share, less a tenth that is left to whoever else is there.

    The bound is `RLIMIT_DATA`: since Linux 4.7 it counts every private writable mapping. `RLIMIT_AS` would count address space as well, of which CUDA reserves terabytes without
    using them, and a bound of resident memory is not enforced by Linux. Memory shared between processes is not bounded.
    """
    limit = int(share * _SHARE * _available_bytes())
    try:
        resource.prlimit(pid, resource.RLIMIT_DATA, (limit, limit))
    except (ProcessLookupError, PermissionError, ValueError):
        pass  # it has ended, which whoever asks it finds out, or the user's own bound is lower


class Growth:
    """The resident memory of a process, looked at after each measurement."""

    def __init__(self) -> None:
        self._first_bytes: int | None = None

    def leaks(self, pid: int) -> bool:
        """Whether the process now holds half as much again as after its first measurement, and `_LEAK_BYTES` more: it should be replaced before it hurts."""
        try:
            held = psutil.Process(pid).memory_info().rss
        except psutil.Error:
            return False  # it has ended, which whoever asks it finds out
        if self._first_bytes is None:
            self._first_bytes = held
        return bool(held > 1.5 * self._first_bytes + _LEAK_BYTES)


def _available_bytes(container: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory of the machine, or of this container where that is less, that nobody uses. Copies of files that the system keeps while there is room count as free."""
    available = int(psutil.virtual_memory().available)
    limit, used, parts = (container / f"memory.{name}" for name in ("max", "current", "stat"))
    text = limit.read_text().strip() if limit.exists() else "max"
    if not text.isdecimal() or not used.exists():
        return available
    sizes = dict(line.split() for line in parts.read_text().splitlines()) if parts.exists() else {}
    files = sum(int(sizes.get(name, 0)) for name in ("active_file", "inactive_file"))
    return min(available, int(text) - int(used.read_text()) + files)
