"""A placement as a table of two columns, `node_name,device`: for spreadsheets and scripts."""

import csv
import io
from pathlib import Path

from gdp.atomic_file import write_text
from gdp.cluster import Cluster
from gdp.export.fits import check_fits
from gdp.graph import Graph
from gdp.placement import Placement


def placement_csv(graph: Graph, cluster: Cluster, placement: Placement) -> str:
    """The table as text, in the order of the graph's ops, with a header. Raises `InputError` where the placement is not one of this graph and cluster."""
    check_fits(graph, cluster, placement)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["node_name", "device"])
    table.writerows((name, cluster.devices[device].name) for name, device in zip(graph.name, placement.device.tolist(), strict=True))
    return text.getvalue()


def write_placement_csv(path: Path, graph: Graph, cluster: Cluster, placement: Placement) -> None:
    """Writes the table to a file."""
    write_text(path, placement_csv(graph, cluster, placement))
