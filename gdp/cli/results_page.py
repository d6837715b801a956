"""The rows of a comparison as a Markdown page."""

from collections.abc import Mapping, Sequence
from typing import Any

Cell = tuple[str, str]


def results_page(
    settings: Mapping[str, Any],
    environment: Mapping[str, str],
    cells: Sequence[Cell],
    seconds: Mapping[tuple[str, Cell], float],
    bounds: Mapping[Cell, float],
    means: Mapping[str, Sequence[str]],
) -> str:
    """A table of geometric means, one row a placer, and one of all cells, milliseconds, the fastest in bold.

    `means` has, per placer, the columns over single, expert, best and bound, and the cells it runs in.
    """
    names = list(means)
    lines = [
        "# Results",
        "",
        "Written by `gdp compare --page`; simulated. " + ", ".join(f"{key} {value}" for key, value in settings.items()) + ".",
        "",
    ]
    lines += [
        "## Geometric means",
        "",
        "| placer | over single device | over expert | over best | over bound | runs in |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    lines += [f"| {name} | {' | '.join(means[name])} |" for name in names]
    lines += [
        "",
        "## Milliseconds per step",
        "",
        f"| workload | cluster | bound | {' | '.join(names)} |",
        "|---|---|" + "--:|" * (len(names) + 1),
    ]
    for cell in cells:
        best = min(seconds[name, cell] for name in names)
        times = [_bold(seconds[name, cell], best) for name in names]
        lines.append(f"| {cell[0]} | {cell[1]} | {_milliseconds(bounds[cell])} | {' | '.join(times)} |")
    lines += ["", "## Environment", "", *(f"- {key}: {value}" for key, value in environment.items())]
    return "\n".join(lines) + "\n"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}" if seconds < float("inf") else "-"


def _bold(seconds: float, best: float) -> str:
    return f"**{_milliseconds(seconds)}**" if seconds == best < float("inf") else _milliseconds(seconds)
