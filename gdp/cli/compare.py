"""`gdp compare`: placers x workloads x clusters x seeds, one table with bounds."""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gdp.atomic_file import write_text
from gdp.cli.placers import SEEDED, Setting, chosen, placer
from gdp.cli.results_page import Cell, results_page
from gdp.cli.table import milliseconds
from gdp.errors import InputError
from gdp.measurement import Objective
from gdp.runtime.verdict import Dispatch

SINGLE = "single-device"
_MOST_CELLS = 6
"""Tables of more cells show the means alone; all cells are in the file."""


def compare(
    workloads: Annotated[str, typer.Option(help="names of the catalog or MODELs, comma-separated")],
    clusters: Annotated[str, typer.Option(help="presets or YAML files, comma-separated")] = "p100x2,p100x4",
    placers: Annotated[str, typer.Option(help="comma-separated, or all")] = "all",
    budget: Annotated[int, typer.Option(min=1, max=2**20, help="evaluations for every anytime placer, the policy among them")] = 64,
    samples: Annotated[int | None, typer.Option(min=1, max=65536, help="evaluations for the policy alone, where they shall differ")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="how often every placer that draws is asked; medians are shown")] = 1,
    policy: Annotated[str, typer.Option(help="the policy to compare")] = "gdp-tiny",
    objective: Annotated[Objective, typer.Option(help="step_time, or bottleneck when steps are pipelined")] = "step_time",
    dispatch: Annotated[
        Dispatch | None, typer.Option(help="which ready op a device takes; else as the framework of each graph has it")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="write the rows as JSON, cell by cell; what an earlier, equal command left there is kept")
    ] = None,
    page: Annotated[Path | None, typer.Option(help="write the tables as Markdown, too")] = None,
) -> None:
    """Simulate every placer on every workload and cluster, with the same budget for all; lower bounds stand beside."""
    from gdp.cli.report_data import environment

    names = chosen(placers)
    settings = {
        "policy": policy,
        "samples": samples or budget,
        "budget": budget,
        "seeds": seeds,
        "objective": objective,
        "dispatch": dispatch,
    }
    document: dict[str, Any] = {**settings, "environment": environment(), "rows": _kept(out, settings)}
    console, progress = Console(), Console(stderr=True)
    cells = [(workload, cluster) for workload in workloads.split(",") for cluster in clusters.split(",")]
    asked = Setting(
        runtime=_simulator(dispatch or "ready_order"),
        budget=budget,
        seed=0,
        objective=objective,
        policy=policy,
        samples=samples or budget,
        family=None,
    )
    with progress.status("") as status:
        for row in _missing(cells, names, seeds, document["rows"], asked, dispatch, status):
            document["rows"].append(row)
            if out is not None:
                _write(out, document)
    wanted = [
        row for row in document["rows"] if (row["workload"], row["cluster"]) in cells and row["placer"] in names and row["seed"] < seeds
    ]
    if not console.is_terminal:
        console = Console(width=160)
    title = f"{objective.replace('_', ' ')}, predicted ms; {budget} evaluations for a search, {samples or budget} for the policy {policy}; {seeds} seeds"
    figures = _figures(cells, names, wanted)
    console.print(_table(title, cells, figures))
    if page is not None:
        text = results_page(settings, document["environment"], cells, figures.seconds, figures.bounds, figures.means)
        write_text(page, text)
        console.print(f"wrote {page}", markup=False)
    if out is not None:
        _write(out, document)
        console.print(f"wrote {out}", markup=False)


def _missing(
    cells: Sequence[Cell],
    names: Sequence[str],
    seeds: int,
    known: list[dict[str, Any]],
    asked: Setting,
    dispatch: Dispatch | None,
    status: Any,
) -> Iterator[dict[str, Any]]:
    """The rows that are not known yet, one after the other."""
    from gdp.baselines.bounds import lower_bound
    from gdp.cli.machine import resolve_cluster
    from gdp.cli.model import resolve_model
    from gdp.compare import candidates
    from gdp.workloads.catalog import CATALOG

    done = {(row["workload"], row["cluster"], row["placer"], row["seed"]) for row in known}
    machines = {name: resolve_cluster(name) for name in dict.fromkeys(cluster for _, cluster in cells)}
    family = {entry.name: entry.family for entry in CATALOG}
    model, captured = None, ""
    for number, (workload, machine) in enumerate(cells, start=1):
        missing = [
            (name, seed) for name in names for seed in range(seeds if name in SEEDED else 1) if (workload, machine, name, seed) not in done
        ]
        if not missing:
            continue
        if captured != workload or model is None:
            status.update(Text(f"capturing {workload}"))
            model, captured = resolve_model(workload), workload
        runtime = _simulator(dispatch or model.dispatch)
        bound = lower_bound(model.graph, machines[machine], objective=asked.objective)
        for name, seed in missing:
            status.update(Text(f"{workload} on {machine} (cell {number} of {len(cells)}): {name}"))
            built = placer(name, dataclasses.replace(asked, runtime=runtime, seed=seed, family=family.get(workload)))
            row = {"workload": workload, "cluster": machine, "placer": name, "seed": seed, "num_ops": model.graph.num_ops}
            row |= {"bound_s": bound.value_s if np.isfinite(bound.value_s) else None, "bound": bound.bound}
            if built is None:
                yield row | {"status": "unknown", f"{asked.objective}_s": None, "evaluations": 0, "wall_s": 0.0}
                continue
            (answer,) = candidates(model.graph, machines[machine], {name: built}, runtime=runtime)
            seconds = answer.objective_s(asked.objective)
            yield row | {
                "status": answer.judged.status.name.lower(),
                f"{asked.objective}_s": seconds if np.isfinite(seconds) else None,
                "evaluations": answer.placement.origin.evaluations,
                "wall_s": answer.wall_s,
            }


def _simulator(dispatch: Dispatch) -> Any:
    from gdp.runtime.simulator import Simulator

    return Simulator(dispatch=dispatch)


def _kept(out: Path | None, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of an earlier command of the same settings; none where there is no such file."""
    if out is None or not out.exists():
        return []
    try:
        document = json.loads(out.read_bytes())
        rows = document["rows"]
        same = all(document[name] == value for name, value in settings.items())
        complete = all(
            {"workload", "cluster", "placer", "seed", "status", "bound_s", f"{settings['objective']}_s"} <= set(row) for row in rows
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"--out names {out}, which is no file of `gdp compare` ({type(error).__name__}); name another") from error
    if not same or not complete:
        raise InputError(f"--out names {out}, which holds a comparison of other settings; name another file")
    return list(rows)


def _write(out: Path, document: dict[str, Any]) -> None:
    write_text(out, json.dumps(document, indent=1, allow_nan=False) + "\n")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Figures:
    """What the tables show."""

    seconds: dict[tuple[str, Cell], float]
    """by placer and cell; infinite where the placer has no placement that runs."""
    bounds: dict[Cell, float]
    best: dict[Cell, float]
    means: dict[str, tuple[str, ...]]
    """per placer: geometric means over single device, expert, best and bound, each over the cells in which both run, and the cells it runs in."""


def _figures(cells: Sequence[Cell], names: Sequence[str], rows: Sequence[dict[str, Any]]) -> _Figures:
    times: dict[tuple[str, Cell], list[float]] = {(name, cell): [] for name in names for cell in cells}
    for row in rows:
        value = next(row[key] for key in ("step_time_s", "bottleneck_s") if key in row)
        times[row["placer"], (row["workload"], row["cluster"])].append(np.inf if value is None else value)
    seconds = {key: float(np.median(found)) if found else np.inf for key, found in times.items()}
    bounds = {(row["workload"], row["cluster"]): row["bound_s"] or np.nan for row in rows}
    best = {cell: min(seconds[name, cell] for name in names) for cell in cells}
    means = {}
    for name in names:
        own = {cell: seconds[name, cell] for cell in cells}
        references = [{cell: seconds.get((other, cell), np.inf) for cell in cells} for other in (SINGLE, "expert")]
        ratios = [_mean_ratio(own, reference) for reference in (*references, best, bounds)]
        means[name] = (*ratios, f"{sum(np.isfinite(value) for value in own.values())}/{len(cells)}")
    return _Figures(seconds=seconds, bounds=bounds, best=best, means=means)


def _table(title: str, cells: Sequence[Cell], figures: _Figures) -> Table:
    """One row a placer; the fastest of each cell in bold; last the geometric means."""
    shown = cells if len(cells) <= _MOST_CELLS else []
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    table.add_column("placer", no_wrap=True)
    for workload, cluster in shown:
        table.add_column(f"{workload} {cluster}", justify="right")
    for column in ("over single", "over expert", "over best", "over bound", "runs in"):
        table.add_column(column, justify="right")
    if shown:
        table.add_row("lower bound", *(milliseconds(figures.bounds[cell]) for cell in shown), "", "", "", "", "")
    for name, means in figures.means.items():
        times = [figures.seconds[name, cell] for cell in shown]
        bold = [time == figures.best[cell] < np.inf for time, cell in zip(times, shown, strict=True)]
        table.add_row(
            name, *(Text(milliseconds(time), style="bold" if best else "") for time, best in zip(times, bold, strict=True)), *means
        )
    return table


def _mean_ratio(own: dict[Cell, float], reference: dict[Cell, float]) -> str:
    from gdp.compare import geometric_mean_ratio

    mean = geometric_mean_ratio(list(own.values()), [reference[cell] for cell in own])
    return "-" if mean is None else f"{mean:.3f}"
