"""`gdp bench`: a placement timed for real, in turn with the best single device."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from gdp.cli import machine, model


def bench(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    name: Annotated[str, typer.Argument(metavar="MODEL", help=model.HELP)],
    cluster: Annotated[str, typer.Option(help=machine.HELP)] = "local",
    pairs: Annotated[int, typer.Option(min=8, max=4096, help="how often the two are timed in turn")] = 48,
) -> None:
    """Time a placement of a PyTorch model on this machine against its best single device."""
    import numpy as np

    from gdp.baselines.single_device import single_devices
    from gdp.cli.table import milliseconds
    from gdp.errors import InputError
    from gdp.measurement import Status
    from gdp.placement import Origin, Placement, read_placement
    from gdp.runtime.pytorch import PyTorchRuntime

    console = Console(highlight=False, soft_wrap=True)
    captured = model.resolve_model(name)
    if captured.program is None:
        raise InputError(f"{name} is a graph without a program that could run; name a PyTorch model as FILE.py:FUNCTION")
    target = machine.resolve_cluster(cluster)
    candidate = read_placement(placement, captured.graph, target)
    with PyTorchRuntime(captured.program, captured.example_inputs) as runtime, console.status("timing the single devices"):
        alone = [Placement(device=row.copy(), origin=Origin(placer="single-device")) for row in single_devices(captured.graph, target)]
        measured = [runtime(captured.graph, target, one) for one in alone]
        fastest = int(np.argmin([one.step_time_s for one in measured]))
        if measured[fastest].status != Status.OK:
            raise InputError(f"{name} cannot run on any device alone: {measured[fastest].detail}")
        compared = runtime.compare(captured.graph, target, candidate, alone[fastest], num_pairs=pairs)
    for device, one in zip(target.devices, measured, strict=True):
        console.print(f"{device.name} alone: {milliseconds(one.step_time_s)} ms", markup=False)
    console.print(
        f"{placement} takes {compared.ratio:.3f} [{compared.low:.3f}, {compared.high:.3f}] of the time of {target.devices[fastest].name} alone "
        f"(median and 95 % interval of {pairs} paired steps): {1 / compared.ratio:.2f} times as fast"
        if compared.high < 1
        else f"one device is best: {placement} takes {compared.ratio:.3f} [{compared.low:.3f}, {compared.high:.3f}] of the time of "
        f"{target.devices[fastest].name} alone (median and 95 % interval of {pairs} paired steps)",
        markup=False,
    )
