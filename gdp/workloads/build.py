"""`python -m gdp.workloads.build [NAME ...]` captures the stored graphs of the catalog afresh, all or those named, and rewrites the table in `datasets/README.md`."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from gdp.bundled import bundled
from gdp.capture.parquet import read_graph, write_graphs
from gdp.errors import InputError
from gdp.workloads.catalog import CATALOG, Workload, stored_path, workload
from gdp.workloads.dataset_table import write_dataset_table


def stored_workloads(names: Sequence[str]) -> list[Workload]:
    """Those workloads, or all that are stored where none is named. Raises `InputError` for a name that is none, or of one that is built when asked for."""
    chosen = [workload(name) for name in names] or [entry for entry in CATALOG if entry.capture is not None]
    for entry in chosen:
        if entry.capture is None:
            raise InputError(f"the workload {entry.name!r} is built whenever it is asked for; leave it out, as nothing of it is stored")
    return chosen


def store(entry: Workload, path: Path) -> bool:
    """Captures a workload into `path`, unless just this graph is there; whether the file was written."""
    assert entry.capture is not None
    graph = entry.capture()
    if path.is_file() and read_graph(path).sha256 == graph.sha256:
        return False
    write_graphs(path, [graph])
    return True


def main(names: Sequence[str]) -> int:
    try:
        for entry in stored_workloads(names):
            start_s, path = time.perf_counter(), stored_path(entry.name)
            done = "written" if store(entry, path) else "unchanged"
            print(f"{path.name}: {done}, {path.stat().st_size:,} bytes, {time.perf_counter() - start_s:.1f} s", flush=True)
        write_dataset_table(bundled("datasets"))
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
