"""The life of a measuring process, whatever framework its program is of: one request a line comes in, its answer goes out, and what is loaded of placements is kept."""

import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from time import sleep
from typing import Any, Generic, TypeVar

from gdp.runtime.program_folder import use
from gdp.runtime.timing import Protocol, alone, in_turn

_MAX_KEPT = 2
"""How many placements stay loaded: the incumbent and the candidate."""

Placed = TypeVar("Placed")


class NotMeasured(Exception):
    """A program could not be measured, for a reason that is a sentence for people."""


class Kept(Generic[Placed]):
    """The placements that were loaded last, the incumbent and the candidate; older ones are handed to `drop`."""

    def __init__(self, drop: Callable[[Placed], None] = lambda placed: None) -> None:
        self._drop = drop
        self._placed: dict[tuple[int, ...], Placed] = {}

    def get(self, placement: tuple[int, ...], load: Callable[[], Placed]) -> Placed:
        """What was loaded for `placement`, or what `load` now makes of it."""
        placed = self._placed.pop(placement, None)
        if placed is None:
            while len(self._placed) >= _MAX_KEPT:  # first, so that never more of them than these take a device's memory
                self._drop(self._placed.pop(next(iter(self._placed))))
            placed = load()
        self._placed[placement] = placed
        return placed

    def clear(self) -> None:
        """Drops all."""
        while self._placed:
            self._drop(self._placed.popitem()[1])


def step_times(
    candidate: Callable[[], float], incumbent: Callable[[], float] | None, protocol: Protocol, *, pause_s: float = 0.0
) -> tuple[list[float], list[float]]:
    """Seconds of both by the protocol, in turn, each step after a pause; of the candidate alone, and none else, where there is no incumbent."""

    def paused(step: Callable[[], float]) -> Callable[[], float]:
        def run() -> float:
            if pause_s:
                sleep(pause_s)
            return step()

        return run

    return (alone(paused(candidate), protocol), []) if incumbent is None else in_turn(paused(candidate), paused(incumbent), protocol)


def answer(
    commands: Mapping[str, Callable[..., dict[str, Any]]],
    request: Mapping[str, Any],
    *,
    lacks_memory: Callable[[BaseException], bool],
    told: tuple[type[Exception], ...] = (),
) -> tuple[dict[str, Any], Exception | None]:
    """What the request's command returns; `out_of_memory` or `failed` with a sentence when it could not be done, and the exception that says so.

    With the exception go the values of the frames it came through. Freeing them can end a process whose GPU failed: whoever answers keeps it until the answer is out.
    Exceptions of the kinds `told`, and `NotMeasured`, are sentences already; others are named.
    """
    arguments = {key: value for key, value in request.items() if key != "command"}
    try:
        return commands[request["command"]](**arguments), None
    except Exception as error:
        status = "out_of_memory" if _any_cause(error, lacks_memory) else "failed"
        message = str(error).splitlines()[0] if str(error) else "no message"
        return {status: message if isinstance(error, (NotMeasured, *told)) else f"{type(error).__name__}: {message}"}, error


def _any_cause(error: BaseException | None, holds: Callable[[BaseException], bool]) -> bool:
    """Whether it holds of the error or of one that caused it."""
    while error is not None:
        if holds(error):
            return True
        error = error.__cause__
    return False


def serve(arguments: Sequence[str], bench_answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Serves requests until standard input ends, which it does when the parent process does, however that came.

    The `arguments` of the process are the folders it then removes, which the parent no longer can, and the file descriptor that answers go to.
    """
    for folder in arguments[:-1]:
        use(Path(folder))
    requests: SimpleQueue[bytes] = SimpleQueue()
    source = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)

    def read() -> None:
        for line in source:
            requests.put(line)
        for folder in arguments[:-1]:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(0)

    threading.Thread(target=read, name="requests", daemon=True).start()
    with open(int(arguments[-1]), "w", encoding="utf-8") as answers:
        while True:
            answers.write(json.dumps(bench_answer(json.loads(requests.get()))) + "\n")
            answers.flush()
