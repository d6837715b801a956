"""The corpus as a dataset repository: what is pulled is what was pushed, and nothing else is taken for it."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import DatasetCard

import gdp.hub
from gdp.capture.parquet import read_graph
from gdp.errors import InputError
from gdp.hub.corpus import INDEX, read_index, write_corpus
from gdp.workloads.catalog import CATALOG, workload
from tests.hub.loopback_hub import Store, loopback_hub
from tests.hub.scene import Scene

NAMES = ("gcn-arxiv-training", "vgg-16-training", "two-tower-retrieval-inference")
PULL = "[(one.name, gdp.hub.pull_corpus({0!r}).read(one.name).sha256 == one.sha256) for one in gdp.hub.pull_corpus({0!r}).graphs]"


@pytest.fixture(scope="module")
def pushed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Scene, str]]:
    """A hub with the corpus `org/graphs`, what knows it, and its address."""
    home = tmp_path_factory.mktemp("corpus") / "home"
    with loopback_hub() as (address, store), Scene(address, home) as scene:
        [sent] = scene.ask(f"gdp.hub.push_corpus('org/graphs', {NAMES!r}, private=True)")
        assert sent[0] == "ok" and "sent 3 graphs" in sent[1] and "org/graphs at revision" in sent[1]
        yield store, scene, address


def _files(store: Store) -> dict[str, bytes]:
    return store.commits["datasets/org/graphs"][store.references["datasets/org/graphs"]["main"]]


def test_what_is_pulled_is_what_was_pushed(pushed: tuple[Store, Scene, str], tmp_path: Path) -> None:
    store, scene, address = pushed
    files = _files(store)
    assert sorted(files) == [
        "README.md",
        "corpus.json",
        "data/pytorch/test/gcn-arxiv-training.parquet",
        "data/pytorch/validation/two-tower-retrieval-inference.parquet",
        "data/tensorflow/train/vgg-16-training.parquet",
    ]
    assert store.private["datasets/org/graphs"]
    for name in NAMES:
        [path] = [path for path in files if path.endswith(f"/{name}.parquet")]
        (tmp_path / "graph.parquet").write_bytes(files[path])
        assert read_graph(tmp_path / "graph.parquet").sha256 == workload(name).build().sha256
    pulled, dry, unknown, absent = scene.ask(
        PULL.format("org/graphs"),
        "gdp.hub.push_corpus('org/other', ['vgg-16-training'], dry_run=True)",
        "gdp.hub.push_corpus('org/other', ['vgg-17-training'])",
        "gdp.hub.pull_corpus('org/graphs').read('vgg-17-training')",
    )
    assert pulled == ("ok", str([(name, True) for name in NAMES]))
    assert dry[0] == "ok" and "would send 1 graphs" in dry[1]
    assert unknown[0] == "refused" and "vgg-16-training" in unknown[1]
    assert absent[0] == "refused" and "has no graph 'vgg-17-training'; it has gcn-arxiv-training" in absent[1]
    assert "datasets/org/other" not in store.commits


def test_every_graph_that_is_stored_is_part_of_it_by_default(tmp_path: Path) -> None:
    index = write_corpus(tmp_path)
    assert [entry.name for entry in index.graphs] == [entry.name for entry in CATALOG if entry.capture is not None]
    assert read_index(tmp_path / INDEX) == index
    assert sum((tmp_path / entry.path).stat().st_size for entry in index.graphs) == sum(entry.file_bytes for entry in index.graphs)


def test_the_card_names_the_files_as_the_hubs_viewer_wants_them(pushed: tuple[Store, Scene, str], tmp_path: Path) -> None:
    store, _, _ = pushed
    files = _files(store)
    (tmp_path / "README.md").write_bytes(files["README.md"])
    data = DatasetCard.load(tmp_path / "README.md").data.to_dict()
    listed = {
        (one["config_name"], part["split"]): sorted(path for path in files if Path(path).match(part["path"]))
        for one in data["configs"]
        for part in one["data_files"]
    }
    assert listed == {
        ("pytorch", "test"): ["data/pytorch/test/gcn-arxiv-training.parquet"],
        ("pytorch", "validation"): ["data/pytorch/validation/two-tower-retrieval-inference.parquet"],
        ("tensorflow", "train"): ["data/tensorflow/train/vgg-16-training.parquet"],
    }
    assert yaml.safe_load(files["README.md"].decode().split("---\n")[1])["license"] == "apache-2.0"
    for number, path in enumerate(path for path in files if path.endswith(".parquet")):
        (tmp_path / f"{number}.parquet").write_bytes(files[path])
        assert pq.read_table(tmp_path / f"{number}.parquet").num_rows == 1


def test_a_graph_that_is_not_the_promised_one_is_refused(pushed: tuple[Store, Scene, str]) -> None:
    store, scene, _ = pushed
    files, good = _files(store), store.references["datasets/org/graphs"]["main"]
    vgg, gcn = "data/tensorflow/train/vgg-16-training.parquet", "data/pytorch/test/gcn-arxiv-training.parquet"
    flipped = bytearray(files[vgg])
    flipped[len(flipped) // 2] ^= 1
    try:
        for changed, message in (({vgg: bytes(flipped)}, "damaged"), ({vgg: files[gcn]}, "another graph than")):
            store.commit("datasets/org/graphs", changed, reference="main")
            [refused] = scene.ask(PULL.format("org/graphs"))
            assert refused[0] == "refused" and message in refused[1], refused
            store.references["datasets/org/graphs"]["main"] = good
        [model] = scene.ask("gdp.hub.pull_corpus('org/none')")
        assert model[0] == "refused" and "there is no corpus org/none" in model[1]
    finally:
        store.references["datasets/org/graphs"]["main"] = good


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a path out of the folder": (lambda d: d["graphs"][0].update(name="../../etc/passwd"), "wrong at graphs.0.name"),
    "an unknown field": (lambda d: d["graphs"][0].update(path="/etc/passwd"), "wrong at graphs.0.path"),
    "an unknown split": (lambda d: d["graphs"][0].update(split="train"), "wrong at graphs.0.split"),
    "no bytes": (lambda d: d["graphs"][0].update(file_bytes=0), "wrong at graphs.0.file_bytes"),
    "endless": (lambda d: d["graphs"][0].update(file_bytes=2**60), "wrong at graphs.0.file_bytes"),
    "twice": (lambda d: d["graphs"].append(d["graphs"][0]), "names a graph twice"),
    "nothing": (lambda d: d["graphs"].clear(), "wrong at graphs"),
    "newer": (lambda d: d.update(format=2), "wrong at format"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_index_is_refused(tmp_path: Path, name: str) -> None:
    write_corpus(tmp_path, NAMES[:1])
    document = json.loads((tmp_path / INDEX).read_text())
    change, message = REFUSED[name]
    change(document)
    (tmp_path / INDEX).write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        read_index(tmp_path / INDEX)


def test_names_that_are_no_data_set() -> None:
    with pytest.raises(InputError, match="write org/name"):
        gdp.hub.push_corpus("hf://org/name")
