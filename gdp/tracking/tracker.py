"""Where the numbers of a run go, its tables, its pages, and what it was made from and left behind."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

Value = str | int | float | None
"""Of a cell of a table: every column holds one kind, or nothing."""


def finite(value: Value) -> Value:
    """`None` for a number that is not finite: JSON has none."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


@runtime_checkable
class Tracker(Protocol):
    """Takes what a run has to tell, step by step."""

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Records the numbers of one step; steps never decrease."""
        ...

    def table(self, name: str, rows: Sequence[Mapping[str, Value]], *, step: int) -> None:
        """Records a table of that step: all its rows have the same columns, and there is at least one."""
        ...

    def page(self, name: str, path: Path, *, step: int) -> None:
        """Shows an HTML page that stands by itself."""
        ...

    def uses(self, name: str, kind: Literal["model", "dataset"], files: Sequence[Path], *, facts: Mapping[str, str]) -> None:
        """Says what the run begins with: a policy, a corpus."""
        ...

    def checkpoint(self, name: str, folder: Path, *, facts: Mapping[str, str]) -> None:
        """Hands over the best checkpoint so far; `facts` say what it was made from."""
        ...

    def summarise(self, facts: Mapping[str, Value]) -> None:
        """Says how the run ended."""
        ...

    def close(self) -> None:
        """Ends the run: everything told is then on disk, or in the hands of the backend's own process."""
        ...


class Several:
    """Hands everything to several trackers."""

    def __init__(self, trackers: Sequence[Tracker]) -> None:
        self._trackers = tuple(trackers)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        for tracker in self._trackers:
            tracker.log(metrics, step=step)

    def table(self, name: str, rows: Sequence[Mapping[str, Value]], *, step: int) -> None:
        for tracker in self._trackers:
            tracker.table(name, rows, step=step)

    def page(self, name: str, path: Path, *, step: int) -> None:
        for tracker in self._trackers:
            tracker.page(name, path, step=step)

    def uses(self, name: str, kind: Literal["model", "dataset"], files: Sequence[Path], *, facts: Mapping[str, str]) -> None:
        for tracker in self._trackers:
            tracker.uses(name, kind, files, facts=facts)

    def checkpoint(self, name: str, folder: Path, *, facts: Mapping[str, str]) -> None:
        for tracker in self._trackers:
            tracker.checkpoint(name, folder, facts=facts)

    def summarise(self, facts: Mapping[str, Value]) -> None:
        for tracker in self._trackers:
            tracker.summarise(facts)

    def close(self) -> None:
        for tracker in self._trackers:
            tracker.close()
