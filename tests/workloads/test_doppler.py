"""DOPPLER's sharded graphs: sizes as published, the work of the uncut programs, and for the matrix chain the very values."""

from collections import Counter

import numpy as np
import pytest

from gdp.graph import Graph
from gdp.workloads.catalog import workload
from gdp.workloads.doppler import feed_forward_net, llama_block, llama_layer, matrix_chain

TOKENS, WIDTH, HEADS, HIDDEN, VOCABULARY = 4096, 4096, 32, 11008, 32000
BLOCK_PARAMETERS = 202_383_360
"""Of one of the 32 blocks of LLaMA-7B: four square projections, three of the feed-forward net, two norms."""

PRODUCTS = ("aten.mm.default", "aten.bmm.default")
SIZES = {"matrix-chain": 112, "feed-forward": 192, "llama-block": 215, "llama-layer": 260}


def product_flops(graph: Graph) -> float:
    return float(graph.flops[[kind in PRODUCTS for kind in graph.op_type]].sum())


@pytest.mark.parametrize("name", SIZES)
def test_the_catalog_holds_them_at_the_published_sizes(name: str) -> None:
    entry = workload(f"sharded-{name}")
    graph = entry.build()
    assert graph.num_ops == SIZES[name]
    assert entry.capture is not None
    assert entry.capture().sha256 == graph.sha256
    assert (entry.split, entry.dispatch) == ("hold-out", "ready_order")


def test_the_work_of_the_chain_is_that_of_whole_matrices() -> None:
    n = 10_000
    graph = matrix_chain(extent=n)
    assert product_flops(graph) == 3 * 2 * n**3
    # Partial products added: three times for A B, once for either of the others; the sum itself.
    assert graph.flops.sum() == 6 * n**3 + (3 + 1 + 1 + 1) * n**2
    assert Counter(graph.op_type) == {"input": 36, "aten.mm.default": 48, "aten.add.Tensor": 28}
    assert graph.param_bytes.sum() == 0


def test_the_chain_computes_the_chain() -> None:
    """Every op of the graph carried out with numpy on matrices of small whole numbers: exact."""
    graph, n = matrix_chain(extent=8), 8
    matrices = np.random.default_rng(0).integers(-3, 4, (5, n, n))
    cuts = ((2, 4), (4, 2), (2, 4), (2, 2), (2, 4))
    given = [
        block
        for matrix, (rows, columns) in zip(matrices, cuts, strict=True)
        for row in np.split(matrix, rows)
        for block in np.split(row, columns, axis=1)
    ]
    operands: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for producer, consumer in zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True):
        operands[consumer].append(producer)
    values: list[np.ndarray] = []
    for op, kind in enumerate(graph.op_type):
        read = [values[operand] for operand in operands[op]]
        values.append(given[op] if kind == "input" else read[0] @ read[1] if kind == "aten.mm.default" else np.sum(read, axis=0))
    ends = sorted(set(range(graph.num_ops)) - set(graph.edge_producer.tolist()))
    a, b, c, d, e = matrices
    np.testing.assert_array_equal(np.block([[values[op] for op in ends[:4]], [values[op] for op in ends[4:]]]), a @ b @ c + d @ e)


def test_the_work_of_the_network_is_that_of_the_uncut_one() -> None:
    rows, features, hidden = 2**15, 2**5, 2**16
    graph = feed_forward_net()
    assert product_flops(graph) == 2 * 2 * rows * features * hidden
    assert graph.param_bytes.sum() == 4 * 2 * features * hidden
    assert graph.flops[[kind == "aten.relu.default" for kind in graph.op_type]].sum() == rows * hidden
    # The softmax: greatest, difference, exponential, sum, quotient of all values, and twice a copy of one value a row.
    y = rows * features
    assert (
        graph.flops[[kind not in (*PRODUCTS, "aten.relu.default") for kind in graph.op_type]].sum()
        == rows * hidden + 3 * y + 5 * y + 2 * rows
    )


@pytest.mark.parametrize(
    "build,parameters,last", [(llama_block, 0, 0), (llama_layer, WIDTH + WIDTH * VOCABULARY, 1)], ids=["block", "layer"]
)
def test_the_work_and_parameters_of_llama_are_those_of_the_uncut_block(build: type, parameters: int, last: int) -> None:
    graph = build()
    assert graph.param_bytes.sum() == 4 * (BLOCK_PARAMETERS + parameters)
    attention = 2 * 2 * TOKENS**2 * WIDTH
    assert product_flops(graph) == 2 * TOKENS * (4 * WIDTH**2 + 3 * WIDTH * HIDDEN) + attention + last * 2 * WIDTH * VOCABULARY


@pytest.mark.parametrize("build", [feed_forward_net, llama_block, llama_layer], ids=["network", "block", "layer"])
def test_every_input_and_weight_matters(build: type) -> None:
    """The last op of the block depends on all others; each block of logits of the layer on all inputs and weights but the other logits'."""
    graph = build()
    needs = [{op} for op in range(graph.num_ops)]
    for op in range(graph.num_ops):
        for producer in graph.edge_producer[graph.edge_consumer == op].tolist():
            needs[op] |= needs[producer]
    ends = sorted(set(range(graph.num_ops)) - set(graph.edge_producer.tolist()))
    sources = set(range(graph.num_ops)) - set(graph.edge_consumer.tolist())
    reached = set.union(*(needs[op] for op in ends))
    assert sources <= reached
    if build is llama_block:
        assert ends == [graph.num_ops - 1]
        assert needs[-1] == set(range(graph.num_ops))
    if build is llama_layer:
        # The first half of the tokens, whose last norm nobody reads, and four blocks of logits, which need neither its mask nor each other's weights.
        assert len(ends) == 5
        assert all(len(sources - needs[op]) == 4 for op in ends[1:])


def test_cut_shares_of_a_product_are_equal() -> None:
    for name in SIZES:
        graph = workload(f"sharded-{name}").build()
        of_path: dict[tuple[str, str], set[float]] = {}
        for kind, path, flops in zip(graph.op_type, graph.module_path, graph.flops.tolist(), strict=True):
            if kind in PRODUCTS and path:
                of_path.setdefault((kind, path), set()).add(flops)
        assert all(len(found) == 1 for found in of_path.values())
