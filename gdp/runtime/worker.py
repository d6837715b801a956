"""The process in which PyTorch programs are measured: `python -m gdp.runtime.worker [FOLDER] FD` answers one request a line on standard input, writing to file descriptor FD.

`load` takes the program, `measure` times placements, `profile` times ops. Requests and answers are those of `Bench`. The process ends when its
parent does, and then removes FOLDER, which the parent no longer can.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from gdp.runtime.device_memory import PeakMemory, resident_bytes
from gdp.runtime.executor import Executor, Step, StepFailed
from gdp.runtime.neutral_ops import trainable
from gdp.runtime.pieces import cut, cut_every_op
from gdp.runtime.random_draws import seed_random_ops
from gdp.runtime.serving import Kept, NotMeasured, answer, serve, step_times
from gdp.runtime.stages import Loaded
from gdp.runtime.timing import Protocol, warm_up
from gdp.runtime.values import allowed_differences, difference, disturbed, on_host, program_values, start_of_outputs

_SPIN_S = 0.02
"""After an op that several threads shared, OpenMP's helpers keep their cores busy for a while, lest the next op has to wake them: 2 to 7 ms were seen. Where the steps of another
device follow on the same cores, these would pay for it."""


class Bench:
    """One program and the devices it is measured on."""

    def __init__(self) -> None:
        self._executor: Executor | None = None
        self._devices: tuple[str, ...] = ()
        self._failure: Exception | None = None
        self._kept: Kept[tuple[Loaded, list[int]]] = Kept()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request; `out_of_memory` or `failed` with a sentence when it could not be done. What was loaded until then is dropped with the next request."""
        if self._failure is not None:  # not before its answer was out: freeing what a failed GPU holds can end the process
            self._failure = None
            self._kept.clear()
        commands: dict[str, Callable[..., dict[str, Any]]] = {"load": self.load, "measure": self.measure, "profile": self.profile}
        answered, self._failure = answer(commands, request, lacks_memory=_lacks_memory, told=(StepFailed,))
        return answered

    def close(self) -> None:
        """Ends the devices' threads."""
        self._kept.clear()
        if self._executor is not None:
            self._executor.close()
            self._executor = None

    def load(self, *, program: str, inputs: str, ops: list[str], seed: int, compiled: bool = False) -> dict[str, Any]:
        """Takes a program and its flat inputs from files, and runs it once, unplaced. Placements will name devices in the order of `ops`."""
        self._program = torch.export.load(program)
        flat_inputs = torch.load(inputs, map_location="cpu", weights_only=True)
        generator = torch.Generator()
        generator.manual_seed(seed)
        self._program = on_host(self._program)
        trainable(self._program.graph_module)
        self._draws = seed_random_ops(self._program, seed=seed)
        self._values = program_values(self._program, flat_inputs, generator=generator)
        self._ops, self._compiled = ops, compiled
        self._results = [_name_or_value(result) for result in self._program.graph.output_node().args[0]]
        self._reference, self._start = self._unplaced(self._values), start_of_outputs(self._program, self._values)
        self._allowed = allowed_differences(self._reference, self._reference, self._start, self._start)
        self._knows_rounding = False
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
        """Times a placement after checking its outputs, in turn with the incumbent when there is one, or with the unplaced program on the device `unplaced_on`.
        `*_s` are lists of step times; `busy_s` medians by device, `peak_memory_bytes` what the candidate takes of a GPU's memory."""
        if unplaced_on is not None:
            devices, incumbent = [*devices, unplaced_on], [len(devices)] * len(self._ops)
        executor = self._executor_for(devices)
        steps: list[Step] = []
        loaded, peak_bytes = self._loaded(executor, tuple(candidate))

        def run() -> float:
            step = executor.step(loaded)
            steps.append(Step(step_time_s=step.step_time_s, busy_s=step.busy_s, piece_s=(), outputs=()))
            return step.step_time_s

        other = None if incumbent is None else self._loaded(executor, tuple(incumbent))[0]
        run_other = None if other is None else lambda: executor.step(other).step_time_s
        candidate_s, incumbent_s = step_times(run, run_other, Protocol(**protocol), pause_s=0.0 if unplaced_on is None else _SPIN_S)
        busy_s = np.median([step.busy_s for step in steps[-len(candidate_s) :]], axis=0)
        return {"candidate_s": candidate_s, "incumbent_s": incumbent_s, "busy_s": busy_s.tolist(), "peak_memory_bytes": peak_bytes}

    def profile(self, *, device: str, num_steps: int, max_time_s: float) -> dict[str, Any]:
        """Seconds of every op on one device: medians over steps that run op by op, fewer of them, three at least, when they take longer than `max_time_s`."""
        devices = [device]
        executor = self._executor_for(devices)
        pieces = cut_every_op(self._program)
        by_op = executor.load(pieces, values=self._values, homes={}, results=[])
        begin = perf_counter()
        warm_up(lambda: executor.step(by_op).step_time_s, max_steps=10, max_time_s=max_time_s)
        op_s: list[tuple[float, ...]] = []
        while len(op_s) < num_steps and (len(op_s) < 3 or perf_counter() - begin < max_time_s):
            op_s.append(executor.step(by_op).piece_s)
        medians = np.median(op_s, axis=0)
        return {"op_s": {piece.ops[0]: float(seconds) for piece, seconds in zip(pieces, medians, strict=True)}}

    def _unplaced(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs of the program on the host, all its cores as one device."""
        placeholders = [node.name for node in self._program.graph.nodes if node.op == "placeholder"]
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        with torch.inference_mode():
            return tuple(self._program.graph_module(*[values[name] for name in placeholders]))

    def _executor_for(self, devices: list[str]) -> Executor:
        if self._executor is None or self._devices != tuple(devices):
            self.close()
            self._executor, self._devices = Executor(devices), tuple(devices)
        return self._executor

    def _allowed_with_rounding(self) -> list[float]:
        """What outputs may differ by, as a second run of the unplaced program shows, from values that differ by about a rounding error."""
        generator = torch.Generator().manual_seed(0)
        near = {name: disturbed(value, generator) for name, value in self._values.items()}
        return allowed_differences(self._reference, self._unplaced(near), self._start, start_of_outputs(self._program, near))

    def _loaded(self, executor: Executor, placement: tuple[int, ...]) -> tuple[Loaded, list[int]]:
        """The program cut by a placement, its outputs checked once, and what it takes of each device's memory (`PeakMemory`)."""

        def load() -> tuple[Loaded, list[int]]:
            device_of_op = dict(zip(self._ops, placement, strict=True))
            homes = {name: device for name, device in device_of_op.items() if name in self._values}
            pieces = cut(self._program, device_of_op)
            loaded = executor.load(pieces, values=self._values, homes=homes, results=self._results, compiled=self._compiled)
            self._draws.on_host, fast = True, torch.backends.cudnn.allow_tf32
            torch.backends.cudnn.allow_tf32 = (
                False  # whose roundings, ten thousand times the host's, hide a wrong cut; timed steps are as users run them
            )
            try:
                with PeakMemory(executor.devices) as peak:
                    outputs = executor.step(loaded).outputs
            finally:
                self._draws.on_host, torch.backends.cudnn.allow_tf32 = False, fast
            wrong = difference(outputs, self._reference, self._allowed)
            if wrong and not self._knows_rounding:  # it may be nothing but rounding, which a second run of the reference tells
                self._allowed, self._knows_rounding = self._allowed_with_rounding(), True
                wrong = difference(outputs, self._reference, self._allowed)
            if wrong:
                raise NotMeasured(f"the outputs differ from those of the unplaced program: {wrong}")
            there = [
                resident_bytes(values, device) * (device.type == "cuda")
                for values, device in zip(loaded.initial, executor.devices, strict=True)
            ]
            return loaded, [resident + added for resident, added in zip(there, peak.added_bytes, strict=True)]

        return self._kept.get(placement, load)


_NO_MEMORY = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""What errors say that are about memory but not of a kind of their own: torch's for the host, and those of CUDA's libraries."""


def _lacks_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in str(error) for words in _NO_MEMORY)


def _name_or_value(result: object) -> object:
    return result.name if isinstance(result, torch.fx.Node) else result


if __name__ == "__main__":
    assert Path(__file__).name == "worker.py"
    serve(sys.argv[1:], Bench().answer)
