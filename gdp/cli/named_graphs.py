"""Which graphs the names in a training configuration stand for: the catalog's, those of a file, those of a pulled corpus."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from gdp.capture.parquet import read_graph
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.hub.corpus import INDEX, open_corpus
from gdp.runtime.verdict import Dispatch
from gdp.workloads.catalog import CATALOG, Workload, stored_path, workload
from gdp.workloads.split import Split


@dataclasses.dataclass(frozen=True, kw_only=True)
class NamedGraph:
    """A graph to learn on or to be validated on."""

    name: str
    family: str
    """what `workload.leave_out` may name."""
    dispatch: Dispatch
    build: Callable[[], Graph]
    file: Path | None
    """where it is stored, if it is."""
    is_bundled: bool
    """whether it is one of the catalog."""


def named_graphs(names: Sequence[str], *, split: Split) -> list[NamedGraph]:
    """Those of the catalog by name, `*` for all of its split; a `.parquet` file; a folder with `corpus.json` for all of the corpus's split.

    Raises `InputError` for a name that is none of these, a graph that cannot be read, and two graphs of one name.
    """
    graphs = [graph for name in names for graph in _named(name, split)]
    seen: set[str] = set()
    for graph in graphs:
        if graph.name in seen:
            raise InputError(f"the {split} graphs name {graph.name!r} twice; name each once, and give files names of their own")
        seen.add(graph.name)
    return graphs


def own_graphs_sha256(graphs: Sequence[NamedGraph]) -> str | None:
    """One hash over the files of all graphs that are none of the catalog; `None` where there is none."""
    hashes = [hashlib.sha256(graph.file.read_bytes()).digest() for graph in graphs if graph.file is not None and not graph.is_bundled]
    return hashlib.sha256(b"".join(hashes)).hexdigest() if hashes else None


def _named(name: str, split: Split) -> list[NamedGraph]:
    if name == "*":
        return [_of_catalog(entry) for entry in CATALOG if entry.split == split]
    if name.endswith(".parquet"):
        return [_of_file(Path(name))]
    if (Path(name) / INDEX).is_file():
        return _of_corpus(Path(name), split)
    return [_of_catalog(workload(name))]


def _of_catalog(entry: Workload) -> NamedGraph:
    path = stored_path(entry.name)
    file = path if path.is_file() else None
    return NamedGraph(name=entry.name, family=entry.family, dispatch=entry.dispatch, build=entry.build, file=file, is_bundled=True)


def _of_file(path: Path) -> NamedGraph:
    read_graph(path)  # what is wrong with it is told before anything is made
    read = functools.partial(read_graph, path)
    return NamedGraph(name=path.stem, family=path.stem, dispatch="ready_order", build=read, file=path, is_bundled=False)


def _of_corpus(folder: Path, split: Split) -> list[NamedGraph]:
    corpus = open_corpus(folder)
    chosen = [entry for entry in corpus.graphs if entry.split == split]
    if not chosen:
        raise InputError(f"the corpus in {folder} has no graph of the {split} split; name another")
    return [
        NamedGraph(
            name=entry.name,
            family=entry.family,
            dispatch="program_order" if entry.framework == "pytorch" else "ready_order",
            build=functools.partial(corpus.read, entry.name),
            file=folder / entry.path,
            is_bundled=False,
        )
        for entry in chosen
    ]
