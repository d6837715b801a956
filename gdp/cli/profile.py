"""`gdp profile`: the seconds of single ops and of the links between devices, measured; with them the simulator predicts this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gdp.cli import machine, model
from gdp.cli.model import GRAPH, PROFILE
from gdp.cli.table import milliseconds
from gdp.errors import InputError

if TYPE_CHECKING:
    from gdp.graph import Graph
    from gdp.runtime.profile import Profile

CLUSTER = "cluster.yaml"
_SHOWN_OP_TYPES = 12


def profile(
    name: Annotated[str, typer.Argument(metavar="MODEL", help=model.HELP)],
    cluster: Annotated[
        str, typer.Option(help="`local` (this machine, probed), or a YAML file that names devices of this machine")
    ] = "local",
    steps: Annotated[int, typer.Option(min=3, max=10_000, help="steps that run op by op, of which each op's median counts")] = 15,
    out: Annotated[
        Path,
        typer.Option(
            help=f"folder for {GRAPH} (with the measured seconds), {CLUSTER} (with what transfers were measured to cost) and {PROFILE}"
        ),
    ] = Path("runs/profile"),
) -> None:
    """Measure MODEL op by op on this machine, and how long transfers between its devices take; `gdp place` then predicts with what was measured."""
    from gdp.baselines.single_device import single_devices
    from gdp.capture.parquet import write_graphs
    from gdp.cli.measured import measured_runtime
    from gdp.cluster import write_cluster
    from gdp.measurement import Status
    from gdp.placement import Origin, Placement
    from gdp.runtime.fingerprint import fingerprint
    from gdp.runtime.handovers import measured_hand_overs, with_core_latency
    from gdp.runtime.local import linked, measured_links
    from gdp.runtime.profile import Profile, write_profile
    from gdp.runtime.simulator import Simulator

    if out.exists() and not out.is_dir():
        raise InputError(f"--out names the file {out}; name a folder")
    console = Console(highlight=False, soft_wrap=True)
    captured = model.resolve_model(name)
    if captured.program is None:
        raise InputError(f"{name} is a graph without a program that could run; name a PyTorch or TensorFlow program as FILE.py:FUNCTION")
    target, graph = machine.resolve_cluster(cluster), captured.graph
    names = [device.name for device in target.devices]
    with measured_runtime(captured) as runtime:
        with console.status("timing ops"):
            seconds = runtime.profile(graph, target, num_steps=steps)
        with console.status("timing links"):
            links = measured_links(names, [device.kind for device in target.devices])
        measured, calibrated = graph.with_measured_time(seconds), linked(target.devices, links)
        with console.status("timing hand-overs"):
            over = measured_hand_overs(measured, calibrated, runtime, dispatch=captured.dispatch, seed=0)
        if over is not None:
            calibrated = with_core_latency(calibrated, over.latency_s)
        found = Profile(
            graph_sha256=graph.sha256,
            dispatch=captured.dispatch,
            op_time_s=seconds,
            links={f"{names[i]} -> {names[j]}": link for (i, j), link in links.items()},
            fingerprint=fingerprint(names),
            hand_overs=over,
        )
        write_graphs(out / GRAPH, [measured])
        write_cluster(out / CLUSTER, calibrated)
        write_profile(out / PROFILE, found)
        console.print(_op_table(measured, found))
        if links:
            console.print(_link_table(found))
        if over is not None:
            console.print(
                f"a hand-over between cores takes {over.latency_s * 1e6:.1f} us in steps with {min(over.num_transfers)} to {max(over.num_transfers)} of them"
            )
        with console.status("timing whole steps"):
            alone = single_devices(graph, target)
            predicted = Simulator(dispatch=captured.dispatch).batch(measured, calibrated, alone)
            real = [runtime(graph, target, Placement(device=row.copy(), origin=Origin(placer="single-device"))) for row in alone]
    for device, predicted_s, each in zip(names, predicted.step_time_s.tolist(), real, strict=True):
        seen = f"measured {milliseconds(each.step_time_s)} ms" if each.status == Status.OK else f"not measured: {each.detail}"
        console.print(f"{device} alone: predicted {milliseconds(predicted_s)} ms, {seen}", markup=False)
    console.print(
        f"wrote {out / GRAPH}, {out / CLUSTER} and {out / PROFILE}; gdp place {out / GRAPH} --cluster {out / CLUSTER} predicts with them",
        markup=False,
    )


def _op_table(graph: "Graph", found: "Profile") -> Table:
    """The kinds of ops that take most time, a column a kind of device."""
    import numpy as np

    table = Table(title="milliseconds a step", title_justify="left", title_style="bold")
    table.add_column("op")
    table.add_column("ops", justify="right")
    for kind in found.op_time_s:
        table.add_column(Text(kind), justify="right")
    types, number = np.unique(graph.op_type, return_inverse=True)
    sums = {kind: np.bincount(number, seconds) for kind, seconds in found.op_time_s.items()}
    counts = np.bincount(number)
    order = np.argsort(-sum(sums.values()), kind="stable")
    for row in order[:_SHOWN_OP_TYPES].tolist():
        table.add_row(Text(str(types[row])), str(counts[row]), *(milliseconds(float(each[row])) for each in sums.values()))
    rest = order[_SHOWN_OP_TYPES:]
    if len(rest):
        table.add_row("all others", str(counts[rest].sum()), *(milliseconds(float(each[rest].sum())) for each in sums.values()))
    table.add_row("all", str(graph.num_ops), *(milliseconds(float(each.sum())) for each in sums.values()))
    return table


def _link_table(found: "Profile") -> Table:
    """A row a link."""
    table = Table()
    for column in ("link", "latency us", "GB/s", "error of the fit"):
        table.add_column(column, justify="left" if column == "link" else "right")
    for name, link in found.links.items():
        table.add_row(Text(name), f"{link.latency_s * 1e6:.1f}", f"{link.bandwidth_bytes_per_s / 1e9:.1f}", f"{link.median_error:.0%}")
    return table
