"""The line that a run shows while it goes on: how far, how good, how long still."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@runtime_checkable
class Advance(Protocol):
    """Moves the bar to `completed` and shows a note beside it."""

    def __call__(self, completed: int, note: str) -> None: ...


@contextmanager
def progress_bar(console: Console, title: str, *, total: int) -> Iterator[Advance]:
    """A progress bar on a terminal; elsewhere nothing is shown until the end."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=False) as progress:
        bar = progress.add_task(title, total=total, note="", visible=total > 0)

        def advance(completed: int, note: str) -> None:
            progress.update(bar, completed=completed, note=note)

        yield advance


def ratio_note(ratio: float | None) -> str:
    """Best time so far over the reference time, for people."""
    return "" if ratio is None else f"best {ratio:.3f} of the best simple placement"
