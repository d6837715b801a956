"""A measuring process that is started when it is first asked, and anew after every failure.

While it answers, its cores and GPUs are locked against other measurements (exclusive.py). Its memory is bounded, and it is replaced when it keeps ever more (worker_memory.py).
"""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gdp.measurement import Status
from gdp.runtime.exclusive import Exclusive
from gdp.runtime.process import Child, ChildFailed
from gdp.runtime.program_folder import ProgramFolder
from gdp.runtime.worker_memory import Growth, bound_memory

ALLOCATOR = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**26)}
"""glibc keeps memory that was freed (mallopt(3)). It would give much of it back to the system, and get it back by page faults in the next step: up to a third of the time of a
step on a virtual machine, and most of its noise."""

_START_TIMEOUT_S = 300.0
"""Time for a fresh worker to import its framework, load the program and run it once."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices:
    """What a worker measures on."""

    cores: tuple[int, ...]
    """the cores of all its CPU devices."""
    gpus: tuple[str, ...]
    """what its GPUs are called in every process (`gdp.runtime.gpu_identity`)."""


class RestartingWorker:
    """A worker process of one program (`gdp.runtime.serving`), and the folder of files it gets the program from."""

    def __init__(self, module: str, *, environment: Mapping[str, str], timeout_s: float, memory_share: float = 1.0) -> None:
        """`module` is run as `python -m module FOLDER FD`, with the variables of `environment` over those of this process. `timeout_s` bounds each answer, and
        `memory_share` of what `bound_memory` allows its memory."""
        self._folder = ProgramFolder()
        self._module = module
        self._environment = dict(environment)
        self._timeout_s = timeout_s
        self._memory_share = memory_share
        self._load_request: dict[str, Any] = {}
        self._child: Child | None = None
        self._loaded: tuple[tuple[str, ...], Devices] | None = None
        self._locks: Exclusive | None = None
        self._locked: Devices | None = None
        self._growth = Growth()

    @property
    def pid(self) -> int | None:
        """Process number; none before the first request and after a failure."""
        return None if self._child is None else self._child.pid

    @property
    def folder(self) -> Path:
        """Where the worker finds its program."""
        return self._folder.path

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def loads(self, load_request: Mapping[str, Any]) -> None:
        """What a fresh worker is asked to load, beside the names of the ops."""
        self._load_request = dict(load_request)

    def ask_about(
        self, ops: Sequence[str], devices: Devices, request: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """The answer of a worker that has loaded the program, its ops numbered as in `ops`, and has `devices` to itself meanwhile. Raises `ChildFailed`; then the worker has ended.

        Raises `InputError` when another measurement does not leave the devices within `exclusive.WAIT_S`; waiting for it counts towards no other time.
        """
        wanted = tuple(ops), devices
        if self._loaded != wanted:
            self.end()
        if self._locks is None or self._locked != devices:
            self._unlock()
            self._locks, self._locked = Exclusive(devices.cores, devices.gpus), devices
        with self._locks.held():
            if self._child is None:
                self._start(devices, self._locks)
                self._ask({"command": "load", **self._load_request, "ops": list(ops)}, timeout_s=max(self._timeout_s, _START_TIMEOUT_S))
                self._loaded = wanted
            answer = self._ask(request, timeout_s=self._timeout_s if timeout_s is None else timeout_s)
            assert self._child is not None
            if self._growth.leaks(self._child.pid):
                self.end()
            return answer

    def end(self) -> None:
        """Ends the process; the next request starts another."""
        self._loaded = None
        if self._child is not None:
            self._child.close()
            self._child = None

    def close(self) -> None:
        """Ends the process and removes its files."""
        self.end()
        self._unlock()
        self._folder.close()

    def _unlock(self) -> None:
        if self._locks is not None:
            self._locks.close()
            self._locks = None

    def _start(self, devices: Devices, locks: Exclusive) -> None:
        environment = {
            **os.environ,
            **ALLOCATOR,
            **self._environment,
            "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path),
        }
        # -P: a module is looked for where this process would look for it, not in whatever folder the user is in
        command = [sys.executable, "-P", "-m", self._module, str(self.folder)]
        self._child = Child(command, environment=environment, inherited=locks.descriptors)
        bound_memory(self._child.pid, share=self._memory_share)
        if not devices.gpus:  # loading, too, keeps to the cores that are locked; the threads that feed a GPU are not to wait for one
            with suppress(ProcessLookupError):
                os.sched_setaffinity(self._child.pid, devices.cores)
        self._growth = Growth()

    def _ask(self, request: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        assert self._child is not None
        try:
            answer = self._child.ask(request, timeout_s=timeout_s)
        except ChildFailed as failure:
            self.end()
            advice = "; a slow program needs a larger timeout_s" if failure.status == Status.TIMED_OUT else ""
            raise ChildFailed(failure.status, failure.detail + advice) from failure
        except BaseException:
            self.end()
            raise
        for key, status in (("failed", Status.FAILED), ("out_of_memory", Status.OUT_OF_MEMORY)):
            if key in answer:
                self.end()
                raise ChildFailed(status, str(answer[key]))
        return answer
