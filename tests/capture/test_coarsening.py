"""Coarsening: laws on random graphs, and shapes whose groups are known by hand."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.capture.coarsening import Grouping, coarsen, op_weight
from gdp.errors import InputError
from gdp.graph import Graph
from tests.strategies import graphs


def graph_of(
    edges: list[tuple[int, int]], work: list[float], *, size_bytes: dict[int, int] | None = None, group: list[int] | None = None
) -> Graph:
    """Every op has one output; `work` is FLOPs, and zero is an op without work."""
    num_ops = len(work)
    sizes = np.full(num_ops, 4, np.int64)
    for op, size in (size_bytes or {}).items():
        sizes[op] = size
    return Graph(
        op_type=("op",) * num_ops,
        name=tuple(f"op{op}" for op in range(num_ops)),
        module_path=("",) * num_ops,
        flops=np.array(work, np.float64),
        accessed_bytes=np.zeros(num_ops, np.int64),
        param_bytes=np.zeros(num_ops, np.int64),
        temp_bytes=np.zeros(num_ops, np.int64),
        phase=np.zeros(num_ops, np.int8),
        colocation_group=np.array(group or [-1] * num_ops, np.int32),
        tensor_producer=np.arange(num_ops, dtype=np.int32),
        tensor_bytes=sizes,
        tensor_shape=((-1,),) * num_ops,
        tensor_dtype=("float32",) * num_ops,
        edge_tensor=np.array([producer for producer, _ in edges], np.int32),
        edge_consumer=np.array([consumer for _, consumer in edges], np.int32),
        source="a test",
    )


def groups_of(graph: Graph, *, max_groups: int | None = None) -> list[list[int]]:
    grouping = coarsen(graph, max_groups=max_groups)
    return [np.flatnonzero(grouping.group_of_op == group).tolist() for group in range(grouping.num_groups)]


def light_groups_of(edges: list[tuple[int, int]], work: list[float], **options: Any) -> list[list[int]]:
    """The groups of a small graph beside which an op stands, left out here, that has nearly all the work and memory: so its chains are light."""
    graph = graph_of(edges, [*work, 1e6], size_bytes={**options.pop("size_bytes", {}), len(work): 10**6}, **options)
    groups = groups_of(graph)
    assert [len(work)] in groups
    return [group for group in groups if group != [len(work)]]


def test_one_op_is_one_group() -> None:
    assert groups_of(graph_of([], [1.0])) == [[0]]
    assert groups_of(graph_of([], [0.0])) == [[0]]


def test_a_light_chain_is_one_group() -> None:
    assert light_groups_of([(i, i + 1) for i in range(9)], [1.0] * 10) == [list(range(10))]


def test_a_heavy_chain_is_cut_where_it_has_its_share_of_the_work() -> None:
    groups = groups_of(graph_of([(i, i + 1) for i in range(1279)], [1.0] * 1280))
    assert groups[0] == list(range(11)) and all(len(group) in (10, 11) for group in groups[:-1])  # ten beside the heaviest, rounding aside


def test_a_light_op_goes_with_the_heavy_one_before_it_and_two_heavy_ones_stay_apart() -> None:
    assert groups_of(graph_of([(0, 1), (1, 2), (2, 3)], [100.0, 0.1, 100.0, 0.1], size_bytes={0: 1000, 2: 1000})) == [[0, 1], [2, 3]]


def test_a_chain_is_cut_where_it_has_its_share_of_the_memory() -> None:
    groups = groups_of(graph_of([(i, i + 1) for i in range(255)], [1.0] * 10 + [0.001] * 246))
    assert all(len(group) <= 3 for group in groups)  # every op has a 256th of all output bytes


def test_two_branches_stay_two_groups() -> None:
    assert light_groups_of([(0, 2), (1, 3), (2, 4), (3, 5)], [1.0] * 6) == [[0, 2, 4], [1, 3, 5]]


def test_a_block_keeps_its_branches_apart() -> None:
    # stem 0; branches 1-2, 3-4, 5 (a skip connection 0-6 besides); join 6, then 7
    edges = [(0, 1), (1, 2), (2, 6), (0, 3), (3, 4), (4, 6), (0, 5), (5, 6), (0, 6), (6, 7)]
    assert light_groups_of(edges, [1.0] * 8) == [[0], [1, 2], [3, 4], [5], [6, 7]]


def test_branches_stay_apart_behind_views() -> None:
    # 0 -> view 1 -> two branches 2, 3 through views 4, 5 -> join 6
    edges = [(0, 1), (1, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 6)]
    assert groups_of(graph_of(edges, [1, 0, 1, 1, 0, 0, 1])) == [[0, 1], [2, 4], [3, 5], [6]]


def test_a_chain_through_views_is_one_group() -> None:
    assert light_groups_of([(0, 1), (1, 2), (2, 3), (3, 4)], [1, 0, 0, 1, 1]) == [[0, 1, 2, 3, 4]]


def test_an_input_and_its_views_join_the_heaviest_consumer() -> None:
    # input 0 with a light view 1 for op 2 and a heavy view 3 for op 4; 5 joins both
    edges = [(0, 1), (1, 2), (0, 3), (3, 4), (2, 5), (4, 5)]
    assert groups_of(graph_of(edges, [0, 0, 1, 0, 1, 1], size_bytes={0: 8, 1: 2, 3: 6})) == [[2], [0, 1, 3, 4], [5]]


def test_a_barrier_without_work_does_not_hold_a_chain_apart() -> None:
    # two chains 0-1 and 2-3 whose ends all signal the barrier 4, from which nothing follows
    edges = [(0, 1), (2, 3), (0, 4), (1, 4), (2, 4), (3, 4)]
    assert [sorted(set(ops) - {4}) for ops in light_groups_of(edges, [1, 1, 1, 1, 0])] == [[0, 1], [2, 3]]


def test_colocation_unites_what_branches_apart() -> None:
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert light_groups_of(edges, [1.0] * 4, group=[-1, 5, 5, -1, -1]) == [[0, 1, 2, 3]]
    assert light_groups_of([*edges, (0, 3)], [1.0] * 4, group=[-1, 5, 5, -1, -1]) == [[0], [1, 2], [3]]


def test_groups_stand_in_the_order_of_their_heaviest_op() -> None:
    # op 0 belongs with op 3, which is heavier than it and comes after op 1 and op 2
    edges = [(1, 2), (0, 3), (2, 3), (1, 3)]
    assert groups_of(graph_of(edges, [1, 4, 2, 9], group=[7, -1, -1, 7])) == [[1], [2], [0, 3]]


def test_the_lightest_joins_along_the_heaviest_tensor() -> None:
    # a join 3 of three ops; op 1 is the lightest, and its heaviest tensor comes from 0
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (0, 3)]
    graph = graph_of(edges, [8, 1, 9, 8], size_bytes={0: 100, 1: 10, 2: 10})
    assert groups_of(graph, max_groups=4) == [[0], [1], [2], [3]]
    assert groups_of(graph, max_groups=3) == [[0, 1], [2], [3]]
    graph = graph_of(edges, [8, 1, 9, 8], size_bytes={0: 10, 1: 100, 2: 10})
    assert groups_of(graph, max_groups=3) == [[0], [2], [1, 3]]


def test_a_limit_prefers_groups_that_do_not_outgrow_the_rest() -> None:
    # 1 would join 0 along the heavier tensor, but 0 has more than twice the average of two groups already
    edges = [(0, 1), (1, 2), (0, 2), (0, 3), (2, 3)]
    graph = graph_of(edges, [100, 1, 2, 3], size_bytes={0: 100, 1: 10})
    assert groups_of(graph, max_groups=3) == [[0], [1, 2], [3]]


def test_parts_without_a_connection_still_keep_to_the_limit() -> None:
    assert groups_of(graph_of([], [5, 1, 2, 4]), max_groups=2) == [[0], [1, 2, 3]]
    assert groups_of(graph_of([], [0.0] * 4), max_groups=1) == [[0, 1, 2, 3]]


@given(graphs(max_ops=14), st.none() | st.integers(1, 6))
@settings(deadline=None)
def test_laws(graph: Graph, max_groups: int | None) -> None:
    grouping = coarsen(graph, max_groups=max_groups)
    assert sorted(set(grouping.group_of_op.tolist())) == list(range(grouping.num_groups))
    assert grouping.group_of_op.shape == (graph.num_ops,)
    for together in set(graph.colocation_group.tolist()) - {Graph.NO_GROUP}:
        assert len(set(grouping.group_of_op[graph.colocation_group == together])) == 1
    weight = op_weight(graph)
    anchors = [max(np.flatnonzero(grouping.group_of_op == group), key=lambda op: (weight[op], -op)) for group in range(grouping.num_groups)]
    assert anchors == sorted(anchors)
    if max_groups is not None:
        assert grouping.num_groups <= max_groups
        assert grouping.num_groups == min(max_groups, coarsen(graph).num_groups)
    np.testing.assert_array_equal(grouping.group_of_op, coarsen(graph, max_groups=max_groups).group_of_op)


def reachable(graph: Graph) -> np.ndarray:
    """`[ops, ops]` whether a path leads from one op to another."""
    path = np.zeros((graph.num_ops, graph.num_ops), np.bool_)
    for consumer, producer in sorted(zip(graph.edge_consumer.tolist(), graph.edge_producer.tolist(), strict=True)):
        path[:, consumer] |= path[:, producer]
        path[producer, consumer] = True
    return path


@given(graphs(max_ops=14, colocation=False))
@settings(deadline=None)
def test_no_two_parallel_ops_that_work_come_together_without_a_limit(graph: Graph) -> None:
    grouping = coarsen(graph)
    path = reachable(graph)
    working = np.flatnonzero(graph.works)
    for one in working:
        for other in working[working > one]:
            if grouping.group_of_op[one] == grouping.group_of_op[other]:
                assert path[one, other]


@given(graphs(max_ops=14, colocation=False))
@settings(deadline=None)
def test_a_work_free_op_stands_alone_only_where_nothing_connected_works(graph: Graph) -> None:
    grouping = coarsen(graph)
    works = np.zeros(grouping.num_groups, np.bool_)
    works[grouping.group_of_op[graph.works]] = True
    between = grouping.group_of_op[graph.edge_producer] != grouping.group_of_op[graph.edge_consumer]
    assert works[grouping.group_of_op[graph.edge_producer[between]]].all()
    assert works[grouping.group_of_op[graph.edge_consumer[between]]].all()


def test_expand_gives_every_op_the_device_of_its_group() -> None:
    grouping = Grouping(group_of_op=np.array([0, 1, 0, 2], np.int32), num_groups=3)
    np.testing.assert_array_equal(grouping.expand(np.array([5, 6, 7], np.int32)), [5, 6, 5, 7])
    batch = np.array([[[0, 1, 2], [3, 4, 5]]], np.int32)
    np.testing.assert_array_equal(grouping.expand(batch), [[[0, 1, 0, 2], [3, 4, 3, 5]]])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="max_groups is 0"):
        coarsen(graph_of([], [1.0]), max_groups=0)
    for groups, count in (([0, 2], 2), ([0, 0], 2), ([-1, 0], 2), ([1, 1], 1)):
        with pytest.raises(InputError, match="must use each of"):
            Grouping(group_of_op=np.array(groups, np.int32), num_groups=count)


def test_fifty_thousand_ops() -> None:
    generator = np.random.default_rng(0)
    count = 50_000
    edges = [(int(max(0, op - generator.integers(1, 30))), op) for op in range(1, count) for _ in range(2)]
    graph = graph_of(edges, generator.choice([0.0, 1.0, 50.0], count).tolist())
    assert coarsen(graph, max_groups=256).num_groups == 256
