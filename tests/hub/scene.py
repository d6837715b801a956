"""Expressions evaluated in a process of their own, which knows the hub of the test: the Hub's address and cache are read when its library is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[2]

_PROGRAM = """
import json, os, sys
answers, sys.stdout = sys.stdout, sys.stderr
import gdp.hub
from gdp.errors import InputError
from pathlib import Path
for line in sys.stdin:
    token, expression = json.loads(line)
    os.environ.pop("HF_TOKEN", None)
    if token:
        os.environ["HF_TOKEN"] = token
    try:
        answer = ["ok", str(eval(expression))]
    except InputError as error:
        answer = ["refused", str(error)]
    print(json.dumps(answer), file=answers, flush=True)
"""


class Scene:
    """One process that knows the hub at `address` and keeps its cache under `home`."""

    def __init__(self, address: str, home: Path, *, offline: bool = False) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        settings = {
            "HF_ENDPOINT": address,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }
        settings |= {"HF_HUB_OFFLINE": "1"} if offline else {}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=home.parent, env=kept | settings
        )

    def ask(self, *expressions: str, token: str | None = "hf_test") -> list[tuple[str, str]]:
        """What each yields: `ok` and its text, or `refused` and the sentence."""
        assert self._process.stdin is not None and self._process.stdout is not None
        answers = []
        for expression in expressions:
            self._process.stdin.write(json.dumps([token, expression]) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            assert line, f"the process ended at {expression}; what it said is above"
            answers.append(tuple(json.loads(line)))
        return answers

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.kill()
        self._process.wait()
