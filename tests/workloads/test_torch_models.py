"""PyTorch models as graphs: FLOPs and parameters by closed forms, and the shape each family is there for."""

import numpy as np
import pytest

from gdp.capture.coarsening import coarsen
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.workloads import torch_models


def flops(graph: Graph, op: str) -> float:
    return float(sum(value for value, name in zip(graph.flops, graph.op_type, strict=True) if name.startswith(f"aten.{op}.")))


def test_transformers() -> None:
    layers, width, length, batch, vocabulary = 2, 32, 16, 3, 100
    size = {"num_layers": layers, "width": width, "num_heads": 4, "length": length, "batch_size": batch, "vocabulary": vocabulary}
    tokens = length * batch
    per_layer = 2 * tokens * 12 * width**2
    encoder, decoder = torch_models.transformer_encoder(**size), torch_models.decoder_transformer(**size)
    assert flops(encoder, "linear") == layers * per_layer + 2 * batch * width * 2
    assert flops(decoder, "linear") == layers * per_layer + 2 * tokens * width * vocabulary
    for graph in (encoder, decoder):
        assert flops(graph, "scaled_dot_product_attention") == layers * 4 * batch * length**2 * width
    of_layer = 12 * width**2 + 13 * width
    assert decoder.param_bytes.sum() == 4 * (layers * of_layer + (vocabulary + length + 2) * width)
    assert (encoder.colocation_group == Graph.NO_GROUP).all()
    tied = [name for name, group in zip(decoder.op_type, decoder.colocation_group, strict=True) if group == 0]
    assert tied == ["aten.embedding.default", "aten.linear.default"]


def test_experts_are_parallel_and_share_the_tokens() -> None:
    experts, width, tokens = 4, 32, 3 * 16
    graph = torch_models.mixture_of_experts(
        num_layers=1, num_experts=experts, width=width, num_heads=4, length=16, batch_size=3, vocabulary=100
    )
    share = 2 * tokens // experts
    of_experts = [
        value
        for value, path, op in zip(graph.flops, graph.module_path, graph.op_type, strict=True)
        if ".experts." in path and "linear" in op
    ]
    assert of_experts == [2 * share * width * 4 * width] * (2 * experts)
    group_of_op = coarsen(graph).group_of_op
    groups = [
        {int(group) for group, path in zip(group_of_op, graph.module_path, strict=True) if f".experts.{expert}." in path}
        for expert in range(experts)
    ]
    assert all(not one & other for number, one in enumerate(groups) for other in groups[:number])


def test_residual_cnn() -> None:
    graph = torch_models.residual_cnn(depths=(1, 2), width=8, image_size=32, batch_size=2)
    assert graph.op_type.count("aten.conv2d.default") == 1 + 2 * 3 + 1
    assert sum("add" in op for op in graph.op_type) == 3
    stem, stage0 = 2 * (2 * 8 * 16 * 16) * 3 * 49, 2 * 2 * (2 * 8 * 8 * 8) * 8 * 9
    stage1 = 2 * (2 * 16 * 4 * 4) * (8 * 9 + 8 + 3 * 16 * 9)
    assert flops(graph, "conv2d") == stem + stage0 + stage1


def test_towers_are_parallel_until_the_end() -> None:
    graph = torch_models.two_tower_recommender(num_tables=3, rows=50, width=4, layers=(8, 6), batch_size=5)
    assert graph.op_type.count("aten.embedding_bag.padding_idx") == 6
    assert flops(graph, "linear") == 2 * 2 * 5 * (12 * 8 + 8 * 6)
    assert graph.param_bytes.sum() == 4 * 2 * (3 * 50 * 4 + 12 * 8 + 8 + 8 * 6 + 6)


def test_u_nets_are_parallel_until_the_end() -> None:
    graph = torch_models.u_net(num_levels=2, width=4, image_size=16, batch_size=1)
    first = {name for name, path in zip(graph.name, graph.module_path, strict=True) if path.startswith("first")}
    crossing = [
        (graph.name[producer], graph.name[consumer])
        for producer, consumer in zip(graph.edge_producer, graph.edge_consumer, strict=True)
        if graph.module_path[producer].startswith("first") and graph.module_path[consumer].startswith("second")
    ]
    assert first and not crossing
    assert flops(graph, "conv_transpose2d") == 2 * 2 * ((16 * 4 * 4) * 8 * 4 + (8 * 8 * 8) * 4 * 4)
    with pytest.raises(InputError, match="cannot be halved 3 times"):
        torch_models.u_net(num_levels=3, image_size=36)
    with pytest.raises(InputError, match="not a multiple of num_heads"):
        torch_models.decoder_transformer(width=30, num_heads=4)


def test_cells_of_an_unrolled_layer_share_their_weights() -> None:
    graph = torch_models.unrolled_lstm(num_layers=2, width=8, num_steps=5, batch_size=3, vocabulary=20)
    cells = [op for op, name in enumerate(graph.op_type) if name == "aten.lstm_cell.default"]
    assert len(cells) == 2 * 5
    np.testing.assert_array_equal(graph.flops[cells], 2 * 3 * 2 * 32 * 8)
    np.testing.assert_array_equal(graph.colocation_group[cells], [0, 1] * 5)
    assert graph.param_bytes[cells].sum() == 4 * 2 * (2 * 32 * 8 + 2 * 32)
