"""The linear relaxation of m-SCT: hand cases, and the law that a favourite is one of a kind."""

import numpy as np
from hypothesis import given, settings
from small_graphs import machine, small_graph
from textbook import every_op_alone

from gdp.baselines.favourite_child import favourite_children
from gdp.baselines.quotient import quotient
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.graph import Graph
from tests.strategies import clusters, graphs


def favourites(graph: Graph, cluster: Cluster) -> list[int]:
    return favourite_children(quotient(graph, cluster, every_op_alone(graph)), cluster).tolist()


def test_the_child_on_the_long_way_is_the_favourite() -> None:
    """0 feeds 1 and 2; 3 follows 1. Only 0-1-3 together end in 3 s; 2 may pay its transfer. With 3 after 2, it is the other way round."""
    cluster = machine(memory_bytes=[2**30] * 4, transfer_s=0.9)
    assert favourites(small_graph([(0, 1), (0, 2), (1, 3)], seconds=[1.0] * 4), cluster) == [1, 3, -1, -1]
    assert favourites(small_graph([(0, 1), (0, 2), (2, 3)], seconds=[1.0] * 4), cluster) == [2, -1, 3, -1]


def test_the_parent_that_ends_last_has_the_child() -> None:
    cluster = machine(memory_bytes=[2**30] * 4, transfer_s=0.9)
    assert favourites(small_graph([(0, 2), (1, 2)], seconds=[1.0, 3.0, 1.0]), cluster) == [-1, 2, -1]


def test_nobody_has_a_favourite_without_edges() -> None:
    assert favourites(small_graph([], seconds=[1.0] * 3), machine(memory_bytes=[2**30])) == [-1] * 3


@settings(max_examples=30, deadline=None, derandomize=True)
@given(graph=graphs(min_ops=2, max_ops=12), cluster=clusters(max_devices=3))
def test_a_favourite_is_a_child_and_has_one_parent(graph: Graph, cluster: Cluster) -> None:
    whole = quotient(graph, cluster, coarsen(graph))
    found = favourite_children(whole, cluster)
    chosen = [(parent, child) for parent, child in enumerate(found.tolist()) if child >= 0]
    assert len({child for _, child in chosen}) == len(chosen)
    assert set(chosen) <= set(zip(whole.link_from.tolist(), whole.link_to.tolist(), strict=True))
    np.testing.assert_array_equal(found, favourite_children(whole, cluster))
