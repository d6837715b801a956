"""`gdp place`: a placement at once, and never a worse one than the best simple one."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

import gdp
from gdp.cli import machine, model
from gdp.errors import InputError, printable
from gdp.measurement import Objective
from gdp.runtime.verdict import Dispatch


def place(
    name: Annotated[str, typer.Argument(metavar="MODEL", help=model.HELP)],
    cluster: Annotated[str, typer.Option(help=machine.HELP)] = "local",
    policy: Annotated[str, typer.Option(help="a bundled policy, a folder, or org/name@revision on the Hugging Face Hub")] = "gdp-tiny",
    samples: Annotated[
        int,
        typer.Option(
            min=1, max=65536, help="placements the policy may simulate, as samples and again in a search; 1 is its single best guess"
        ),
    ] = 64,
    objective: Annotated[Objective, typer.Option(help="step_time, or bottleneck when steps are pipelined")] = "step_time",
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1)] = 0,
    dispatch: Annotated[
        Dispatch | None,
        typer.Option(
            help="which ready op a device takes; else program_order for a program that can be run here, and ready_order for other graphs"
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for placement.json and report.html")] = Path("runs/place"),
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON and nothing else")] = False,
) -> None:
    """Place MODEL with a pretrained policy, beside the simple placements; the best of all is written."""
    from gdp.capture.coarsening import coarsen
    from gdp.cli.candidates import (
        POLICY_SEARCH,
        ZERO_SHOT,
        refuse_impossible_memory,
        refuse_unknown_times,
        refuse_when_nothing_runs,
        simple_placers,
    )
    from gdp.cli.policy_placers import NamedPolicy
    from gdp.cli.report_data import section, write_page
    from gdp.cli.table import candidates_table
    from gdp.compare.asking import candidates
    from gdp.learn.finalists import judge, verdict
    from gdp.placement import write_placement
    from gdp.runtime.simulator import Simulator

    if os.path.exists(out) and not os.path.isdir(out):
        raise InputError(f"--out names the file {out}; name a folder")
    console = Console(stderr=as_json, soft_wrap=True, highlight=False)
    target = machine.resolve_cluster(cluster)
    captured = model.resolve_model(name)
    graph = captured.graph
    console.print(
        f"{graph.num_ops} ops from {printable(graph.source)}; {target.num_devices} devices in cluster {printable(target.name)}",
        markup=False,
    )
    if captured.note:
        console.print(printable(captured.note), markup=False)
    refuse_unknown_times(graph, target)
    refuse_impossible_memory(graph, target)
    runtime = Simulator(dispatch=captured.dispatch if dispatch is None else dispatch)
    placers = simple_placers(runtime=runtime, seed=seed, objective=objective)
    known = NamedPolicy.open(policy)
    placers[ZERO_SHOT] = known.zero_shot(runtime=runtime, dispatch=runtime.dispatch, num_samples=samples, seed=seed, objective=objective)
    if objective == "step_time" and samples > 1 and target.num_devices > 1:
        searching = known.search(runtime=runtime, dispatch=runtime.dispatch, evaluations=samples, seed=seed)
        placers |= {} if searching is None else {POLICY_SEARCH: searching}
    found = candidates(graph, target, placers, runtime=runtime)
    refuse_when_nothing_runs(found, target)
    judgement = judge(found, learned=("gdp", "gdp-search"), compare=None, objective=objective)
    winner, single = judgement.best, judgement.best_single
    console.print(candidates_table(name, found, best=winner.name, objective=objective))
    said = verdict(judgement, target, objective=objective)
    predicted = {
        "step_time_s": winner.predicted.step_time_s,
        "bottleneck_s": winner.predicted.bottleneck_s,
        "peak_memory_bytes": winner.predicted.peak_memory_bytes.tolist(),
        "transferred_bytes": winner.predicted.transferred_bytes,
    }
    baselines = {
        candidate.name: {"status": candidate.predicted.status.name.lower()}
        | ({"step_time_s": candidate.predicted.step_time_s} if candidate.predicted.status == gdp.Status.OK else {})
        for candidate in found
    }
    path, page = out / "placement.json", out / "report.html"
    shown = section(
        name,
        graph,
        target,
        found,
        num_groups=coarsen(graph).num_groups,
        best=winner.name,
        reference=(single or winner).name,
        verdict=said,
        objective=objective,
        curves=(),
        probes=(),
        notes=(),
        dispatch=runtime.dispatch,
    )
    write_page(page, f"{name} on {target.name}", [shown])
    write_placement(
        path, winner.placement, graph, target, gdp_version=gdp.__version__, predicted=predicted, measured={}, baselines=baselines
    )
    if as_json:
        summary = {"verdict": said, "best": winner.name, "predicted": predicted, "candidates": baselines}
        typer.echo(json.dumps(summary | {"placement": str(path), "report": str(page)}))
    else:
        console.print(f"{said}; wrote {path} and {page}", markup=False)
