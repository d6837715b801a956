"""The graph corpus as a dataset repository: a Parquet file a graph, a configuration a framework, and an index that vouches for every graph.

    README.md                               the card, with the configurations that the Hub's viewer shows
    corpus.json                             name, family, split and sha256 of every graph
    data/FRAMEWORK/SPLIT/WORKLOAD.parquet   the graph (docs/formats.md)

`train`, `validation` and `test` are the Hub's words for gdp's pretraining, validation and hold-out split.
"""

import dataclasses
import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gdp.atomic_file import write_text
from gdp.bounded_file import read_bounded
from gdp.capture.parquet import MAX_FILE_BYTES, read_graph, write_graphs
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.hub.repository import Repository, download, upload
from gdp.plain_json import parse_json
from gdp.workloads.catalog import CATALOG, Framework, Workload, workload
from gdp.workloads.split import Split

INDEX, CARD = "corpus.json", "README.md"
MAX_INDEX_BYTES = 2**24
_SPLITS: dict[Split, str] = {"pretraining": "train", "validation": "validation", "hold-out": "test"}


class Entry(BaseModel):
    """One graph of a corpus."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=200)]
    family: Annotated[str, Field(min_length=1, max_length=200)]
    framework: Framework
    split: Split
    num_ops: Annotated[int, Field(ge=1)]
    file_bytes: Annotated[int, Field(ge=1, le=MAX_FILE_BYTES)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """of the graph, not of the file."""

    @property
    def path(self) -> str:
        return f"data/{self.framework}/{_SPLITS[self.split]}/{self.name}.parquet"


class Index(BaseModel):
    """What `corpus.json` says."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[1] = 1
    graphs: Annotated[list[Entry], Field(min_length=1, max_length=10_000)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corpus:
    """A corpus on this machine, every graph of it read and compared with its hash."""

    folder: Path
    name: str
    revision: str
    """the Hub's commit, or the sha256 of `corpus.json`."""
    graphs: tuple[Entry, ...]

    def read(self, name: str) -> Graph:
        """The graph of this name. Raises `InputError` when there is none."""
        entries = {entry.name: entry for entry in self.graphs}
        if name not in entries:
            raise InputError(f"the corpus {self.name} has no graph {name!r}; it has {', '.join(sorted(entries))}")
        return _checked(self.folder, entries[name])


def write_corpus(folder: Path, names: Sequence[str] = ()) -> Index:
    """Writes the repository's files for these workloads of the catalog, or for all that are stored. Raises `InputError` for a name that is none."""
    chosen = [workload(name) for name in names] or [entry for entry in CATALOG if entry.capture is not None]
    index = Index(graphs=[_write(folder, entry) for entry in chosen])
    write_text(folder / INDEX, index.model_dump_json(indent=1) + "\n")
    write_text(folder / CARD, _card(index))
    return index


def push_corpus(
    repository: str, names: Sequence[str] = (), *, private: bool = False, create_pr: bool = False, dry_run: bool = False
) -> str:
    """Sends the graphs of these workloads, or of all that are stored, to a dataset repository; one sentence says what was sent where. Raises `InputError`."""
    target = Repository.named(repository, "dataset")
    with tempfile.TemporaryDirectory() as temporary:
        index = write_corpus(Path(temporary), names)
        sent = f"{len(index.graphs)} graphs, {sum(entry.file_bytes for entry in index.graphs)} bytes"
        if dry_run:
            return f"would send {sent} to the dataset {repository}"
        files = [CARD, INDEX, *(entry.path for entry in index.graphs)]
        where = upload(target, Path(temporary), files, message=f"{len(index.graphs)} graphs", private=private, create_pr=create_pr)
    return f"sent {sent} to {where}"


def pull_corpus(name: str) -> Corpus:
    """Downloads a corpus into the Hugging Face cache and checks every graph. Raises `InputError` when it is none, or one is not what the index says."""
    repository = Repository.named(name, "dataset")
    folder = download(repository, files=[INDEX], max_bytes=MAX_INDEX_BYTES)
    index = read_index(folder / INDEX)
    commit = dataclasses.replace(repository, revision=folder.name)
    total_bytes = sum(entry.file_bytes for entry in index.graphs)
    folder = download(commit, files=[CARD, INDEX, *(entry.path for entry in index.graphs)], max_bytes=total_bytes + 2 * MAX_INDEX_BYTES)
    return dataclasses.replace(open_corpus(folder), name=repository.id, revision=folder.name)


def open_corpus(folder: Path) -> Corpus:
    """A corpus in a folder, every graph of it read and compared with its hash. Raises `InputError` when it is none, or one is not what the index says."""
    index = read_index(folder / INDEX)
    for entry in index.graphs:
        _checked(folder, entry)
    digest = hashlib.sha256((folder / INDEX).read_bytes()).hexdigest()
    return Corpus(folder=folder, name=folder.name, revision=digest, graphs=tuple(index.graphs))


def read_index(path: Path) -> Index:
    """Raises `InputError` when the file is missing, too large, or says anything that no index says."""
    data = read_bounded(path, what="the corpus index", advice="name a dataset repository that gdp has written", max_bytes=MAX_INDEX_BYTES)
    try:
        parse_json(data)
        index = Index.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))[:200] or "the top level"
        raise InputError(f"{path} is wrong at {where}: {first['msg']}; name a dataset repository that gdp has written") from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}; name a dataset repository that gdp has written") from error
    if len({entry.name for entry in index.graphs}) < len(index.graphs):
        raise InputError(f"{path} names a graph twice; name a dataset repository that gdp has written")
    return index


def _checked(folder: Path, entry: Entry) -> Graph:
    graph = read_graph(folder / entry.path)
    if graph.sha256 != entry.sha256:
        raise InputError(f"{entry.path} of the corpus in {folder} is another graph than {INDEX} promises; fetch it again")
    return graph


def _write(folder: Path, entry: Workload) -> Entry:
    graph = entry.build()
    plan = Entry(
        name=entry.name, family=entry.family, framework=entry.framework, split=entry.split,
        num_ops=graph.num_ops, file_bytes=1, sha256=graph.sha256,
    )  # fmt: skip
    write_graphs(folder / plan.path, [graph])
    return plan.model_copy(update={"file_bytes": (folder / plan.path).stat().st_size})


def _card(index: Index) -> str:
    """`README.md` as the Hub reads it."""
    configurations = [
        {
            "config_name": framework,
            "data_files": [
                {"split": _SPLITS[split], "path": f"data/{framework}/{_SPLITS[split]}/*.parquet"}
                for split in _SPLITS
                if any((entry.framework, entry.split) == (framework, split) for entry in index.graphs)
            ],
        }
        for framework in get_args(Framework)
        if any(entry.framework == framework for entry in index.graphs)
    ]
    front = {
        "license": "apache-2.0",
        "pretty_name": "gdp graph corpus",
        "tags": ["device-placement", "computational-graphs"],
        "task_categories": ["graph-ml"],
        "configs": configurations,
    }
    rows = [
        f"| `{entry.name}` | {entry.family} | {entry.framework} | {_SPLITS[entry.split]} | {entry.num_ops:,} |" for entry in index.graphs
    ]
    lines = [
        "# Dataflow graphs for device placement",
        "",
        f"{len(index.graphs)} graphs, one Parquet file each: ops with their FLOPs and bytes, tensors, edges.",
        "`train`, `validation` and `test` are gdp's pretraining, validation and hold-out split, which are split by family. `corpus.json` holds the hash of every graph.",
        "",
        "```python",
        "import gdp.hub",
        "",
        'corpus = gdp.hub.pull_corpus("organisation/name")',
        f'graph = corpus.read("{index.graphs[0].name}")',
        "```",
        "",
        "| graph | family | framework | split | ops |",
        "|---|---|---|---|--:|",
        *rows,
    ]
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n" + "\n".join(lines) + "\n"
