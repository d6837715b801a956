import dataclasses

import pytest
import torch
from policy_examples import cluster, layered_graph, policy, tensors

from gdp.features.config import EDGE_FEATURES
from gdp.policy.encoder import MaxPool


def test_max_pooling_of_three_nodes_by_hand():
    pool = MaxPool(2, generator=torch.Generator())
    with torch.no_grad():
        pool.neighbour.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        pool.neighbour.bias.copy_(torch.tensor([0.0, -1.0]))
        pool.edge.weight.zero_()
        pool.edge.weight[0, 0] = 1.0
    h = torch.tensor([[0.0, 1.0], [2.0, 0.0], [5.0, 5.0]])
    edge = torch.zeros(2, len(EDGE_FEATURES))
    edge[0, 0] = 4.0
    # edges 0 -> 2 (edge feature 4) and 1 -> 2: messages sigmoid(0 + 4, 2 - 1) and sigmoid(2, -1)
    pooled = pool(h, torch.tensor([0, 1]), torch.tensor([2, 2]), edge)
    expected = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.98201379, 0.73105858]])
    torch.testing.assert_close(pooled, expected)


def test_order_of_edges_does_not_matter():
    x = tensors(layered_graph(layers=5, width=3, seed=0), cluster(1e12, 1e12))
    shuffled = torch.randperm(len(x.edge), generator=torch.Generator().manual_seed(0))
    other = dataclasses.replace(x, edge_producer=x.edge_producer[shuffled], edge_consumer=x.edge_consumer[shuffled], edge=x.edge[shuffled])
    encoder = policy().encoder
    torch.testing.assert_close(encoder(x), encoder(other), rtol=1e-5, atol=1e-6)  # another order of rows in a matrix product


def test_both_directions_are_told_apart():
    x = tensors(layered_graph(layers=5, width=3, seed=0), cluster(1e12, 1e12))
    turned = dataclasses.replace(x, edge_producer=x.edge_consumer, edge_consumer=x.edge_producer)
    encoder = policy().encoder
    assert (encoder(x) - encoder(turned)).abs().max() > 0.1


@pytest.mark.parametrize("layers", [1, 2])
def test_information_travels_one_edge_per_layer(layers):
    x = tensors(layered_graph(layers=8, width=1, seed=0), cluster(1e12, 1e12))
    encoder = policy(sage_layers=layers).encoder
    changed = x.group.clone()
    changed[0] += 1
    moved = (encoder(x) - encoder(dataclasses.replace(x, group=changed))).abs().amax(dim=1) > 0
    assert moved.tolist() == [node <= layers for node in range(8)]
