"""`gdp compare`: placers x workloads x clusters x seeds, one table with bounds."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gdp.bounded_file import is_absent
from gdp.cli.placers import POLICY, SEEDED, chosen
from gdp.cli.table import milliseconds
from gdp.compare.results import Cell, Results, Row, Settings, check_bound, policy_revisions, read_results, write_results
from gdp.compare.standings import CellKey, Standings
from gdp.errors import InputError, nearest_name_hint
from gdp.measurement import Objective
from gdp.runtime.verdict import Dispatch

_MOST_CELLS = 6
"""Tables of more cells show the means alone; all cells are in the file and on the page."""


def compare(
    workloads: Annotated[str, typer.Option(help="names of the catalog or MODELs, comma-separated; FAMILY:* stands for a whole family")],
    clusters: Annotated[str, typer.Option(help="presets or YAML files, comma-separated")] = "p100x2,p100x4",
    placers: Annotated[str, typer.Option(help="comma-separated, or all")] = "all",
    budget: Annotated[int, typer.Option(min=1, max=2**20, help="evaluations for every anytime placer")] = 64,
    samples: Annotated[
        int | None, typer.Option(min=1, max=65536, help="samples of zero-shot, where they shall differ from the budget")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="how often every placer that draws is asked; medians are shown")] = 1,
    policy: Annotated[str, typer.Option(help="the policy to compare")] = "gdp-tiny",
    objective: Annotated[Objective, typer.Option(help="step_time, or bottleneck when steps are pipelined")] = "step_time",
    dispatch: Annotated[
        Dispatch | None, typer.Option(help="which ready op a device takes; else as the framework of each graph has it")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="write what is found as JSON, piece by piece; what an earlier, equal command left there is kept")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="write the tables as Markdown, and two SVG files with the curves of best so far beside it")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=256, help="processes; else one a core")] = None,
) -> None:
    """Simulate every placer on every workload and cluster, with the same budget for all; lower bounds stand beside."""
    from gdp.cli.results_page import write_page

    names = chosen(placers)
    settings = Settings(policy=policy, samples=samples or budget, budget=budget, objective=objective, dispatch=dispatch)
    cells = [(workload, cluster) for workload in _workloads(workloads) for cluster in dict.fromkeys(clusters.split(","))]
    results = Results(settings=settings, environment={}, cells=[], rows=[])
    if out is not None and not is_absent(out):
        kept = read_results(out)
        if kept.settings != settings:
            raise InputError(f"--out names {out}, which holds a comparison of other settings; name another file")
        known = {cell.key for cell in kept.cells}
        results = kept.model_copy(
            update={"rows": [row for row in kept.rows if row.cell in known]}
        )  # of what graph the others are nobody knows
        _refuse_other_revision(results, out)
        _refuse_changed_files(results, cells, out)
    _find_out(results, cells, names, seeds=seeds, out=out, workers=workers or len(os.sched_getaffinity(0)))
    standings = Standings(results, cells, names, seeds=seeds)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(_table(settings, seeds, standings))
    if page is not None:
        for path in write_page(page, results, standings, seeds=seeds):
            console.print(f"wrote {path}", markup=False)
    if out is not None:
        write_results(out, results)
        console.print(f"wrote {out}", markup=False)


def _refuse_other_revision(results: Results, out: Path) -> None:
    """Rows of other weights under the same name are not compared with new ones."""
    from gdp.hub.load import resolve

    kept, policy = policy_revisions(results.rows), results.settings.policy
    if kept and kept != [now := resolve(policy).revision]:
        raise InputError(
            f"--out names {out}, which holds rows of {policy} at revision {', '.join(one[:12] for one in kept)}; it is at {now[:12]} now; name another file"
        )
    if any(row.placer in POLICY and row.status != "unknown" and row.revision is None for row in results.rows):
        raise InputError(f"--out names {out}, which holds rows of {policy} that do not say which revision it was; name another file")


def _refuse_changed_files(results: Results, cells: Sequence[CellKey], out: Path) -> None:
    """Rows of another graph or cluster under the same name are not compared with new ones. The catalog's graphs, which no file changes, are looked at where one is asked for."""
    from gdp.cli.machine import resolve_cluster
    from gdp.cli.model import resolve_model
    from gdp.workloads.catalog import CATALOG

    asked = set(cells)
    kept = [cell for cell in results.cells if cell.key in asked]
    own = {entry.name for entry in CATALOG}
    clusters = {name: resolve_cluster(name).sha256 for name in {cell.cluster for cell in kept}}
    graphs = {name: resolve_model(name).graph.sha256 for name in {cell.workload for cell in kept} - own}
    for cell in kept:
        if cell.cluster_sha256 != clusters[cell.cluster]:
            raise _other(out, cell.cluster)
        if cell.graph_sha256 != graphs.get(cell.workload, cell.graph_sha256):
            raise _other(out, cell.workload)


def _other(out: Path, name: str) -> InputError:
    return InputError(f"--out names {out}, which holds rows of {name} as it was before it changed; name another file")


def _workloads(text: str) -> list[str]:
    """The names in the list, `FAMILY:*` replaced by the family's. Raises `InputError` with the nearest family for one that is none."""
    from gdp.workloads.catalog import CATALOG

    found: list[str] = []
    for name in text.split(","):
        family, star, rest = name.partition(":*")
        if not star or rest:
            found.append(name)
            continue
        members = [entry.name for entry in CATALOG if entry.family == family]
        if not members:
            families = list(dict.fromkeys(entry.family for entry in CATALOG))
            hint = nearest_name_hint(family, families)
            raise InputError(f"there is no family {family!r}; {hint}known are {', '.join(families)}")
        found += members
    return list(dict.fromkeys(found))


def _find_out(results: Results, cells: Sequence[CellKey], names: Sequence[str], *, seeds: int, out: Path | None, workers: int) -> None:
    """Adds what the results lack, and keeps it in `out` as it comes."""
    from gdp.cli.cells import Question, answers
    from gdp.cli.machine import resolve_cluster
    from gdp.cli.progress import progress_bar
    from gdp.cli.report_data import environment
    from gdp.compare.results import continued_environment
    from gdp.hub.load import resolve

    known = {cell.key: cell for cell in results.cells}
    done = {row.key for row in results.rows}
    wanted: list[tuple[CellKey, str | None, int]] = [(cell, None, 0) for cell in cells if cell not in known]
    for cell in cells:
        wanted += [
            (cell, name, seed) for name in names for seed in range(seeds if name in SEEDED else 1) if (*cell, name, seed) not in done
        ]
    missing = [
        Question(workload=workload, cluster=cluster, placer=name, seed=seed, settings=results.settings)
        for (workload, cluster), name, seed in wanted
    ]
    if not missing:
        return
    revision = resolve(results.settings.policy).revision if any(name in POLICY for name in names) else None
    results.environment = continued_environment(environment(), results.environment)
    machines = {name: resolve_cluster(name) for name in dict.fromkeys(question.cluster for question in missing)}
    with progress_bar(Console(stderr=True), "compare", total=len(missing)) as advance:
        for number, (question, answer) in enumerate(answers(missing, machines, workers=min(workers, len(missing))), start=1):
            if question.cell in known and known[question.cell].graph_sha256 != answer.graph_sha256:
                assert out is not None
                raise _other(out, question.workload)
            _add(results, answer.found, revision=revision)
            if out is not None:
                write_results(out, results)
            advance(number, str(question))


def _add(results: Results, found: Cell | Row, *, revision: str | None) -> None:
    """What is in the results has passed: of the policy that was named, and not faster than can be."""
    if isinstance(found, Cell):
        for row in results.rows:
            if row.cell == found.key:
                check_bound(row, found)
        results.cells.append(found)
        return
    if found.revision not in (None, revision):
        raise InputError(f"{results.settings.policy} changed while it was compared; name a folder or a revision that stays")
    for cell in results.cells:
        if cell.key == found.cell:
            check_bound(found, cell)
    results.rows.append(found)


def _table(settings: Settings, seeds: int, standings: Standings) -> Table:
    """One row a placer; the fastest of each cell in bold; last the geometric means."""
    cells = standings.cells if len(standings.cells) <= _MOST_CELLS else []
    quantity = settings.objective.replace("_", " ")
    title = f"{quantity}, predicted ms; {settings.budget} evaluations for a search, {settings.samples} samples for zero-shot; policy {settings.policy}; {seeds} seeds"
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    table.add_column("placer", no_wrap=True)
    for workload, cluster in cells:
        table.add_column(Text(f"{workload} {cluster}"), justify="right")
    for column in ("over single", "over expert", "over best", "over bound", "runs in", "wall s"):
        table.add_column(column, justify="right")
    if cells:
        table.add_row("lower bound", *(milliseconds(standings.bound_s(cell)) for cell in cells), "", "", "", "", "", "")
    for name in standings.placers:
        own, standing = [standings.seconds[name, cell] for cell in cells], standings.standing(name)
        bold = [time == standings.best[cell] < float("inf") for time, cell in zip(own, cells, strict=True)]
        table.add_row(
            name,
            *(Text(milliseconds(time), style="bold" if best else "") for time, best in zip(own, bold, strict=True)),
            *(
                "-" if mean is None else f"{mean:.3f}"
                for mean in (standing.over_single, standing.over_expert, standing.over_best, standing.over_bound)
            ),
            f"{standing.runs_in}/{len(standings.cells)}",
            f"{standing.wall_s:.2f}",
        )
    return table
