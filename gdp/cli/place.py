"""`gdp place`: a placement at once, and never a worse one than the best simple one."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import gdp
from gdp.cli import machine, model
from gdp.measurement import Objective


def place(
    name: Annotated[str, typer.Argument(metavar="MODEL", help=model.HELP)],
    cluster: Annotated[str, typer.Option(help=machine.HELP)] = "local",
    policy: Annotated[str, typer.Option(help="a bundled policy, a folder, or org/name@revision on the Hugging Face Hub")] = "gdp-tiny",
    samples: Annotated[int, typer.Option(min=1, max=65536, help="placements the policy may simulate; 1 is its single best guess")] = 64,
    objective: Annotated[Objective, typer.Option(help="step_time, or bottleneck when steps are pipelined")] = "step_time",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    out: Annotated[Path, typer.Option(help="folder for placement.json and report.html")] = Path("runs/place"),
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON and nothing else")] = False,
) -> None:
    """Place MODEL with a pretrained policy, beside the simple placements; the best of all is written."""
    from gdp.cli.candidates import ZERO_SHOT, policy_placer, refuse_impossible_memory, refuse_when_nothing_runs, simple_placers
    from gdp.cli.report_data import section, write_page
    from gdp.cli.table import candidates_table
    from gdp.compare import best, candidates
    from gdp.placement import write_placement
    from gdp.runtime.simulator import Simulator

    console = Console(stderr=as_json)
    target = machine.resolve_cluster(cluster)
    captured = model.resolve_model(name)
    graph = captured.graph
    console.print(
        f"{graph.num_ops} ops from {graph.source}, {target.num_devices} devices in cluster {target.name}", markup=False, highlight=False
    )
    refuse_impossible_memory(graph, target)
    runtime = Simulator()
    placers = simple_placers(runtime=runtime, seed=seed, objective=objective)
    placers[ZERO_SHOT] = policy_placer(policy, runtime=runtime, num_samples=samples, seed=seed, objective=objective)
    answers = candidates(graph, target, placers, runtime=runtime)
    by_name = {answer.placer: answer for answer in answers}
    refuse_when_nothing_runs(by_name, target)
    winner = best(answers, objective=objective)
    console.print(candidates_table(name, [(answer, None) for answer in answers], best=winner.placer, objective=objective))
    devices_used = len(set(winner.placement.device.tolist()))
    verdict = "one device is best" if devices_used == 1 else f"{winner.placer} is best, on {devices_used} of {target.num_devices} devices"
    predicted = {
        "step_time_s": winner.measurement.step_time_s,
        "bottleneck_s": winner.measurement.bottleneck_s,
        "peak_memory_bytes": winner.measurement.peak_memory_bytes.tolist(),
        "transferred_bytes": winner.measurement.transferred_bytes,
    }
    baselines = {
        answer.placer: {"status": answer.measurement.status.name.lower()}
        | ({"step_time_s": answer.measurement.step_time_s} if answer.measurement.status == gdp.Status.OK else {})
        for answer in answers
    }
    path = out / "placement.json"
    write_placement(
        path, winner.placement, graph, target, gdp_version=gdp.__version__, predicted=predicted, measured={}, baselines=baselines
    )
    page = out / "report.html"
    write_page(
        page,
        f"{name} on {target.name}",
        [
            section(
                name,
                graph,
                target,
                answers,
                measured={},
                best=winner.placer,
                reference="single device",
                verdict=verdict,
                objective=objective,
                curves=(),
                notes=(),
            )
        ],
    )
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "verdict": verdict,
                    "best": winner.placer,
                    "predicted": predicted,
                    "candidates": baselines,
                    "placement": str(path),
                    "report": str(page),
                }
            )
        )
    else:
        console.print(f"{verdict}; wrote {path} and {page}", highlight=False)
