"""Faults of a measuring process, and runs of measurements into which they are injected: whatever goes wrong, it is a status, and the next measurement is right.

A fault is ordered by a file in the worker's folder, and carried out by the worker in the step of that number (`Injector`): by the one of PyTorch programs (faulty_worker.py), or
by a light one without a framework (light_worker.py).
"""

import ctypes
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from lock_state import come_free

from gdp.measurement import Measurement, Status
from gdp.runtime import process
from gdp.runtime.restarting import RestartingWorker

FOREVER_S = 10_000
SHORT_S = 1.0
"""How long an answer is awaited that cannot come."""
LEAK_BYTES = 2**30
_leaked: list[bytearray] = []


def _answers() -> int:
    return int(sys.argv[-1])


def _say(text: str) -> None:
    left = text.encode()
    while left:
        left = left[os.write(_answers(), left) :]


def _refused() -> None:
    import torch

    kept = []
    while True:
        kept.append(torch.empty(2**30))  # untouched: only the bound of the worker's memory ends this


def _leaking() -> None:
    _leaked.append(bytearray(LEAK_BYTES))


def _endless() -> None:
    ctypes.PyDLL(None).sleep(FOREVER_S)  # native code that keeps Python's lock


def _deadlocked() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def _ended_with_a_child() -> None:
    subprocess.Popen(["sleep", str(FOREVER_S)], pass_fds=(_answers(),))
    os.kill(os.getpid(), signal.SIGSEGV)


def _half(then: Callable[[], object]) -> Callable[[], None]:
    def act() -> None:
        _say('{"candidate_s": [0.01, 0.0')
        then()

    return act


def _closed() -> None:
    os.close(_answers())
    time.sleep(FOREVER_S)


def _huge() -> None:
    while True:
        _say(" " * 2**24)


def _wrong_answer(text: str) -> Callable[[], None]:
    def act() -> None:
        _say(text + "\n")
        time.sleep(FOREVER_S)

    return act


def _raising(kind: str, text: str) -> Callable[[], None]:
    def act() -> None:
        import torch

        errors = {"runtime": RuntimeError, "accelerator": torch.AcceleratorError, "out of memory": torch.OutOfMemoryError}
        raise errors[kind](text)

    return act


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One kind of fault, and how its measurement is to end."""

    act: Callable[[], None] | None
    """what the worker does; `None` where the fault comes from outside."""
    status: Status
    detail: str
    """a part of the sentence."""


def _self(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


FAULTS = {
    "host memory refused": Fault(act=_refused, status=Status.OUT_OF_MEMORY, detail="allocate memory"),
    "killed for lack of memory": Fault(act=_self(signal.SIGKILL), status=Status.OUT_OF_MEMORY, detail="lack of memory"),
    "segmentation fault": Fault(act=lambda: ctypes.string_at(0), status=Status.FAILED, detail="SIGSEGV"),
    "abort": Fault(act=os.abort, status=Status.FAILED, detail="SIGABRT"),
    "exit": Fault(act=lambda: os._exit(3), status=Status.FAILED, detail="exit code 3"),
    "segmentation fault, child left": Fault(act=_ended_with_a_child, status=Status.FAILED, detail="SIGSEGV"),
    "endless native code": Fault(act=_endless, status=Status.TIMED_OUT, detail="did not answer"),
    "deadlock": Fault(act=_deadlocked, status=Status.TIMED_OUT, detail="did not answer"),
    "stopped": Fault(act=_self(signal.SIGSTOP), status=Status.TIMED_OUT, detail="did not answer"),
    "killed between requests": Fault(act=None, status=Status.FAILED, detail="SIGKILL"),
    "killed during a request": Fault(act=_self(signal.SIGKILL), status=Status.FAILED, detail="SIGKILL"),
    "nonsense": Fault(act=_wrong_answer("nonsense"), status=Status.FAILED, detail="no JSON"),
    "wrong fields": Fault(act=_wrong_answer('{"candidate_s": "fast"}'), status=Status.FAILED, detail="makes no sense"),
    "times that are none": Fault(
        act=_wrong_answer(
            json.dumps({"candidate_s": [float("nan")] * 6, "incumbent_s": [], "busy_s": [0.0, 0.0], "peak_memory_bytes": [0, 0]})
        ),
        status=Status.FAILED,
        detail="makes no sense",
    ),
    "half an answer, then silence": Fault(act=_half(lambda: time.sleep(FOREVER_S)), status=Status.TIMED_OUT, detail="did not answer"),
    "half an answer, then the end": Fault(act=_half(lambda: os._exit(0)), status=Status.FAILED, detail="exit code 0"),
    "huge answer": Fault(act=_huge, status=Status.FAILED, detail="bytes"),
    "closed pipe": Fault(act=_closed, status=Status.FAILED, detail="closed its pipe"),
    "leak": Fault(act=_leaking, status=Status.OK, detail=""),
    "CUDA assert": Fault(
        act=_raising("accelerator", "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported"),
        status=Status.FAILED,
        detail="device-side assert",
    ),
    "CUDA illegal access": Fault(
        act=_raising("accelerator", "CUDA error: an illegal memory access was encountered"),
        status=Status.FAILED,
        detail="illegal memory access",
    ),
    "CUDA launch failure": Fault(
        act=_raising("accelerator", "CUDA error: unspecified launch failure"), status=Status.FAILED, detail="launch failure"
    ),
    "CUDA out of memory": Fault(
        act=_raising("out of memory", "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 15.77 GiB"),
        status=Status.OUT_OF_MEMORY,
        detail="CUDA out of memory",
    ),
    "CUDA context out of memory": Fault(
        act=_raising("accelerator", "CUDA error: out of memory"), status=Status.OUT_OF_MEMORY, detail="out of memory"
    ),
    "cuBLAS out of memory": Fault(
        act=_raising("runtime", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        status=Status.OUT_OF_MEMORY,
        detail="ALLOC_FAILED",
    ),
}
"""By name. Errors of CUDA are raised where its ops run, with the type and the text that torch has for them; the others are the thing itself."""

OF_TORCH = [name for name in FAULTS if name.startswith(("CUDA", "cuBLAS", "host memory"))]
"""Those that only a worker with torch can have."""


class Injector:
    """Carries out the orders in the folder of a worker."""

    def __init__(self, folder: Path) -> None:
        self._order = folder / "fault"
        self._fault, self._steps = "", 0

    def step(self) -> None:
        """To be called in every step."""
        if self._order.exists():
            ordered = json.loads(self._order.read_text())
            self._fault, self._steps = ordered["fault"], ordered["steps"]
            self._order.unlink()
        self._steps -= 1
        if self._fault and self._steps <= 0:
            act = FAULTS[self._fault].act
            self._fault = ""
            assert act is not None
            act()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Left:
    """What a run may leave behind; equal before and after it."""

    descriptors: int
    threads: int
    processes: frozenset[int]

    @staticmethod
    def now() -> "Left":
        """Of this process, and of the sessions that its workers had."""
        return Left(
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=threading.active_count(),
            processes=frozenset(_workers_and_their_children()),
        )


def _workers_and_their_children() -> Iterator[int]:
    """Running processes in sessions that children of this one began, those of dead children included: what is orphaned keeps its session."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z" and int(fields[3]) in _sessions:
                yield int(folder.name)


_sessions: set[int] = set()


class FaultyRun:
    """Measurements of one placement, with a fault in some of them."""

    def __init__(
        self, measure: Callable[[], Measurement], worker: RestartingWorker, cores: Sequence[int], generator: np.random.Generator
    ) -> None:
        """`measure` asks `worker`, which measures on `cores` and has an `Injector`."""
        self._measure, self._worker, self._cores, self._generator = measure, worker, cores, generator

    def measure(self) -> Measurement:
        """A measurement in which nothing is done on purpose."""
        measurement = self._measure()
        if self._worker.pid is not None:
            _sessions.add(self._worker.pid)
        return measurement

    def with_fault(self, name: str) -> tuple[Measurement, bool]:
        """A measurement with the fault in one of its first steps, or before it; and whether the worker was replaced."""
        fault, before = FAULTS[name], self._worker.pid
        assert before is not None
        if fault.act is None:
            time.sleep(float(self._generator.uniform(0, 0.02)))
            os.kill(before, signal.SIGKILL)
        else:
            order = {"fault": name, "steps": int(self._generator.integers(1, 10))}
            (self._worker.folder / "fault").write_text(json.dumps(order))
        patience_s = self._worker._timeout_s
        if fault.status == Status.TIMED_OUT:
            self._worker._timeout_s = SHORT_S
        with _oom_killer(counting=name == "killed for lack of memory"):
            measurement = self._measure()
        self._worker._timeout_s = patience_s
        return measurement, self._worker.pid != before

    def is_free(self) -> bool:
        """Whether the locks of the cores come free within a minute; another test may be measuring."""
        return come_free(self._cores, within_s=60.0)


@contextmanager
def _oom_killer(*, counting: bool) -> Iterator[None]:
    """The system's count of processes it killed for lack of memory goes up with every look, as if it had been its doing."""
    honest, count = process._oom_kills, iter(range(10**9))
    if counting:
        process._oom_kills = lambda: 10**9 + next(count)
    try:
        yield
    finally:
        process._oom_kills = honest
