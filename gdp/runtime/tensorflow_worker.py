"""The process in which TensorFlow programs are measured: `python -m gdp.runtime.tensorflow_worker [FOLDER] FD`, served as `gdp.runtime.serving` says.

`load` takes the program, `measure` times placements, `profile` times ops. Requests and answers are those of `Bench`.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from gdp.runtime.arrays import difference, disturbed
from gdp.runtime.serving import Kept, NotMeasured, answer, serve, step_times
from gdp.runtime.tensorflow_order import SOURCES, at_their_convolutions
from gdp.runtime.tensorflow_program import read_program
from gdp.runtime.tensorflow_session import Program, Results, Session
from gdp.runtime.timing import Protocol, warm_up

_NUM_TRACED = 3
"""Steps with statistics after a measurement, for how long each device was at work."""

_OUT_OF_GPU_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"
"""The driver's word, which TensorFlow passes on as an error of its own where the memory is not its allocator's: that of a context, a stream or a kernel."""


class Bench:
    """One program, and the sessions that it is measured in."""

    def __init__(self) -> None:
        self._kept: Kept[Session] = Kept(drop=Session.close)
        self._devices: tuple[str, ...] = ()
        self._failure: Exception | None = None
        self._plain: tuple[str, Session] | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request; `out_of_memory` or `failed` with a sentence when it could not be done. What was loaded until then is dropped with the next request."""
        if self._failure is not None:  # not before its answer was out: freeing what a failed GPU holds can end the process
            self._failure = None
            self.close()
        commands: dict[str, Callable[..., dict[str, Any]]] = {"load": self.load, "measure": self.measure, "profile": self.profile}
        answered, self._failure = answer(commands, request, lacks_memory=_lacks_memory)
        return answered

    def close(self) -> None:
        """Ends the sessions."""
        self._kept.clear()
        if self._plain is not None:
            self._plain[1].close()
            self._plain = None

    def load(self, *, program: str, values: str, ops: list[str], seed: int) -> dict[str, Any]:
        """Takes a program and its values from files, and runs it unplaced, twice: once more from values that differ by about a rounding error, which shows how far rounding
        carries. Placements will name devices in the order of `ops`."""
        self._program = read_program(Path(program), Path(values), ops)
        generator = np.random.default_rng(seed)
        near = {name: disturbed(value, generator) for name, value in self._program.variables.items()}
        everywhere = f"cpu:{','.join(map(str, sorted(os.sched_getaffinity(0))))}"
        self._reference = _unplaced(self._program, everywhere, self._program.variables)
        self._disturbed = _unplaced(self._program, everywhere, near)
        return {"ok": True}

    def measure(
        self,
        *,
        devices: list[str],
        candidate: list[int],
        incumbent: list[int] | None,
        protocol: dict[str, Any],
        unplaced_on: str | None = None,
    ) -> dict[str, Any]:
        """Times a placement after checking its results, in turn with the incumbent when there is one, or with the unplaced program on the cores `unplaced_on`.
        `*_s` are lists of step times; `busy_s` medians by device. Memory is not measured."""
        session = self._session(devices, tuple(candidate))
        other = self._session(devices, tuple(incumbent)) if incumbent is not None else None
        if unplaced_on is not None:
            other = self._unplaced(unplaced_on)
        for one in (session, *(() if other is None else (other,))):
            one.reset()
        candidate_s, incumbent_s = step_times(session.step_s, None if other is None else other.step_s, Protocol(**protocol))
        busy_s = self._busy_s(session, devices, candidate_s).tolist()
        return {"candidate_s": candidate_s, "incumbent_s": incumbent_s, "busy_s": busy_s, "peak_memory_bytes": [0] * len(devices)}

    def profile(self, *, device: str, num_steps: int, max_time_s: float) -> dict[str, Any]:
        """Seconds of every op on one device: medians of its kernel's times over traced steps, fewer of them, three at least, when they take longer than `max_time_s`; and an equal
        share of what an untraced step takes beyond all kernels."""
        session = self._session([device], (0,) * len(self._program.nodes))
        session.reset()
        begin = perf_counter()
        steps_s: list[float] = []

        def step_s() -> float:
            steps_s.append(session.step_s())
            return steps_s[-1]

        warm_up(step_s, max_steps=10, max_time_s=max_time_s)
        op_s: dict[str, list[float]] = {}
        for number in range(num_steps):
            if number >= 3 and perf_counter() - begin > max_time_s:
                break
            step_s()
            for one in session.trace()[1]:
                op_s.setdefault(one.node, []).append(one.end_s - one.begin_s)
        own = {node.name for node in self._program.nodes if node.op not in SOURCES}
        kernel_s = {name: float(np.median(seconds)) for name, seconds in op_s.items() if name in own}
        around_s = max(0.0, float(np.median(steps_s[-num_steps:])) - sum(kernel_s.values())) / max(1, len(kernel_s))
        return {"op_s": at_their_convolutions({name: seconds + around_s for name, seconds in kernel_s.items()}, self._program.nodes)}

    def _session(self, devices: list[str], placement: tuple[int, ...]) -> Session:
        """The program under a placement, its results checked once."""
        if self._devices != tuple(devices):
            self._kept.clear()
            self._devices = tuple(devices)

        def load() -> Session:
            session = Session(self._program, devices, placement)
            try:
                session.reset()
                wrong = self._wrong(session.results())
            except BaseException:
                session.close()
                raise
            if wrong:
                session.close()
                raise NotMeasured(f"the results differ from those of the unplaced program: {wrong}")
            return session

        return self._kept.get(placement, load)

    def _unplaced(self, cores: str) -> Session:
        if self._plain is None or self._plain[0] != cores:
            if self._plain is not None:
                self._plain[1].close()
            self._plain = cores, Session(self._program, [cores], None)
        return self._plain[1]

    def _busy_s(self, session: Session, devices: Sequence[str], step_s: Sequence[float]) -> np.ndarray:
        """Median seconds in the program's ops by device, over traced steps, which take longer, brought to the scale of the timed ones."""
        own = {node.name for node in self._program.nodes}
        busy_s = np.zeros((_NUM_TRACED, len(devices)))
        for row in range(_NUM_TRACED):
            traced_s, ran = session.trace()
            for one in ran:
                if one.node in own:
                    busy_s[row, devices.index(session.device_names[one.device])] += one.end_s - one.begin_s
            busy_s[row] *= float(np.median(step_s)) / traced_s
        return np.asarray(np.median(busy_s, axis=0))

    def _wrong(self, results: Results) -> str:
        """Where results first differ from the reference; empty when they do not."""
        outputs = zip(self._program.outputs, results.outputs, self._reference.outputs, self._disturbed.outputs, strict=True)
        for name, output, expected, near in outputs:
            if wrong := difference(f"output {name!r}", output, expected, near):
                return wrong
        for name, value in results.variables.items():
            expected, near = self._reference.variables[name], self._disturbed.variables[name]
            if wrong := difference(f"variable {name!r}", value, expected, near, self._program.variables[name]):
                return wrong
        return ""


def _unplaced(program: Program, cores: str, values: Mapping[str, np.ndarray]) -> Results:
    session = Session(program, [cores], None)
    try:
        session.reset(values)
        return session.results()
    finally:
        session.close()


def _lacks_memory(error: BaseException) -> bool:
    kind = type(error).__name__
    return (
        isinstance(error, MemoryError) or kind == "ResourceExhaustedError" or (kind == "InternalError" and _OUT_OF_GPU_MEMORY in str(error))
    )


if __name__ == "__main__":
    serve(sys.argv[1:], Bench().answer)
