"""The results of a comparison as a Markdown page, with two drawings beside it."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from gdp.atomic_file import write_text
from gdp.cli.placers import SEARCHES
from gdp.compare.results import Results, policy_revisions
from gdp.compare.separation import SEPARATES, Separation, separation
from gdp.compare.standings import EXPERT, SAME, SINGLE_DEVICE, CellKey, Standing, Standings, means_by
from gdp.report.budget_curves import BudgetCurve, Level, Panel, budget_chart, budget_grid
from gdp.workloads.catalog import CATALOG

_LEVELS = (SINGLE_DEVICE, EXPERT, "metis", "heft", "list-scheduling")
"""The placers that stand in the chart as lines."""
_POINTS = 40


def write_page(page: Path, results: Results, standings: Standings, *, seeds: int) -> list[Path]:
    """Writes the page, and beside it `NAME-mean.svg` and `NAME-cells.svg` where any placer searched; returns what it wrote."""
    written, drawings = [], []
    searches = [placer for placer in standings.placers if placer in SEARCHES]
    if searches:
        budget = max(results.settings.budget, results.settings.samples)
        evaluations = sorted({round(count) for count in np.geomspace(1, budget, _POINTS).tolist()})
        for suffix, drawing in (
            ("mean", budget_chart(_mean_panel(standings, searches, evaluations), evaluations)),
            (
                "cells",
                budget_grid([_cell_panel(standings, searches, cell, evaluations) for cell in standings.timed], evaluations, columns=3),
            ),
        ):
            path = page.with_name(f"{page.stem}-{suffix}.svg")
            write_text(path, drawing)
            written.append(path)
            drawings.append(path.name)
    write_text(page, "\n".join(_lines(results, standings, drawings, seeds)) + "\n")
    return [page, *written]


def _lines(results: Results, standings: Standings, drawings: Sequence[str], seeds: int) -> list[str]:
    settings = results.settings
    revisions = ", ".join(_plain(one[:12]) for one in policy_revisions(results.rows))
    same_budget = "" if settings.samples == settings.budget else f" ({settings.samples} samples for zero-shot)"
    lines = [
        "# Results",
        "",
        f"Written by `gdp compare --page`. {len(standings.cells)} cells (workload x cluster), {len(standings.placers)} placers, simulated: "
        f"{settings.objective.replace('_', ' ')}, {settings.budget} evaluations for every placer that searches{same_budget}, "
        f"as the simulator counted them; medians of {seeds} {'seed' if seeds == 1 else 'seeds'}; policy {_plain(settings.policy)}{f' at {revisions}' if revisions else ''}.",
        "",
        "## Geometric means",
        "",
        "Ratios are over the cells in which both run; below 1 is faster. *Best* is the best placer of the cell; *best in* counts the cells in which nobody is "
        f"faster by more than {100 * SAME:g} %; *spread* is the slowest seed over the fastest; *evaluations* is the most in any cell; *wall* the median seconds to answer, "
        "several at a time on the machine's cores.",
        "",
        *_table(
            (
                "placer",
                "over single",
                "over expert",
                "over best",
                "worst cell",
                "over bound",
                "best in",
                "runs in",
                "spread",
                "evaluations",
                "wall s",
            ),
            [_standing(standings.standing(placer), len(standings.cells)) for placer in standings.placers],
        ),
        "",
    ]
    if drawings:
        lines += ["Best so far against evaluations, geometric mean over cells and seeds (band: from the worst to the best seed):", ""]
        lines += [f"![best so far, mean over cells]({drawings[0]})", ""]
    if SINGLE_DEVICE in standings.placers:
        lines += _separations([separation(standings, cell, searches=SEARCHES) for cell in standings.timed if cell in standings.facts])
    split = {entry.name: entry.split for entry in CATALOG}
    groupings = {
        "workload": {cell: cell[0] for cell in standings.cells},
        "cluster": {cell: cell[1] for cell in standings.cells},
        "split": {cell: split.get(cell[0], "not of the catalog") for cell in standings.cells},
    }
    for title, group_of in groupings.items():
        groups = means_by(standings, group_of, standings.placers)
        if len(groups) > 1:
            lines += [
                f"## By {title}",
                "",
                "Geometric mean over the best of each cell; the least in bold.",
                "",
                *_groups(title, groups),
                "",
            ]
    lines += ["## Milliseconds per step", "", *_milliseconds_table(standings), ""]
    if drawings:
        lines += ["## Curves", "", "Over the best of each cell.", "", f"![best so far, cell by cell]({drawings[1]})", ""]
    return [*lines, "## Environment", "", *(f"- {_plain(key)}: {_plain(value)}" for key, value in results.environment.items())]


def _standing(of: Standing, num_cells: int) -> list[str]:
    return [
        of.placer,
        *(_ratio(value) for value in (of.over_single, of.over_expert, of.over_best, of.worst_over_best, of.over_bound)),
        str(of.best_in),
        f"{of.runs_in}/{num_cells}",
        _ratio(of.spread),
        str(of.evaluations),
        f"{of.wall_s:.2f}",
    ]


def _separations(found: Sequence[Separation]) -> list[str]:
    counts = {verdict: sum(one.verdict == verdict for one in found) for verdict in ("search", "rule", "cut", "nothing")}
    return [
        "## Which cells separate methods",
        "",
        f"How much slower than the best placer of the cell (times): one device, METIS once, the best placer that does not search. From {SEPARATES} on, a cell separates. "
        f"Of {len(found)} cells, {counts['search']} reward search, in {counts['rule']} a placer that does not search is enough, in {counts['cut']} a minimum cut, "
        f"and {counts['nothing']} separate nothing from one device. *Parallelism* is the seconds of all ops over those of the longest path.",
        "",
        *_table(
            ("workload", "cluster", "parallelism", "single device", "METIS once", "best rule", "best over bound", "best placer", "rewards"),
            [
                [
                    *map(_plain, one.cell),
                    f"{one.parallelism:.2f}",
                    *(_ratio(value) for value in (one.over_single, one.over_metis, one.over_rules, one.over_bound)),
                    one.best or "-",
                    one.verdict,
                ]
                for one in found
            ],
            text_columns=2,
        ),
        "",
    ]


def _groups(title: str, groups: Mapping[str, Mapping[str, float | None]]) -> list[str]:
    placers = list(next(iter(groups.values())))
    rows = []
    for group, means in groups.items():
        least = min((mean for mean in means.values() if mean is not None), default=None)
        rows.append([_plain(group), *(_bold(_ratio(mean), mean is not None and mean == least) for mean in means.values())])
    return _table((title, *placers), rows)


def _milliseconds_table(standings: Standings) -> list[str]:
    rows = []
    for cell in standings.cells:
        times = [standings.seconds[placer, cell] for placer in standings.placers]
        shown = [_bold(_milliseconds(time), time == standings.best[cell] < np.inf) for time in times]
        rows.append([*map(_plain, cell), _milliseconds(standings.bound_s(cell)), *shown])
    return _table(("workload", "cluster", "bound", *standings.placers), rows, text_columns=2)


def _mean_panel(standings: Standings, searches: Sequence[str], evaluations: Sequence[int]) -> Panel:
    curves = []
    for placer in searches:
        found = standings.best_so_far(placer, evaluations)
        if found is not None:
            curves.append(BudgetCurve(name=placer, best=found.mean, low=found.low, high=found.high))
    means = {placer: standings.standing(placer).over_best for placer in _LEVELS if placer in standings.placers}
    levels = [Level(name=placer, value=mean) for placer, mean in means.items() if mean is not None]
    return Panel(title="over the best placer, geometric mean", curves=curves, levels=levels)


def _cell_panel(standings: Standings, searches: Sequence[str], cell: CellKey, evaluations: Sequence[int]) -> Panel:
    best_s = standings.best[cell]
    curves = []
    for placer in searches:
        seconds = standings.best_so_far_s(placer, cell, evaluations) / best_s
        if len(seconds):
            curves.append(BudgetCurve(name=placer, best=np.median(seconds, axis=0), low=seconds.min(axis=0), high=seconds.max(axis=0)))
    levels = [Level(name=placer, value=standings.seconds[placer, cell] / best_s) for placer in _LEVELS if placer in standings.placers]
    return Panel(title=f"{cell[0]} {cell[1]}", curves=curves, levels=levels)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 1) -> list[str]:
    """A Markdown table; all but the first columns are aligned as numbers."""
    align = ["---"] * text_columns + ["--:"] * (len(head) - text_columns)
    return [_line(head), _line(align), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """A name as Markdown that shows its characters: none of them is a tag, a link or emphasis, or ends a cell or a line."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return re.sub(r"[\\`*\[\]<>&|~]", r"\\\g<0>", printable)


def _ratio(value: float | None) -> str:
    return "-" if value is None or not np.isfinite(value) else f"{value:.3f}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.4g}" if np.isfinite(seconds) else "-"


def _bold(shown: str, best: bool) -> str:
    return f"**{shown}**" if best else shown
