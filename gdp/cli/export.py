"""`gdp export`: a placement as other runtimes read it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gdp.cli import machine, model


class Format(StrEnum):
    """What can be written."""

    CSV = "csv"
    DEVICE_MAP = "device_map"


def export(
    placement: Annotated[Path, typer.Argument(help="placement.json")],
    name: Annotated[str, typer.Argument(metavar="MODEL", help=model.HELP)],
    to: Annotated[Format, typer.Option(help="csv: node_name,device; device_map: for accelerate and transformers")],
    out: Annotated[Path, typer.Option(help="the file to write")],
    cluster: Annotated[str, typer.Option(help=machine.HELP)] = "local",
) -> None:
    """Write a placement for another runtime; refuses, with the reason, what that runtime cannot express."""
    import json

    from gdp.atomic_file import write_text
    from gdp.errors import InputError
    from gdp.export.csv import write_placement_csv
    from gdp.export.device_map import device_map
    from gdp.placement import read_placement

    captured = model.resolve_model(name)
    target = machine.resolve_cluster(cluster)
    placed = read_placement(placement, captured.graph, target)
    if to is Format.CSV:
        write_placement_csv(out, captured.graph, target, placed)
    else:
        from torch.export import ExportedProgram

        if not isinstance(captured.program, ExportedProgram):
            raise InputError(f"{name} is no PyTorch program, so it has no modules to map; export it as csv")
        write_text(out, json.dumps(device_map(captured.program, captured.graph, target, placed), indent=1) + "\n")
    typer.echo(f"wrote {out}")
