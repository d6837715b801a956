"""Numbers and tables as lines of JSON, one a step: always there, readable while the run goes on."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from gdp.atomic_file import append, write_text, writing
from gdp.bounded_file import is_absent, read_bounded
from gdp.plain_json import parse_json
from gdp.tracking.tracker import Value, finite

METRICS, TABLES = "metrics.jsonl", "tables.jsonl"
_MAX_BYTES = 2**30


class JsonlTracker:
    """Appends `{"step": ..., name: number, ...}` to `metrics.jsonl` and `{"step": ..., "table": name, "rows": [...]}` to `tables.jsonl` of a run folder; a number that is not
    finite is written as null. Pages, checkpoints and what they were made from lie in the run folder already.

    Opened for a run that continues after step `resume_step`, it first drops what a killed run wrote beyond that step, a half-written line included.
    """

    def __init__(self, folder: Path, *, resume_step: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._metrics, self._tables = (_Lines(folder / name, resume_step) for name in (METRICS, TABLES))

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        self._metrics.add({"step": step, **{name: finite(value) for name, value in metrics.items()}})

    def table(self, name: str, rows: Sequence[Mapping[str, Value]], *, step: int) -> None:
        cells = [{column: finite(value) for column, value in row.items()} for row in rows]
        self._tables.add({"step": step, "table": name, "rows": cells})

    def page(self, name: str, path: Path, *, step: int) -> None:
        pass

    def uses(self, name: str, kind: Literal["model", "dataset"], files: Sequence[Path], *, facts: Mapping[str, str]) -> None:
        pass

    def checkpoint(self, name: str, folder: Path, *, facts: Mapping[str, str]) -> None:
        pass

    def summarise(self, facts: Mapping[str, Value]) -> None:
        pass

    def close(self) -> None:
        self._metrics.close()
        self._tables.close()


class _Lines:
    """A file of JSON lines, open at its end."""

    def __init__(self, path: Path, resume_step: int) -> None:
        write_text(path, "".join(_kept(path, resume_step)))
        with writing(path):
            self._file = open(path, "ab", buffering=0)

    def add(self, line: Mapping[str, object]) -> None:
        append(self._file, json.dumps(line, allow_nan=False).encode() + b"\n")

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
