"""What the names in a training configuration stand for."""

from pathlib import Path

import numpy as np
import pytest

from gdp.capture.parquet import write_graphs
from gdp.cli.named_graphs import named_graphs, own_graphs_sha256
from gdp.errors import InputError
from gdp.hub.corpus import write_corpus
from gdp.workloads.catalog import CATALOG, workload
from gdp.workloads.synthetic import layered

NAMES = ("gcn-arxiv-training", "vgg-16-training", "two-tower-retrieval-inference")


def _write(path: Path, seed: int) -> str:
    graph = layered(np.random.default_rng(seed), num_ops=30)
    write_graphs(path, [graph])
    return graph.sha256


def test_a_star_is_the_catalogs_split_and_a_file_stands_for_its_graph(tmp_path: Path) -> None:
    sha256 = _write(tmp_path / "mine.parquet", 1)
    graphs = named_graphs(["*", str(tmp_path / "mine.parquet")], split="pretraining")
    assert [graph.name for graph in graphs] == [entry.name for entry in CATALOG if entry.split == "pretraining"] + ["mine"]
    assert graphs[-1].build().sha256 == sha256 and not graphs[-1].is_bundled
    assert all(graph.is_bundled and (graph.file is None or graph.file.is_file()) for graph in graphs[:-1])


def test_a_corpus_gives_the_graphs_of_the_split_and_no_others(tmp_path: Path) -> None:
    write_corpus(tmp_path, NAMES)
    (learned,) = named_graphs([str(tmp_path)], split="pretraining")
    (validated,) = named_graphs([str(tmp_path)], split="validation")
    assert (learned.name, validated.name) == ("vgg-16-training", "two-tower-retrieval-inference")
    assert (learned.dispatch, validated.dispatch) == ("ready_order", "program_order")
    assert learned.build().sha256 == workload("vgg-16-training").build().sha256
    assert learned.family == workload("vgg-16-training").family
    with pytest.raises(InputError, match="name 'vgg-16-training' twice"):
        named_graphs(["vgg-16-training", str(tmp_path)], split="pretraining")
    assert learned.file is not None
    _write(learned.file, 1)
    with pytest.raises(InputError, match="another graph than corpus.json promises"):
        named_graphs([str(tmp_path)], split="pretraining")


def test_what_is_no_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    write_corpus(tmp_path / "corpus", ["vgg-16-training"])
    for name, told in (
        (str(tmp_path / "broken.parquet"), "broken.parquet"),
        (str(tmp_path / "missing.parquet"), "missing.parquet"),
        ("vgg-17", "did you mean 'vgg-16-training'"),
        (str(tmp_path / "corpus"), "no graph of the validation split"),
    ):
        with pytest.raises(InputError, match=told):
            named_graphs([name], split="validation")


def test_the_hash_of_own_graphs_follows_their_files_and_leaves_the_catalog_out(tmp_path: Path) -> None:
    path = tmp_path / "mine.parquet"
    hashes = []
    for seed in (1, 2):
        _write(path, seed)
        hashes.append(own_graphs_sha256(named_graphs([str(path), "vgg-16-training"], split="pretraining")))
    assert None not in hashes and hashes[0] != hashes[1]
    assert own_graphs_sha256(named_graphs(["vgg-16-training"], split="pretraining")) is None
