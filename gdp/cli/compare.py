"""`gdp compare`: placers x workloads x clusters, one table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gdp.candidate import Candidate
from gdp.cli.table import milliseconds, status_text
from gdp.measurement import Objective, Status
from gdp.runtime.verdict import Dispatch


def compare(
    workloads: Annotated[str, typer.Option(help="names of the catalog or MODELs, comma-separated")],
    clusters: Annotated[str, typer.Option(help="presets or YAML files, comma-separated")] = "p100x2,p100x4",
    policy: Annotated[str, typer.Option(help="the policy to compare")] = "gdp-tiny",
    budget: Annotated[int, typer.Option(min=1, max=65536, help="evaluations for the policy, local search and METIS many times, each")] = 64,
    samples: Annotated[int | None, typer.Option(min=1, max=65536, help="evaluations for the policy alone, where they shall differ")] = None,
    objective: Annotated[Objective, typer.Option(help="step_time, or bottleneck when steps are pipelined")] = "step_time",
    dispatch: Annotated[Dispatch, typer.Option(help="which ready op a device takes")] = "ready_order",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)] = 0,
    out: Annotated[Path | None, typer.Option(help="write the rows as JSON")] = None,
) -> None:
    """Simulate every placer on every workload and cluster; ratios are to the best single device."""
    import json

    from gdp.atomic_file import write_text
    from gdp.baselines.local_search import LocalSearch
    from gdp.baselines.metis import MetisManyTimes
    from gdp.baselines.random_placement import RandomPlacement
    from gdp.cli.candidates import SINGLE, ZERO_SHOT, policy_placer, simple_placers
    from gdp.cli.machine import resolve_cluster
    from gdp.cli.model import resolve_model
    from gdp.cli.report_data import environment
    from gdp.compare import candidates
    from gdp.runtime.simulator import Simulator

    runtime = Simulator(dispatch=dispatch)
    placers = {"random": RandomPlacement(seed=seed), **simple_placers(runtime=runtime, seed=seed, objective=objective)}
    placers["metis many times"] = MetisManyTimes(runtime=runtime, evaluations=budget, seed=seed, objective=objective)
    placers["local search"] = LocalSearch(runtime=runtime, evaluations=budget, seed=seed, objective=objective)
    placers[ZERO_SHOT] = policy_placer(policy, runtime=runtime, num_samples=samples or budget, seed=seed, objective=objective)
    machines = {name: resolve_cluster(name) for name in clusters.split(",")}
    console, progress = Console(), Console(stderr=True)
    by_cell: dict[tuple[str, str], list[Candidate]] = {}
    with progress.status("") as status:
        for workload in workloads.split(","):
            status.update(Text(f"capturing {workload}"))
            graph = resolve_model(workload).graph
            for machine, cluster in machines.items():
                status.update(Text(f"{workload} on {machine}: cell {len(by_cell) + 1} of {(workloads.count(',') + 1) * len(machines)}"))
                by_cell[workload, machine] = candidates(graph, cluster, placers, runtime=runtime)
    title = f"predicted ms ({objective.replace('_', ' ')}, {dispatch.replace('_', ' ')}); {budget} evaluations for a search, {samples or budget} for the policy {policy}"
    if not console.is_terminal:
        console = Console(width=160)
    console.print(_table(title, by_cell, list(placers), reference=SINGLE, objective=objective))
    if out is not None:
        rows = [
            {
                "workload": workload,
                "cluster": machine,
                "placer": answer.name,
                "status": answer.judged.status.name.lower(),
                f"{objective}_s": answer.objective_s(objective) if answer.judged.status == Status.OK else None,
                "evaluations": answer.placement.origin.evaluations,
                "wall_s": answer.wall_s,
            }
            for (workload, machine), answers in by_cell.items()
            for answer in answers
        ]
        document = {
            "policy": policy,
            "samples": samples or budget,
            "budget": budget,
            "dispatch": dispatch,
            "seed": seed,
            "environment": environment(),
        }
        write_text(out, json.dumps(document | {"rows": rows}, indent=1) + "\n")
        console.print(f"wrote {out}", markup=False)


def _table(
    title: str, by_cell: dict[tuple[str, str], list[Candidate]], placers: Sequence[str], *, reference: str, objective: Objective
) -> Table:
    """One row a cell, the fastest in bold; last the geometric means of ratios to `reference`, each over the cells in which both run."""
    table = Table(title=Text(title), title_justify="left", title_style="bold")
    for column in ("workload", "cluster"):
        table.add_column(column, no_wrap=True)
    for placer in placers:
        table.add_column(placer, justify="right")
    for (workload, machine), answers in by_cell.items():
        fastest = min(answer.objective_s(objective) for answer in answers)
        cells = [
            milliseconds(answer.objective_s(objective)) if answer.judged.status == Status.OK else status_text(answer.judged.status)
            for answer in answers
        ]
        bold = ["bold" if answer.objective_s(objective) == fastest else "" for answer in answers]
        table.add_row(Text(workload), Text(machine), *(Text(cell, style=style) for cell, style in zip(cells, bold, strict=True)))
    table.add_section()
    table.add_row("geometric mean", f"to {reference}", *(_mean(by_cell, placer, reference, objective) for placer in placers))
    return table


def _mean(by_cell: dict[tuple[str, str], list[Candidate]], placer: str, reference: str, objective: Objective) -> str:
    from gdp.compare import geometric_mean_ratio

    named = [{answer.name: answer for answer in answers} for answers in by_cell.values()]
    both = [cell for cell in named if cell[placer].judged.status == cell[reference].judged.status == Status.OK]
    if not both:
        return "-"
    mean = geometric_mean_ratio([cell[placer] for cell in both], [cell[reference] for cell in both], objective=objective)
    return f"{mean:.3f}" if len(both) == len(named) else f"{mean:.3f} ({len(both)} of {len(named)})"
