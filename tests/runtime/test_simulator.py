"""The compiled simulator against the specification, to the last bit."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.graph import Graph
from gdp.runtime.simulator import Simulator
from gdp.runtime.specification import simulate
from tests.strategies import clusters, devices, graphs, placement, seeded_cluster, seeded_device, seeded_graph

DISPATCHES = ("ready_order", "program_order", "priority")


def assert_same(one: object, other: object) -> None:
    """Equal field by field, in value and type, without tolerance."""
    assert type(one) is type(other)
    for field in dataclasses.fields(one):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if dataclasses.is_dataclass(left):
            assert_same(left, right)
            continue
        assert type(left) is type(right), field.name
        if isinstance(left, tuple):
            assert len(left) == len(right), field.name
        for here, there in zip(left, right, strict=True) if isinstance(left, tuple) else [(left, right)]:
            np.testing.assert_array_equal(here, there, err_msg=field.name)
            assert np.asarray(here).dtype == np.asarray(there).dtype, field.name


def ranks(dispatch: str, graph: Graph) -> st.SearchStrategy:
    if dispatch != "priority":
        return st.none()
    value = st.sampled_from([-np.inf, -1.0, -0.0, 0.0, 1.0, 2.0, np.inf])
    return st.lists(value, min_size=graph.num_ops, max_size=graph.num_ops).map(np.array)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), dispatch=st.sampled_from(DISPATCHES))
def test_equals_the_specification(data: st.DataObject, dispatch: str) -> None:
    graph = data.draw(graphs())
    cluster = data.draw(clusters())
    device = data.draw(devices(graph, cluster))
    rank = data.draw(ranks(dispatch, graph))
    simulator = Simulator(dispatch=dispatch, rank=rank, with_timeline=True)
    expected = simulate(graph, cluster, placement(device), dispatch=dispatch, rank=rank)
    assert_same(simulator(graph, cluster, placement(device)), expected)
    assert_same(simulator.batch(graph, cluster, device[np.newaxis])[0], dataclasses.replace(expected, timeline=None))


@pytest.mark.parametrize(("num_ops", "cases"), [(6, 250), (40, 100), (400, 6), (2000, 1)])
def test_equals_the_specification_on_seeded_cases(num_ops: int, cases: int) -> None:
    for seed in range(cases):
        generator = np.random.default_rng([num_ops, seed])
        graph = seeded_graph(generator, num_ops=int(generator.integers(1, num_ops + 1)))
        cluster = seeded_cluster(generator, num_devices=int(generator.integers(1, 5 if seed % 20 else 40)))
        device = np.stack([seeded_device(generator, graph, cluster) for _ in range(2)])
        for dispatch in DISPATCHES:
            rank = generator.integers(0, 4, graph.num_ops) * 1.0 if dispatch == "priority" else None
            simulator = Simulator(dispatch=dispatch, rank=rank, with_timeline=True)
            batch = simulator.batch(graph, cluster, device)
            for row in range(2):
                expected = simulate(graph, cluster, placement(device[row]), dispatch=dispatch, rank=rank)
                assert_same(batch[row], dataclasses.replace(expected, timeline=None))
            assert_same(simulator(graph, cluster, placement(device[-1])), expected)
