"""A child process that answers requests, and whose crash, hang or nonsense is an answer, too.

A request and its answer are each one line of JSON. The child's standard output belongs to whatever it runs; answers come over a pipe of their own. Its standard error goes to
a file whose last line explains a crash.
"""

import errno
import json
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from gdp.measurement import Status

_MAX_ANSWER_BYTES = 2**28

_LAST_WORDS_BYTES = 2**16

_ENDING_S = 1.0
"""Time for a child that has closed its pipe to end by itself, and so to say why."""

_LOOK_S = 1.0
"""How often a silent child is looked at: what it started may hold its pipe open after its end."""


class ChildFailed(Exception):
    """The child did not answer, and is gone. `status` says how."""

    def __init__(self, status: Status, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Child:
    """A running child process in a session of its own. Raises `ChildFailed` when the system refuses to start it."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], inherited: Sequence[int] = ()) -> None:
        """The child is given the open files `inherited`, beside the pipe for answers, whose number is the last argument of its command."""
        try:
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 # without a name, so that nothing is left of it however this process ends
        except OSError as error:
            raise _not_started(error) from error
        try:
            self._answers, write_end = os.pipe()
        except OSError as error:
            self._errors.close()
            raise _not_started(error) from error
        self._buffer = bytearray()
        self._oom_kills = _oom_kills()
        try:
            self._process = subprocess.Popen(
                [*command, str(write_end)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env={**environment},
                bufsize=0,
                pass_fds=(write_end, *inherited),
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._answers)
            self._errors.close()
            raise _not_started(error) from error
        finally:
            os.close(write_end)
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        """The child's answer. Raises `ChildFailed`, and ends the child, when there is none within the time or it makes no sense."""
        deadline = monotonic() + timeout_s
        if self._buffer or _has_data(self._answers):
            raise self._failure(Status.FAILED, "answered before it was asked")
        self._send(json.dumps(request).encode() + b"\n", deadline, timeout_s)
        line = self._read_line(deadline, timeout_s)
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise self._failure(Status.FAILED, f"gave an answer that is no JSON: {line[:80]!r}") from None
        if not isinstance(answer, dict):
            raise self._failure(Status.FAILED, f"gave an answer that is no JSON object: {line[:80]!r}")
        return answer

    def close(self) -> None:
        """Ends the child and everything it started."""
        if self._process.returncode is None:  # until it is waited for, its number names its group and no other
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._process.wait()
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        self._errors.close()

    def _send(self, line: bytes, deadline: float, timeout_s: float) -> None:
        assert self._process.stdin is not None
        left = memoryview(line)
        while left:
            if not self._ready(self._process.stdin.fileno(), select.POLLOUT, deadline):
                raise self._failure(Status.TIMED_OUT, f"did not take its request within {timeout_s:g} s")
            try:
                left = left[os.write(self._process.stdin.fileno(), left) :]
            except BlockingIOError:
                continue
            except BrokenPipeError:
                raise self._failure(Status.FAILED, "ended before it was asked") from None

    def _read_line(self, deadline: float, timeout_s: float) -> bytes:
        end = -1
        while end < 0:
            if not self._ready(self._answers, select.POLLIN, deadline):
                raise self._failure(Status.TIMED_OUT, f"did not answer within {timeout_s:g} s")
            part = os.read(self._answers, 2**16)
            if not part:
                raise self._failure(Status.FAILED, "ended")
            end = part.find(b"\n")
            end += len(self._buffer) if end >= 0 else 0
            self._buffer += part
            if len(self._buffer) > _MAX_ANSWER_BYTES:
                raise self._failure(Status.FAILED, f"gave an answer of over {_MAX_ANSWER_BYTES} bytes")
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def _ready(self, descriptor: int, event: int, deadline: float) -> bool:
        """Waits until something can be written to or read from a pipe; False when the deadline comes first. Raises `ChildFailed` when the child has ended without a word."""
        poll = select.poll()
        poll.register(descriptor, event)
        while (left_s := deadline - monotonic()) > 0:
            if poll.poll(min(left_s, _LOOK_S) * 1000):
                return True
            if self._end(0.0) is not None and not poll.poll(0):
                raise self._failure(Status.FAILED, "ended")
        return False

    def _end(self, within_s: float) -> int | None:
        """The exit code, or the signal less than 0, if the child ends within the time. It is not waited for, so that its number stays its own."""
        deadline = monotonic() + within_s
        while True:
            ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            if ended is not None:
                return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            if monotonic() >= deadline:
                return None
            sleep(0.01)

    def _failure(self, status: Status, what: str) -> ChildFailed:
        if what.startswith("ended"):
            code = self._end(_ENDING_S)
            if code is None:
                what = "closed its pipe"
            elif code == -signal.SIGKILL and _oom_kills() > self._oom_kills:
                status, what = Status.OUT_OF_MEMORY, "was killed by the system for lack of memory"
            elif code < 0:
                known = {each.value: each.name for each in signal.Signals}
                what += f" by signal {known.get(-code, -code)}"
            else:
                what += f" with exit code {code}"
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
        errors = self._errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        return ChildFailed(
            status, f"the measuring process {what}" + (f": {errors[-1][:500]}" if errors and status == Status.FAILED else "")
        )


def _not_started(error: OSError) -> ChildFailed:
    status = Status.OUT_OF_MEMORY if error.errno == errno.ENOMEM else Status.FAILED
    return ChildFailed(status, f"the measuring process could not be started: {error.strerror}")


def _has_data(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))


def _oom_kills() -> int:
    """How many processes the system has killed for lack of memory since it started."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
