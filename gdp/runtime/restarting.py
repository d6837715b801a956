"""A measuring process that is started when it is first asked, and anew after every failure."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gdp.measurement import Status
from gdp.runtime.process import Child, ChildFailed

_START_TIMEOUT_S = 300.0
"""Time for a fresh worker to import its framework, load the program and run it once."""


class RestartingWorker:
    """A worker process of one program (`gdp.runtime.serving`), and the folder of files it gets the program from."""

    def __init__(self, module: str, *, environment: Mapping[str, str], timeout_s: float) -> None:
        """`module` is run as `python -m module FOLDER FD`, with the variables of `environment` over those of this process. `timeout_s` bounds each answer."""
        self.folder = Path(tempfile.mkdtemp(prefix="gdp-"))
        self._module = module
        self._environment = dict(environment)
        self._timeout_s = timeout_s
        self._load_request: dict[str, Any] = {}
        self._child: Child | None = None
        self._loaded_ops: tuple[str, ...] = ()

    @property
    def pid(self) -> int | None:
        """Process number; none before the first request and after a failure."""
        return None if self._child is None else self._child.pid

    @property
    def timeout_s(self) -> float:
        return self._timeout_s

    def loads(self, load_request: Mapping[str, Any]) -> None:
        """What a fresh worker is asked to load, beside the names of the ops."""
        self._load_request = dict(load_request)

    def ask_about(self, ops: Sequence[str], request: Mapping[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        """The answer of a worker that has loaded the program, its ops numbered as in `ops`. Raises `ChildFailed`; then the worker has ended."""
        if self._child is None or self._loaded_ops != tuple(ops):
            self.end()
            environment = {**os.environ, **self._environment, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
            self._child = Child([sys.executable, "-m", self._module, str(self.folder)], environment=environment)
            self._ask({"command": "load", **self._load_request, "ops": list(ops)}, timeout_s=max(self._timeout_s, _START_TIMEOUT_S))
            self._loaded_ops = tuple(ops)
        return self._ask(request, timeout_s=self._timeout_s if timeout_s is None else timeout_s)

    def end(self) -> None:
        """Ends the process; the next request starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def close(self) -> None:
        """Ends the process and removes its files."""
        self.end()
        shutil.rmtree(self.folder, ignore_errors=True)

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
