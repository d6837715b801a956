"""The stored training steps of the papers' suite: what they must weigh and compute, by published figures and closed forms."""

import functools

import numpy as np
import pytest

from gdp.graph import Graph, Phase
from gdp.workloads.build import store, stored_workloads
from gdp.workloads.catalog import CATALOG, stored_path, workload
from gdp.workloads.papers_suite import PAPERS_SUITE

NAMES = [name for _, _, captures in PAPERS_SUITE for name, _ in captures]
MOST_BYTES = 64 * 2**20
LEARNING_RATE_AND_COUNT_BYTES = 4 + 8


@functools.cache
def stored(name: str) -> Graph:
    return workload(name).build()


def flops(graph: Graph, kind: str, phase: Phase = Phase.FORWARD) -> float:
    return float(graph.flops[(np.array(graph.op_type) == kind) & (graph.phase == phase)].sum())


def count(graph: Graph, kind: str, phase: Phase = Phase.FORWARD) -> int:
    return int(((np.array(graph.op_type) == kind) & (graph.phase == phase)).sum())


def test_every_graph_is_stored_and_all_are_small() -> None:
    assert all(stored_path(name).is_file() for name in NAMES)
    assert sum(path.stat().st_size for path in stored_path(NAMES[0]).parent.rglob("*")) < MOST_BYTES
    assert {entry.name for entry in CATALOG if entry.framework == "tensorflow"} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_has_a_forward_pass_gradients_and_updates(name: str) -> None:
    graph = stored(name)
    work = np.bincount(graph.phase, weights=graph.flops, minlength=4)
    assert 1.5 < work[Phase.BACKWARD] / work[Phase.FORWARD] < 2.2
    assert set(graph.phase.tolist()) >= {Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE}
    holds = graph.param_bytes > 0
    assert {graph.op_type[op] for op in np.flatnonzero(holds)} == {"VarHandleOp"}
    assert (graph.colocation_group[holds] >= 0).all()


@pytest.mark.parametrize(
    ("name", "parameters", "trained"),
    [
        ("resnet-50-training", 25_636_712, 25_583_592),
        ("resnet-101-training", 44_707_176, 44_601_832),
        ("resnet-152-training", 60_419_944, 60_268_520),
        ("vgg-16-training", 138_357_544, 138_357_544),
        ("nasnet-a-mobile-training", 5_326_716, 5_289_978),
        ("nasnet-a-large-training", 88_949_818, 88_753_150),
    ],
)
def test_parameters_are_those_that_keras_documents(name: str, parameters: int, trained: int) -> None:
    """Weights, moving averages of batch normalisation, and a slot of momentum for each that is trained."""
    assert stored(name).param_bytes.sum() == 4 * (parameters + trained) + LEARNING_RATE_AND_COUNT_BYTES


def test_amoebanet_has_the_size_that_gpipe_prints() -> None:
    """82 million for 18 layers and 208 filters (arXiv 1811.06965, table 1)."""
    assert round(stored("amoebanet-d-training").param_bytes.sum() / 8 / 1e6) == 82


@pytest.mark.parametrize(
    ("name", "multiply_adds_per_image", "batch_size"),
    [
        ("resnet-50-training", 3.86e9, 32),
        ("resnet-101-training", 7.58e9, 32),
        ("resnet-152-training", 11.3e9, 32),
        ("vgg-16-training", 15.47e9, 32),
        ("inception-v3-batch-64-training", 5.71e9, 64),
        ("nasnet-a-mobile-training", 564e6, 32),
        ("nasnet-a-large-training", 23.8e9, 8),
    ],
)
def test_multiply_adds_are_the_published_ones(name: str, multiply_adds_per_image: float, batch_size: int) -> None:
    """He et al. (2015), table 1; the network papers for the others."""
    contractions = sum(flops(stored(name), kind) for kind in ("Conv2D", "DepthwiseConv2dNative", "MatMul"))
    assert contractions == pytest.approx(2 * multiply_adds_per_image * batch_size, rel=0.03)


def test_bert_base() -> None:
    """110 106 428 parameters, as the published checkpoint with both heads; two slots of Adam each, and its two powers."""
    width, layers, words, batch_size, length, predicted = 768, 12, 30_522, 32, 128, 20
    norm = 2 * width
    embeddings = (words + 512 + 2) * width + norm
    layer = 4 * (width + 1) * width + (width + 1) * 4 * width + (4 * width + 1) * width + 2 * norm
    heads = 2 * (width + 1) * width + norm + words + (width + 1) * 2
    assert embeddings + layers * layer + heads == 110_106_428
    graph = stored("bert-base-training")
    assert graph.param_bytes.sum() == 4 * (3 * 110_106_428 + 2)
    tokens = batch_size * length
    in_layers = layers * 12 * width**2 * tokens
    in_heads = batch_size * (predicted * (width**2 + width * words) + width**2 + 2 * width)
    assert flops(graph, "MatMul") == 2 * (in_layers + in_heads)
    assert flops(graph, "BatchMatMulV2") == 2 * layers * 2 * batch_size * length**2 * width


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_rnnlm(layers: int) -> None:
    units, words, steps, batch_size = 1024, 10_000, 40, 64
    graph = stored(f"rnnlm-{layers}-training")
    of_layer = 2 * units * 4 * units
    assert graph.param_bytes.sum() == 4 * (2 * units * words + words + layers * (of_layer + 4 * units))
    assert count(graph, "MatMul") == layers * steps + 1
    assert flops(graph, "MatMul") == 2 * batch_size * steps * (layers * of_layer + units * words)
    assert flops(graph, "MatMul", Phase.BACKWARD) == 2 * flops(graph, "MatMul")


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_gnmt(layers: int) -> None:
    units, words, steps, batch_size = 1024, 32_000, 50, 64
    graph = stored(f"gnmt-{layers}-training")
    # Widths of the products: both directions, the layer that reads both, the others; every decoder layer reads the context, too.
    encoder = (2 * 2 + 3 + 2 * (layers - 2)) * units * 4 * units
    decoder = layers * 3 * units * 4 * units
    attention = 2 * units**2
    parameters = 3 * words * units + encoder + decoder + (2 * layers + 1) * 4 * units + attention + units
    assert graph.param_bytes.sum() == 4 * parameters
    assert count(graph, "MatMul") == (2 * layers + 1) * steps + steps + 2
    assert flops(graph, "MatMul") == 2 * batch_size * steps * (encoder + decoder + attention + words * units)
    assert count(graph, "Softmax") == steps


def test_gnmt_of_eight_layers_is_larger_than_fifty_thousand_ops() -> None:
    assert stored("gnmt-8-training").num_ops > 50_000


@pytest.mark.parametrize("layers", [2, 4, 8])
def test_transformer_xl(layers: int) -> None:
    width, inner, words, batch_size, length, span = 1024, 4096, 32_000, 32, 128, 256
    graph = stored(f"transformer-xl-{layers}-training")
    layer = 5 * width**2 + 2 * width + 2 * width * inner + inner + width + 4 * width
    assert graph.param_bytes.sum() == 4 * (3 * (2 * width * words + words + layers * layer) + 2)
    of_tokens = batch_size * length * (2 * width**2 + 2 * width * inner)  # query, output, the inner layer
    of_span = (2 * batch_size + 1) * span * width**2  # key, value; positions are the same for every batch
    assert flops(graph, "MatMul") == 2 * (layers * (of_tokens + of_span) + batch_size * length * width * words)
    assert flops(graph, "BatchMatMulV2") == 2 * layers * 3 * batch_size * length * span * width


@pytest.mark.parametrize("layers", [18, 36])
def test_wavenet(layers: int) -> None:
    channels, skip, values, samples = 512, 256, 256, 2 * 8192
    graph = stored(f"wavenet-{layers}-training")
    layer = 2 * channels * 2 * channels + channels * skip
    kernels = values * channels + layers * layer + (layers - 1) * channels**2 + skip**2 + skip * values
    biases = channels + layers * (2 * channels + skip) + (layers - 1) * channels + skip + values
    assert graph.param_bytes.sum() == 4 * (3 * (kernels + biases) + 2)
    assert flops(graph, "Conv2D") == 2 * samples * kernels
    assert count(graph, "Conv2D") == 1 + layers * 3 - 1 + 2


def test_what_is_not_stored_is_refused() -> None:
    from gdp.errors import InputError

    assert [entry.name for entry in stored_workloads(["gnmt-2-training"])] == ["gnmt-2-training"]
    assert {entry.name for entry in stored_workloads([])} >= set(NAMES)
    with pytest.raises(InputError, match="built whenever it is asked for"):
        stored_workloads(["branching"])


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["transformer-xl-2-training", "wavenet-18-training"])
def test_the_stored_graph_is_the_one_that_is_built(name: str) -> None:
    assert not store(workload(name), stored_path(name))


@pytest.mark.slow
@pytest.mark.tensorflow
@pytest.mark.parametrize("name", ["rnnlm-2-training", "resnet-50-training", "gnmt-2-training"])
def test_larger_stored_graphs_are_those_that_are_built(name: str) -> None:
    assert not store(workload(name), stored_path(name))
