"""`gdp devices`: what this machine has."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gdp.cluster import Cluster, presets, write_cluster
from gdp.errors import printable


def devices(
    cluster: Annotated[str, typer.Option(help="local (probed now), a preset, or a YAML file")] = "local",
    cores: Annotated[
        list[str] | None,
        typer.Option(help="a set of cores that shall be one device, like cpu:0-7; once for every device, with local alone"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="write the cluster as YAML that --cluster reads")] = None,
) -> None:
    """Probe this machine's devices and the links between them."""
    from gdp.cli.machine import resolve_cluster
    from gdp.errors import InputError
    from gdp.runtime.local import local_cluster

    if cores and cluster != "local":
        raise InputError(f"--cores names sets of this machine's cores, but --cluster names {cluster}; leave one of the two out")
    found = local_cluster(cores) if cores else resolve_cluster(cluster)
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    console.print(device_table(found))
    console.print(f"presets: {', '.join(presets())}")
    if out is not None:
        write_cluster(out, found)
        console.print(f"wrote {out}", markup=False)


def device_table(cluster: Cluster) -> Table:
    """One row a device, with its slowest outgoing link."""
    table = Table(title=escape(f"cluster {printable(cluster.name)}"), title_justify="left", title_style="bold")
    for column in ("device", "kind", "memory GiB", "GFLOP/s float32", "memory GB/s", "overhead us", "slowest link GB/s", "latency us"):
        table.add_column(column, justify="left" if column in ("device", "kind") else "right")
    for index, device in enumerate(cluster.devices):
        others = [other for other in range(cluster.num_devices) if other != index]
        slowest = min(others, key=lambda other: cluster.bandwidth_bytes_per_s[index, other], default=None)
        table.add_row(
            escape(printable(device.name)),
            escape(printable(device.kind)),
            f"{device.memory_bytes / 2**30:.1f}",
            f"{device.flops_per_s['float32'] / 1e9:.0f}",
            f"{device.memory_bytes_per_s / 1e9:.1f}",
            f"{device.op_overhead_s * 1e6:.1f}",
            "-" if slowest is None else f"{cluster.bandwidth_bytes_per_s[index, slowest] / 1e9:.1f}",
            "-" if slowest is None else f"{cluster.latency_s[index, slowest] * 1e6:.1f}",
        )
    return table
