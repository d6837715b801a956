"""Searches that only leave a mark, in processes of their own: `python -m tests.cli.slow_search FOLDER SECONDS`."""

import os
import sys
import time
from pathlib import Path

from gdp.cli.search_processes import search_in_processes
from gdp.errors import InputError

_folder, _seconds = Path(), 0.0


def prepare(folder: Path, seconds: float) -> None:
    global _folder, _seconds
    _folder, _seconds = folder, seconds


def search(number: int) -> None:
    (_folder / f"{number}.{os.getpid()}").touch()
    if number == 0:
        raise InputError("the disk is full")
    time.sleep(_seconds)


def run(folder: Path, seconds: float, *, first: int) -> bool:
    """Twelve searches from `first` on, two at a time; that of number 0 fails."""
    return search_in_processes(
        search,
        range(first, first + 12),
        num_processes=2,
        prepare=prepare,
        prepared_with=(folder, seconds),
        stopped=lambda: 0,
        advance=lambda done: None,
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]), float(sys.argv[2]), first=1)
