"""Numbers as lines of JSON, one a step: always there, readable while the run goes on."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from gdp.atomic_file import append, write_text, writing
from gdp.bounded_file import is_absent, read_bounded
from gdp.plain_json import parse_json

_MAX_BYTES = 2**30


class JsonlTracker:
    """Appends `{"step": ..., name: number, ...}` to a file; a number that is not finite is written as null.

    Opened for a run that continues after step `resume_step`, it first drops what a killed run wrote beyond that step, a half-written line included.
    """

    def __init__(self, path: Path, *, resume_step: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "".join(_kept(path, resume_step)))
        with writing(path):
            self._file = open(path, "ab", buffering=0)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        numbers = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        append(self._file, json.dumps({"step": step, **numbers}).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def _kept(path: Path, resume_step: int) -> list[str]:
    """The lines of an earlier part of the run up to that step; what is no such line is dropped."""
    if is_absent(path):
        return []
    text = read_bounded(path, what="the metrics file", advice="move it away", max_bytes=_MAX_BYTES).decode(errors="replace")
    lines = []
    for line in text.splitlines():
        try:
            row = parse_json(line.encode())
        except ValueError:
            continue
        if isinstance(row, dict) and type(row.get("step")) is int and row["step"] <= resume_step:
            lines.append(line + "\n")
    return lines
