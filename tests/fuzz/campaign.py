"""Many hostile inputs for one reader, fed by worker processes: a reader that dies or hangs ends its worker, never the campaign."""

import dataclasses
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.fuzz.mutant import HOSTILE_PATHS

_SILENCE_S = 300.0
"""Without a word for so long, a worker hangs where no signal reaches it."""

_START_S = 3600.0
"""Until a worker's first word: it loads libraries and reads the samples, which may take long on a busy machine and tells nothing of a reader."""

_ROOT = Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """An input that was neither refused in order nor read into a record that survives being written."""

    kind: str
    """`crash`, `hang` or `silent`."""
    index: int
    """number of the input; below 0 a path that cannot be read."""
    reason: str


@dataclasses.dataclass(kw_only=True)
class Figures:
    """What became of the inputs of one reader."""

    reader: str
    seed: int
    inputs: int = 0
    """paths that cannot be read among them."""
    refused: int = 0
    accepted: int = 0
    peak_bytes: int = 0
    """the most resident memory beyond what a worker had before its first input."""
    seconds: float = 0.0
    findings: list[Finding] = dataclasses.field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """As JSON: the counts, and the first findings of each reason."""
        kinds = {kind: sum(found.kind == kind for found in self.findings) for kind in ("crash", "hang", "silent")}
        first = {found.reason: found for found in reversed(self.findings)}
        return {
            "reader": self.reader,
            "seed": self.seed,
            "inputs": self.inputs,
            "refused": self.refused,
            "accepted": self.accepted,
            **kinds,
            "peak_bytes": self.peak_bytes,
            "seconds": round(self.seconds, 1),
            "findings": [dataclasses.asdict(found) for found in list(first.values())[:50]],
        }


def campaign(reader: str, *, seed: int, inputs: int, said: Callable[[Figures], None] = lambda figures: None) -> Figures:
    """Feeds the reader of that name `inputs` inputs; `said` is called with the figures so far whenever a worker speaks."""
    figures, start_s = Figures(reader=reader, seed=seed), time.perf_counter()
    first = -len(HOSTILE_PATHS)
    while first < inputs:
        room = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        with tempfile.TemporaryDirectory(prefix="gdp-fuzz-", dir=room) as folder:
            first = _one_worker(figures, first, inputs, Path(folder), lambda: said(figures))
    figures.seconds = time.perf_counter() - start_s
    return figures


def _one_worker(figures: Figures, first: int, end: int, folder: Path, said: Callable[[], None]) -> int:
    """Runs a worker from input `first` to its end, and returns the number of the input to go on with."""
    command = [sys.executable, "-m", "tests.fuzz.worker", figures.reader, str(figures.seed), str(first), str(end), str(folder)]
    before = (figures.inputs, figures.refused, figures.accepted)
    errors = folder / "errors"
    with open(errors, "wb") as log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=_ROOT, bufsize=0) as process:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            patience_s, fell_silent = _START_S, False
            while process.poll() is None or selector.select(0):
                if not selector.select(patience_s):
                    fell_silent = True
                    process.kill()
                    break
                line = process.stdout.readline()
                if not line:
                    break
                patience_s = _SILENCE_S
                words = json.loads(line)
                _note(figures, words, before)
                said()
                if words.get("done") == end - first:
                    process.kill()  # taking down the interpreter and its libraries takes time, and nothing depends on it
                    return end
        code = process.wait()
    now = folder / "now"
    text = now.read_bytes().strip() if now.exists() else b""
    if not text:
        raise RuntimeError(f"the worker for {figures.reader} ended with code {code}: {errors.read_text()[-2000:]}")
    index = int(text)
    why = "killed, without a word for too long" if fell_silent else f"the process ended with code {code}"
    figures.findings.append(Finding(kind="hang" if fell_silent else "crash", index=index, reason=f"{why}: {errors.read_text()[-200:]}"))
    figures.inputs = index + 1 + len(HOSTILE_PATHS)
    return index + 1


def _note(figures: Figures, line: dict[str, Any], before: tuple[int, int, int]) -> None:
    if "found" in line:
        figures.findings.append(Finding(kind=line["found"], index=line["index"], reason=line["reason"]))
        return
    figures.inputs = before[0] + line["done"]
    figures.refused = before[1] + line["refused"]
    figures.accepted = before[2] + line["accepted"]
    figures.peak_bytes = max(figures.peak_bytes, line["peak_bytes"])
