"""Runs the pieces of a cut program on their devices at the same time: one thread per device, kept over the steps.

A CPU device is a set of cores: its thread is pinned to them, and torch's operators, which release Python's lock, use as many threads as there are cores.
CPU devices share memory, so a tensor passes between them by reference: a transfer is a hand-over. A CUDA device is a stream of its own (streams.py).
Devices talk by messages: one queue per ordered pair carries, in order, the values that the pieces of the one hand to the other.
"""

import dataclasses
import os
import threading
from collections.abc import Mapping, Sequence
from queue import SimpleQueue
from time import perf_counter
from typing import Any

import torch

from gdp.runtime.core_sets import cores_of
from gdp.runtime.pieces import Piece
from gdp.runtime.stages import NO_PIECE, Copies, Loaded, Message, Place, load
from gdp.runtime.streams import Streams


class StepFailed(RuntimeError):
    """A piece raised, and all devices have stopped. The cause is chained."""


class _Stopped(RuntimeError):
    """Another device has failed, so this one cannot go on."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Step:
    """One step as it ran."""

    step_time_s: float
    """from the start of the first device to the end of the last, all of them synchronised."""
    busy_s: tuple[float, ...]
    """`[devices]` seconds in pieces, waiting left out."""
    piece_s: tuple[float, ...]
    """`[pieces]` seconds of each piece, with the hand-over of its results."""
    outputs: tuple[Any, ...]
    """the program's flat outputs, on the devices where they were made."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Result:
    """What a device did in one step."""

    start: float
    end: float
    stage_s: tuple[float, ...]
    values: list[Any]
    """its slots at the end."""


class Executor:
    """Devices of this machine, each with its thread. A context manager; not for use by several threads at once."""

    def __init__(self, device_names: Sequence[str]) -> None:
        cores = [cores_of(name) for name in device_names]
        self.devices = [torch.device("cpu") if own else torch.device(name) for name, own in zip(device_names, cores, strict=True)]
        self._streams = Streams(self.devices)
        self._copies = Copies()
        self._orders: list[SimpleQueue[Loaded | None]] = [SimpleQueue() for _ in cores]
        self._done: SimpleQueue[tuple[int, _Result | BaseException]] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, args=(number, own), name=name, daemon=True)
            for number, (name, own) in enumerate(zip(device_names, cores, strict=True))
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> "Executor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the threads."""
        for orders in self._orders:
            orders.put(None)
        for thread in self._threads:
            thread.join()

    def load(
        self,
        pieces: Sequence[Piece],
        *,
        values: Mapping[str, Any],
        homes: Mapping[str, int],
        results: Sequence[Any],
        compiled: bool = False,
    ) -> Loaded:
        """Prepares `pieces` to run on these devices; the arguments are those of `gdp.runtime.stages.load`; what is loaded at the same time shares copies of its values."""
        return load(pieces, self.devices, values=values, homes=homes, results=results, copies=self._copies, compiled=compiled)

    def step(self, loaded: Loaded) -> Step:
        """Runs one step. Raises `StepFailed`, after all devices have stopped, when a piece raises; `loaded` must not be run again after that."""
        working = [number for number, stages in enumerate(loaded.stages) if stages]
        for number in working:
            self._orders[number].put(loaded)
        answers = dict(self._done.get() for _ in working)
        failures = [answer for answer in answers.values() if isinstance(answer, BaseException)]
        if failures:
            cause = next((failure for failure in failures if not isinstance(failure, _Stopped)), failures[0])
            raise StepFailed(f"{type(cause).__name__}: {cause}") from cause
        ran = {number: answer for number, answer in answers.items() if isinstance(answer, _Result)}
        piece_s = [0.0] * loaded.num_pieces
        for number, result in ran.items():
            for stage, seconds in zip(loaded.stages[number], result.stage_s, strict=True):
                if stage.piece != NO_PIECE:
                    piece_s[stage.piece] = seconds
        return Step(
            step_time_s=max(result.end for result in ran.values()) - min(result.start for result in ran.values()),
            busy_s=tuple(sum(ran[number].stage_s) if number in ran else 0.0 for number in range(len(self.devices))),
            piece_s=tuple(piece_s),
            outputs=tuple(ran[where.device].values[where.slot] if isinstance(where, Place) else where for where in loaded.outputs),
        )

    def _serve(self, number: int, cores: tuple[int, ...]) -> None:
        """The life of a device's thread."""
        pinned = False
        with torch.inference_mode():
            while (loaded := self._orders[number].get()) is not None:
                answer: _Result | BaseException
                try:
                    if cores:
                        if not pinned:
                            os.sched_setaffinity(0, cores)
                            pinned = True
                        torch.set_num_threads(
                            len(cores)
                        )  # in every step: MKL has one number for the process, and another device may have set it
                    answer = self._run(number, loaded) if cores else self._run_on_cuda(number, loaded)
                except BaseException as error:  # whatever stops this device must stop those that wait for it
                    for (source, _), queue in loaded.queues.items():
                        if source == number:
                            queue.put(None)
                    self._streams.settle(number)
                    answer = error
                self._done.put((number, answer))
                del loaded, answer

    def _run(self, number: int, loaded: Loaded) -> _Result:
        """One step of a CPU device."""
        slots, received, stage_s = list(loaded.initial[number]), [0] * len(self.devices), []
        shared = [device.type == "cpu" for device in self.devices]
        start = perf_counter()
        for stage in loaded.stages[number]:
            for source, count in stage.waits:
                while received[source] < count:
                    message = _receive(loaded, source, number)
                    if message.ready is not None:
                        message.ready.synchronize()
                    for slot, value in message.values:
                        slots[slot] = value
                    received[source] += 1
                    del message
            begin = perf_counter()
            for slot, value in zip(stage.results, stage.forward(*[slots[slot] for slot in stage.arguments]), strict=True):
                slots[slot] = value
            value = None
            for destination, moves in stage.sends:
                values = tuple((there, slots[own]) for own, there in moves)
                message = Message(values, None) if shared[destination] else self._streams.send(values, number, destination)
                loaded.queues[number, destination].put(message)
                del values, message
            for slot in stage.frees:
                slots[slot] = None
            stage_s.append(perf_counter() - begin)
        return _Result(start=start, end=perf_counter(), stage_s=tuple(stage_s), values=slots)

    def _run_on_cuda(self, number: int, loaded: Loaded) -> _Result:
        """One step of a CUDA device: the thread only fills the device's streams, and waits for them at the end."""
        slots, received, marks = list(loaded.initial[number]), [0] * len(self.devices), []
        stream = self._streams.compute[number]
        start = perf_counter()
        with torch.cuda.stream(stream):
            for stage in loaded.stages[number]:
                for source, count in stage.waits:
                    while received[source] < count:
                        message = _receive(loaded, source, number)
                        if message.ready is not None:
                            stream.wait_event(message.ready)
                        for slot, value in message.values:
                            slots[slot] = value
                        received[source] += 1
                        del message
                begin, end = self._streams.mark(), self._streams.mark()
                begin.record(stream)
                for slot, value in zip(stage.results, stage.forward(*[slots[slot] for slot in stage.arguments]), strict=True):
                    slots[slot] = value
                end.record(stream)
                marks.append((begin, end))
                value = None
                for destination, moves in stage.sends:
                    values = tuple((there, slots[own]) for own, there in moves)
                    loaded.queues[number, destination].put(self._streams.send(values, number, destination))
                    del values
                for slot in stage.frees:
                    slots[slot] = None
            stream.synchronize()
        stage_s = tuple(begin.elapsed_time(end) / 1000 for begin, end in marks)
        return _Result(start=start, end=perf_counter(), stage_s=stage_s, values=slots)


def _receive(loaded: Loaded, source: int, destination: int) -> Message:
    message = loaded.queues[source, destination].get()
    if message is None:
        raise _Stopped
    return message
