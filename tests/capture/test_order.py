"""The topological order: laws on random graphs, and cycles that are named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdp.capture.order import topological_order
from gdp.errors import InputError


def order_of(num_ops: int, edges: list[tuple[int, int]]) -> list[int]:
    rows = np.array(edges, np.int64).reshape(-1, 2)
    return topological_order(num_ops, rows, [f"op{i}" for i in range(num_ops)]).tolist()


@st.composite
def shuffled_dags(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    num_ops = draw(st.integers(1, 12))
    label = draw(st.permutations(range(num_ops)))
    pairs = draw(st.lists(st.tuples(st.integers(0, num_ops - 1), st.integers(0, num_ops - 1)), max_size=30))
    return num_ops, [(label[min(pair)], label[max(pair)]) for pair in pairs if pair[0] != pair[1]]


@given(shuffled_dags())
def test_every_op_once_and_after_its_producers(graph: tuple[int, list[tuple[int, int]]]) -> None:
    num_ops, edges = graph
    order = order_of(num_ops, edges)
    assert sorted(order) == list(range(num_ops))
    assert all(order.index(producer) < order.index(consumer) for producer, consumer in edges)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_an_order_that_is_topological_comes_back_unchanged(pairs: list[tuple[int, int]]) -> None:
    assert order_of(10, [(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]]) == list(range(10))


def test_producers_land_right_before_their_first_consumer() -> None:
    assert order_of(5, [(4, 1), (3, 4), (1, 2)]) == [0, 3, 4, 1, 2]


def test_a_long_chain_written_backwards() -> None:
    count = 100_000
    rows = np.stack([np.arange(1, count), np.arange(count - 1)], axis=1)
    order = topological_order(count, rows, [""] * count)
    np.testing.assert_array_equal(order, np.arange(count)[::-1])


@pytest.mark.parametrize(
    ("edges", "circle"),
    [
        ([(1, 1)], "op1 -> op1"),
        ([(0, 1), (1, 2), (2, 3), (3, 1)], "op2 -> op3 -> op1 -> op2"),
        ([(i, (i + 1) % 9) for i in range(9)], "op1 -> op2 -> op3 -> op4 -> op5 -> (3 more) -> op0 -> op1"),
    ],
)
def test_a_cycle_is_named(edges: list[tuple[int, int]], circle: str) -> None:
    with pytest.raises(InputError) as error:
        order_of(9, edges)
    assert f"in a circle, {circle}:" in str(error.value)
