"""Cores and GPUs for one measurement at a time, whoever of this user's processes measures.

Two processes that time steps on one core spoil both results. So each takes a lock per core and per GPU (`flock` on a file) while it measures. The kernel releases a lock when
the last process that has its file open ends, however it ends. Locks are taken in one order, so nobody waits in a circle. Who comes takes the resource's turnstile first, waits
there for the lock, and leaves the turnstile with it: a process that measures again and again lets another one in between.
"""

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from gdp.errors import InputError

_POLL_S = 0.05

WAIT_S = 3600.0
"""A final comparison of slow steps may take that long."""

FOLDER = Path(f"/tmp/gdp-{os.getuid()}")
"""Where the locks are: one place for all of a user's processes, whatever their environment."""


class Exclusive:
    """Locks of cores by number and of GPUs by what tells them apart in every process (`gpu_identity`), closed with `close`. Raises `InputError` when the folder of the locks
    cannot be used.

    `tell` gets one line when locks have to be waited for longer than `silent_s`, which other measurements that come in between do not take.
    """

    def __init__(
        self,
        cores: Iterable[int] = (),
        gpus: Iterable[str] = (),
        *,
        wait_s: float = WAIT_S,
        silent_s: float = 5.0,
        tell: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
        folder: Path | None = None,
    ) -> None:
        self._names = sorted({*(f"core-{core}" for core in cores), *(f"gpu-{gpu}".replace("/", "-") for gpu in gpus)})
        self._wait_s, self._silent_s, self._tell = wait_s, silent_s, tell
        folder = _own_folder(folder or FOLDER)
        self._locks: list[int] = []
        self._turnstiles: list[int] = []
        try:
            for name in self._names:
                for opened, suffix in ((self._turnstiles, ".turnstile"), (self._locks, "")):
                    opened.append(os.open(folder / (name + suffix), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError as error:
            self.close()
            raise InputError(f"cannot open the lock of {name} in {folder}: {error.strerror}; remove that folder") from error

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a child process inherits so that the locks stay taken for as long as it runs, should its parent be killed while it holds them."""
        return tuple(self._locks)

    @contextmanager
    def held(self) -> Iterator[None]:
        """All the resources are this process's inside. Raises `InputError` when one of them is not free within the time."""
        begin, taken, told = monotonic(), list[int](), False
        try:
            for name, turnstile, lock in zip(self._names, self._turnstiles, self._locks, strict=True):
                for descriptor in (turnstile, lock):
                    while not _taken(descriptor):
                        if monotonic() > begin + self._wait_s:
                            raise InputError(
                                f"{_holder(lock)} has been measuring on {name} for {self._wait_s:g} s; wait for it, end it, or measure on other devices"
                            )
                        if not told and monotonic() >= begin + self._silent_s:
                            self._tell(f"waiting for {_holder(lock)}, which measures on {name}")
                            told = True
                        sleep(_POLL_S)
                    taken.append(descriptor)
                _sign(lock)
                fcntl.flock(taken.pop(-2), fcntl.LOCK_UN)
            yield
        finally:
            for descriptor in reversed(taken):
                fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Closes the files; the locks are free, unless a child that inherited them runs on."""
        for opened in (self._locks, self._turnstiles):
            while opened:
                os.close(opened.pop())


@contextmanager
def exclusively(cores: Iterable[int], gpus: Iterable[str]) -> Iterator[None]:
    """The cores and GPUs are this process's inside; as `Exclusive`, for once."""
    locks = Exclusive(cores, gpus)
    try:
        with locks.held():
            yield
    finally:
        locks.close()


def _own_folder(folder: Path) -> Path:
    """The folder, made if need be, that nobody but this user writes to."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise InputError(f"cannot make the folder {folder} for locks: {error.strerror}; make it by hand") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise InputError(f"{folder}, where locks belong, is not a folder that this user alone writes to; remove it")
    return folder


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sign(lock: int) -> None:
    """Writes into a lock's file who holds it, for those who wait; they can do without where the disk is full."""
    with suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)


def _holder(lock: int) -> str:
    text = os.pread(lock, 20, 0)
    return f"process {int(text)}" if text.isdigit() else "another process"
