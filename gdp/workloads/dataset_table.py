"""The table in `datasets/README.md`: `python -m gdp.workloads.dataset_table` rewrites it from the stored graphs and the catalog."""

from pathlib import Path

from gdp.atomic_file import write_text
from gdp.bundled import bundled
from gdp.capture.parquet import read_graphs
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.workloads.catalog import CATALOG, Workload

_START, _END = "<!-- table: written by python -m gdp.workloads.dataset_table -->", "<!-- end of table -->"
_HEAD = """| graph | ops | edges | FLOPs per step | parameter bytes | framework | split |
|---|---:|---:|---:|---:|---|---|"""


def dataset_table(folder: Path) -> str:
    """A Markdown row for every graph stored in `folder`; a file is named as its workload, with `_` for `-`."""
    named = {entry.name.replace("-", "_"): entry for entry in CATALOG}
    rows = []
    for path in sorted(folder.glob("*.parquet")):
        if path.stem not in named:
            raise InputError(f"{path} is named as no workload of the catalog; store a graph under its workload's name")
        rows += [_row(path.stem, graph, named[path.stem]) for graph in read_graphs(path)]
    return "\n".join([_HEAD, *rows])


def write_dataset_table(folder: Path) -> None:
    """Replaces the table in the folder's `README.md`. Raises `InputError` where that has no place for it."""
    readme = folder / "README.md"
    before, start, rest = readme.read_text(encoding="utf-8").partition(_START)
    _, end, after = rest.partition(_END)
    if not start or not end:
        raise InputError(f"{readme} has no place for the table; put the lines {_START!r} and {_END!r} where it belongs")
    write_text(readme, f"{before}{_START}\n{dataset_table(folder)}\n{_END}{after}")


def _row(name: str, graph: Graph, workload: Workload) -> str:
    cells = (
        f"`{name}`",
        f"{graph.num_ops:,}",
        f"{graph.num_edges:,}",
        f"{graph.flops.sum():.4g}",
        f"{int(graph.param_bytes.sum()):,}",
        workload.framework,
        workload.split,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    write_dataset_table(bundled("datasets"))
