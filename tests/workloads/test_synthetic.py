"""The synthetic families: sizes and costs as promised, structure as named, training steps that mirror the forward pass."""

import numpy as np
import pytest

from gdp.cluster import preset
from gdp.errors import InputError
from gdp.graph import Graph, Phase
from gdp.runtime.roofline import op_time_s
from gdp.workloads.sketch import Sketch
from gdp.workloads.synthetic import cells, layered, series_parallel, unrolled_rnn

FAMILIES = (layered, series_parallel, cells, unrolled_rnn)
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)


@every_family
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("num_ops", [100, 400])
def test_size_and_costs_are_as_promised(family: type, num_ops: int, training: bool) -> None:
    for seed in range(2):
        graph = family(np.random.default_rng(seed), num_ops=num_ops, training=training)
        assert num_ops * 2 / 3 <= graph.num_ops <= num_ops * 4 / 3
        activations = graph.tensor_bytes[graph.tensor_bytes > 4]
        assert activations.max() <= 2**28
        assert 10_000 <= np.median(activations) <= 50_000_000
        assert (set(graph.phase.tolist()) == {0, 1, 2}) == training
        assert np.isfinite(op_time_s(graph, preset("p100x2"))).all()


@every_family
def test_the_seed_decides(family: type) -> None:
    one, again, other = (family(np.random.default_rng(seed), num_ops=150) for seed in (1, 1, 2))
    assert one.sha256 == again.sha256 != other.sha256


@pytest.mark.parametrize("family", [layered, series_parallel], ids=lambda family: family.__name__)
def test_drawn_tensors_stay_in_the_range(family: type) -> None:
    graph = family(np.random.default_rng(4), num_ops=500)
    assert graph.tensor_bytes.min() >= 10_000
    assert graph.tensor_bytes.max() <= 50_000_000


def test_some_graphs_are_bound_by_work_and_some_by_traffic() -> None:
    cluster = preset("p100x2")
    ratio = []
    for seed in range(30):
        graph = layered(np.random.default_rng(seed), num_ops=100)
        ratio.append(op_time_s(graph, cluster)[:, 0].sum() / (graph.tensor_bytes.sum() / cluster.bandwidth_bytes_per_s[0, 1]))
    assert min(ratio) < 0.3
    assert max(ratio) > 1.0


def test_a_series_parallel_graph_reduces_to_one_edge() -> None:
    """Merging parallel edges and ops with one input and one output until nothing changes leaves the source and the last op: the definition."""
    for seed in range(5):
        graph = series_parallel(np.random.default_rng(seed), num_ops=80)
        edges = set(zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True))
        reducible = True
        while reducible:
            reducible = False
            for op in range(1, graph.num_ops - 1):
                into, out = [e for e in edges if e[1] == op], [e for e in edges if e[0] == op]
                if len(into) == len(out) == 1:
                    edges = (edges - {into[0], out[0]}) | {(into[0][0], out[0][1])}
                    reducible = True
        assert edges == {(0, graph.num_ops - 1)}


def test_recurrent_weights_are_shared_over_time_either_way() -> None:
    ways = set()
    for seed in range(8):
        graph = unrolled_rnn(np.random.default_rng(seed), num_ops=300)
        variables = [op for op, kind in enumerate(graph.op_type) if kind == "ReadVariableOp"]
        products = [op for op, kind in enumerate(graph.op_type) if kind == "aten.linear.default"]
        layers = {graph.module_path[op].split(".")[0] for op in products}
        ways.add(bool(variables))
        if variables:
            assert graph.param_bytes.sum() == graph.param_bytes[variables].sum()
            assert len(variables) == len(layers)
            assert (graph.colocation_group[products] == Graph.NO_GROUP).all()
        else:
            assert len(set(graph.colocation_group[products].tolist())) == len(layers) == np.count_nonzero(graph.param_bytes)
    assert ways == {False, True}


def test_the_training_step_of_two_products_in_closed_form() -> None:
    """`x -> linear -> relu -> linear`: what each op of the step costs, by hand."""
    sketch = Sketch()
    x = sketch.input((8, 16))
    hidden = sketch.contraction("aten.linear.default", (x,), shape=(8, 32), reduced=16, weight=sketch.weight(16 * 32))
    active = sketch.pointwise("aten.relu.default", (hidden,), shape=(8, 32), flops_per_element=1.0)
    sketch.contraction("aten.linear.default", (active,), shape=(8, 4), reduced=32, weight=sketch.weight(32 * 4))
    graph = sketch.graph(source="by hand", training=True)
    flops = dict(zip(graph.name, graph.flops.tolist(), strict=True))
    assert flops == {
        "input_0": 0,
        "linear_1": 2 * 8 * 16 * 32,
        "relu_2": 8 * 32,
        "linear_3": 2 * 8 * 32 * 4,
        "sum_4": 1,
        "backward_4": 1,
        "backward_3": 4 * 8 * 32 * 4,
        "update_1": 2 * 32 * 4,
        "backward_2": 8 * 32,
        "backward_1": 4 * 8 * 16 * 32,
        "update_0": 2 * 16 * 32,
    }
    # The weight, the input, the output, in 4-byte numbers.
    assert graph.accessed_bytes[graph.name.index("linear_1")] == 4 * (16 * 32 + 8 * 16 + 8 * 32)
    # The gradient in, the weight, the input, the gradients out; the input is no one's to learn.
    assert graph.accessed_bytes[graph.name.index("backward_1")] == 4 * (8 * 32 + 16 * 32 + 8 * 16 + 16 * 32)
    assert graph.param_bytes.sum() == 4 * (16 * 32 + 32 * 4)
    group = dict(zip(graph.name, graph.colocation_group.tolist(), strict=True))
    assert group["linear_1"] == group["backward_1"] == group["update_0"] != Graph.NO_GROUP
    assert group["linear_3"] == group["backward_3"] == group["update_1"] != group["linear_1"]
    assert graph.phase[graph.name.index("update_0")] == Phase.UPDATE
    assert not graph.works[0]


@every_family
def test_too_few_ops_are_refused(family: type) -> None:
    with pytest.raises(InputError, match="ask for 8 to"):
        family(np.random.default_rng(0), num_ops=7)
