"""`gdp solve`: exact solvers on an instance of Tarnawski et al., in their cost model."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gdp.cli.table import milliseconds
from gdp.errors import InputError, printable

if TYPE_CHECKING:
    from gdp.baselines.tarnawski.solution import Solution
    from gdp.capture.tarnawski_instance import TarnawskiInstance


def solve(
    instance: Annotated[Path, typer.Argument(help="a JSON file of Tarnawski et al. (docs/formats.md)")],
    objective: Annotated[
        Literal["max-load", "latency"], typer.Option(help="max-load when samples are pipelined, or the latency of one sample")
    ] = "max-load",
    contiguous: Annotated[
        bool | None,
        typer.Option("--contiguous/--no-contiguous", help="for max-load: whether only contiguous splits are allowed (they are)"),
    ] = None,
    subgraphs: Annotated[
        int | None, typer.Option(min=1, max=16, help="for latency: subgraphs that an accelerator runs, 1 by default")
    ] = None,
    solver: Annotated[
        Literal["highs", "cp-sat"] | None, typer.Option(help="for latency; cp-sat is the stronger one and needs OR-tools")
    ] = None,
    time_limit_s: Annotated[float, typer.Option(help="of the exact solver, which says what it has proven by then")] = 60.0,
    evaluations: Annotated[int, typer.Option(min=1, max=10**9, help="of annealing, from whose split the exact solver begins")] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="of annealing")] = 0,
    out: Annotated[Path | None, typer.Option(help="write the split as JSON, in the form of the published experts' splits")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON and nothing else")] = False,
) -> None:
    """Split INSTANCE over its accelerators and CPU cores; prints the value, the proven bound, the gap, and every device's load."""
    from gdp.baselines.tarnawski.cost import ON_CPU, loads_s
    from gdp.baselines.tarnawski.solve import solve_latency, solve_max_load
    from gdp.capture.tarnawski_json import read_tarnawski, write_tarnawski_split

    if objective == "max-load" and (subgraphs is not None or solver is not None):
        raise InputError("--subgraphs and --solver are for --objective latency; leave them out")
    if objective == "latency" and contiguous is not None:
        raise InputError("--contiguous is for --objective max-load; for latency name --subgraphs, of which each is contiguous")
    read = read_tarnawski(instance)
    generator = np.random.default_rng(seed)
    if objective == "max-load":
        found = solve_max_load(
            read, contiguous=contiguous is not False, time_limit_s=time_limit_s, evaluations=evaluations, generator=generator
        )
    else:
        found = solve_latency(
            read,
            subgraphs_per_accelerator=subgraphs or 1,
            time_limit_s=time_limit_s,
            evaluations=evaluations,
            generator=generator,
            solver=solver or "highs",
        )
    device = None
    if found.split is not None:
        cpu = read.num_accelerators
        device = found.split if objective == "max-load" else np.where(found.split == ON_CPU, cpu, found.split // (subgraphs or 1))
        device = device.astype(np.int32)
    if out is not None and device is not None:
        write_tarnawski_split(out, read, device)
    loads = None if device is None else loads_s(read, device)
    if as_json:
        typer.echo(json.dumps(_summary(read, objective, found, loads, out if device is not None else None), allow_nan=False))
        return
    console = Console(soft_wrap=True, highlight=False)
    console.print(
        f"{read.num_nodes} nodes, {read.num_accelerators} accelerators, {read.num_cpus} CPU cores: {printable(str(instance))}", markup=False
    )
    if loads is not None and device is not None:
        console.print(_device_table(read, device, loads))
    console.print(_sentence(objective, contiguous is not False, found), markup=False)
    if out is not None and device is not None:
        console.print(f"wrote {out}", markup=False)


def _sentence(objective: str, contiguous: bool, found: "Solution") -> str:
    what = f"{'contiguous ' * contiguous}max-load" if objective == "max-load" else "latency"
    took = f"{found.solve_time_s:.1f} s"
    match found.status:
        case "infeasible":
            other = "; --no-contiguous may have one" if objective == "max-load" and contiguous else ""
            return f"infeasible: it is proven that no split {'of this kind ' * contiguous}fits the memory ({took}){other}"
        case "nothing found":
            return (
                f"nothing found within the time limit; {what} is at least {found.bound_s * 1e3:.6g} ms ({took}); give more --time-limit-s"
            )
        case status:
            gap = f"bound {found.bound_s * 1e3:.6g} ms, gap {found.gap:.2%}" if np.isfinite(found.gap) else "no bound"
            return f"{status}: {what} {found.objective_s * 1e3:.6g} ms, {gap} ({took})"


def _summary(
    instance: "TarnawskiInstance", objective: str, found: "Solution", loads: np.ndarray | None, out: Path | None
) -> dict[str, Any]:
    def finite(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return {
        "objective": objective,
        "status": found.status,
        "value_s": finite(found.objective_s),
        "bound_s": finite(found.bound_s),
        "gap": finite(found.gap),
        "proven": found.status == "optimal",
        "solve_time_s": found.solve_time_s,
        "loads_s": None if loads is None else loads.tolist(),
        "num_accelerators": instance.num_accelerators,
        "split": None if out is None else str(out),
    }


def _device_table(instance: "TarnawskiInstance", device: np.ndarray, loads: np.ndarray) -> Table:
    """One row a device that has nodes."""
    table = Table()
    for column in ("device", "nodes", "load ms", "GiB"):
        table.add_column(column, justify="left" if column == "device" else "right")
    held = np.bincount(device, instance.size_bytes, minlength=instance.num_devices)
    for number in np.unique(device).tolist():
        cpu = number - instance.num_accelerators
        table.add_row(
            Text(f"accelerator {number}" if cpu < 0 else f"CPU core {cpu}"),
            str(int((device == number).sum())),
            milliseconds(float(loads[number])),
            f"{held[number] / 2**30:.2f}",
        )
    return table
