"""Random programs of blocks: sizes as promised, products that do the work of the whole matrices whatever the cut, training steps that mirror the forward pass."""

import numpy as np
import pytest

from gdp.cluster import preset
from gdp.errors import InputError
from gdp.runtime.roofline import op_time_s
from gdp.workloads.blocked import _Program, blocked


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("num_ops", [100, 1000])
def test_size_and_costs_are_as_promised(num_ops: int, training: bool) -> None:
    for seed in range(20):
        graph = blocked(np.random.default_rng(seed), num_ops=num_ops, training=training)
        assert 1 / 3 <= graph.num_ops / num_ops <= 1.4
        assert graph.tensor_bytes.max() <= 2**28
        assert (set(graph.phase.tolist()) == {0, 1, 2}) == training
        assert np.isfinite(op_time_s(graph, preset("p100x2"))).all()


def test_the_seed_decides() -> None:
    one, again, other = (blocked(np.random.default_rng(seed), num_ops=150) for seed in (1, 1, 2))
    assert one.sha256 == again.sha256 != other.sha256


def test_a_product_does_the_same_work_however_it_is_cut() -> None:
    """Twice rows x inner x columns, and every block of the left matrix is read by each column of the result."""
    for seed in range(30):
        program = _Program(np.random.default_rng(seed), target=10_000)
        x, y = program.input(1024, 512), program.input(2048, 512)
        product = program.times_transposed(x, y)
        graph = program.sketch.graph(source="test", training=False)
        products = np.array([kind == "aten.mm.default" for kind in graph.op_type])
        assert graph.flops[products].sum() == 2 * 1024 * 512 * 2048
        read = set(graph.edge_producer[products[graph.edge_consumer]].tolist())
        assert read == {op for matrix in (x, y) for row in matrix.ops for op in row}
        assert (product.rows, product.columns) == (1024, 2048)
        assert product.block == program.sketch.shape(product.ops[0][0])


def test_weights_are_variables_or_parameters_of_a_whole_program() -> None:
    ways = set()
    for seed in range(20):
        graph = blocked(np.random.default_rng(seed), num_ops=300)
        holders = {graph.op_type[op] for op in np.flatnonzero(graph.param_bytes)}
        assert holders in ({"ReadVariableOp"}, {"aten.mm.default"})
        ways |= holders
    assert len(ways) == 2


def test_a_program_of_too_few_ops_is_refused() -> None:
    with pytest.raises(InputError, match="8 to 10 000 000"):
        blocked(np.random.default_rng(0), num_ops=7)
