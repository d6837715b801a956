"""What the entry points have in common: how a process is asked to stop, its exit codes, and output that any terminal can show."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


class Terminated(BaseException):
    """SIGTERM came. Like `KeyboardInterrupt` no `Exception`, so that everything is cleaned up and nothing takes it for a mistake of its own."""


def end_with(run: Callable[[], int]) -> NoReturn:
    """Ends the process with the exit code that `run` returns: 130 when Ctrl-C, 143 when SIGTERM ended it, 141 when who reads the output has gone; no traceback.

    What the terminal's encoding lacks is printed as `?`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    former = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        code = 128 + signal.SIGPIPE
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still buffered would fail again when the interpreter ends
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except Terminated:
        code = 128 + signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, former)
    sys.exit(code)


@contextmanager
def stop_signal() -> Iterator[Callable[[], int]]:
    """Yields a function that tells which signal (SIGINT or SIGTERM) asked the run to stop, 0 if none did. A second one stops at once.

    The answer may change between two calls: ask once where two decisions must agree.
    """
    asked = [0]

    def handle(number: int, frame: FrameType | None) -> None:
        if asked[0]:
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated
        asked[0] = number
        os.write(
            2, b"stopping after this update or comparison; once more to stop at once\n"
        )  # a handler may interrupt a print, which must not be entered twice

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked[0]
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated
