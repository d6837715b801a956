"""`gdp bench`: a placement timed for real, in turn with the best single device."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gdp.cli import machine, model
from gdp.cli.table import milliseconds, status_text
from gdp.measurement import Measurement

if TYPE_CHECKING:
    from gdp.runtime.timing import Comparison


def bench(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    name: Annotated[str, typer.Argument(metavar="MODEL", help=model.HELP)],
    cluster: Annotated[str, typer.Option(help=machine.HELP)] = "local",
    pairs: Annotated[int, typer.Option(min=8, max=4096, help="how often the two are timed in turn")] = 48,
) -> None:
    """Time a placement of a PyTorch or TensorFlow program on this machine against its best single device."""
    import numpy as np

    from gdp.baselines.single_device import single_devices
    from gdp.cli.measured import measured_runtime
    from gdp.errors import InputError
    from gdp.measurement import Status
    from gdp.placement import Origin, Placement, read_placement

    console = Console(highlight=False, soft_wrap=True)
    captured = model.resolve_model(name)
    if captured.program is None:
        raise InputError(f"{name} is a graph without a program that could run; name a PyTorch or TensorFlow program as FILE.py:FUNCTION")
    target = machine.resolve_cluster(cluster)
    candidate = read_placement(placement, captured.graph, target)
    with measured_runtime(captured) as runtime, console.status("timing the single devices"):
        alone = [Placement(device=row.copy(), origin=Origin(placer="single-device")) for row in single_devices(captured.graph, target)]
        measured = [runtime(captured.graph, target, one) for one in alone]
        fastest = int(np.argmin([one.step_time_s for one in measured]))
        compared, itself = None, None
        if measured[fastest].status == Status.OK:
            compared = runtime.compare(captured.graph, target, candidate, alone[fastest], num_pairs=pairs)
        if compared is None:
            itself = runtime(captured.graph, target, candidate)
    for device, one in zip(target.devices, measured, strict=True):
        console.print(f"{device.name} alone: {_time(one)}", markup=False)
    if itself is not None:
        console.print(f"{placement}: {_time(itself)}", markup=False)
    if compared is not None:
        console.print(_sentence(str(placement), target.devices[fastest].name, compared), markup=False)


def _time(measurement: Measurement) -> str:
    if measurement.status != 0:
        return f"{status_text(measurement.status)}: {measurement.detail}"
    low, high = milliseconds(measurement.step_time_low_s), milliseconds(measurement.step_time_high_s)
    return f"{milliseconds(measurement.step_time_s)} ms [{low}, {high}]"


def _sentence(placement: str, device: str, compared: "Comparison") -> str:
    figures = (
        f"{placement} takes {compared.ratio:.3f} [{compared.low:.3f}, {compared.high:.3f}] of the time of {device} alone "
        f"(median and 95 % interval of {compared.num_pairs} paired steps{'; ' * bool(compared.drift)}{compared.drift_sentence})"
    )
    match compared.verdict:
        case "faster":
            return f"{figures}: {1 / compared.ratio:.2f} times as fast"
        case "slower":
            return f"one device is best: {figures}"
        case "equal":
            return f"no difference, so one device is enough: {figures}"
        case "too_noisy":
            return f"{compared.noise_sentence}: {figures}"
