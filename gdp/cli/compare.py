"""`gdp compare`: placers x workloads x clusters, one table."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gdp.measurement import Objective


def compare(
    workloads: Annotated[str, typer.Option(help="names of the catalog or MODELs, comma-separated")],
    clusters: Annotated[str, typer.Option(help="presets or YAML files, comma-separated")] = "p100x2,p100x4",
    policy: Annotated[str, typer.Option(help="the policy to compare")] = "gdp-tiny",
    samples: Annotated[int, typer.Option(min=1, max=65536)] = 64,
    budget: Annotated[int, typer.Option(min=0, help="evaluations for local search and for METIS many times; 0 leaves them out")] = 0,
    objective: Annotated[Objective, typer.Option()] = "step_time",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path | None, typer.Option(help="write the rows as JSON")] = None,
) -> None:
    """Simulate every placer on every workload and cluster; ratios are to the best single device."""
    import json

    from gdp.atomic_file import write_text
    from gdp.baselines.local_search import LocalSearch
    from gdp.baselines.metis import MetisManyTimes
    from gdp.candidate import Candidate
    from gdp.cli.candidates import ZERO_SHOT, policy_placer, simple_placers
    from gdp.cli.machine import resolve_cluster
    from gdp.cli.model import resolve_model
    from gdp.cli.table import milliseconds
    from gdp.compare import candidates, geometric_mean_ratio
    from gdp.runtime.simulator import Simulator

    runtime = Simulator()
    placers = simple_placers(runtime=runtime, seed=seed, objective=objective)
    if budget:
        placers["metis many times"] = MetisManyTimes(runtime=runtime, evaluations=budget, seed=seed, objective=objective)
        placers["local search"] = LocalSearch(runtime=runtime, evaluations=budget, seed=seed, objective=objective)
    placers[ZERO_SHOT] = policy_placer(policy, runtime=runtime, num_samples=samples, seed=seed, objective=objective)
    graphs = {name: resolve_model(name).graph for name in workloads.split(",")}
    machines = {name: resolve_cluster(name) for name in clusters.split(",")}

    table = Table(title=f"predicted ms ({objective}); policy {policy} with {samples} samples", title_justify="left", title_style="bold")
    for column in ("workload", "cluster", *placers):
        table.add_column(column, justify="left" if column in ("workload", "cluster") else "right")
    by_placer: dict[str, list[Candidate]] = {name: [] for name in placers}
    rows = []
    console = Console()
    with console.status("") as status:
        for workload, graph in graphs.items():
            for machine, cluster in machines.items():
                status.update(f"{workload} on {machine}")
                answers = candidates(graph, cluster, placers, runtime=runtime)
                seconds = {answer.name: answer.objective_s(objective) for answer in answers}
                fastest = min(seconds.values())
                table.add_row(workload, machine, *(_emphasised(milliseconds(value), value == fastest) for value in seconds.values()))
                for answer in answers:
                    by_placer[answer.name].append(answer)
                    rows.append(
                        {
                            "workload": workload,
                            "cluster": machine,
                            "placer": answer.name,
                            "status": answer.judged.status.name.lower(),
                            f"{objective}_s": seconds[answer.name] if answer.judged.status == 0 else None,
                            "evaluations": answer.placement.origin.evaluations,
                            "wall_s": answer.wall_s,
                            "seed": seed,
                        }
                    )
    single = by_placer["single device"]
    ratios = [geometric_mean_ratio(cells, single, objective=objective) for cells in by_placer.values()]
    table.add_section()
    table.add_row("geometric mean", "to single device", *(f"{ratio:.3f}" for ratio in ratios))
    console.print(table)
    if out is not None:
        write_text(out, json.dumps({"policy": policy, "samples": samples, "budget": budget, "rows": rows}, indent=1) + "\n")
        console.print(f"wrote {out}")


def _emphasised(text: str, best: bool) -> str:
    return f"[bold]{text}[/bold]" if best else text
