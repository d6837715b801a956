"""Annealing on latency: its compiled latency is that of the cost model, and what it returns is no worse than its start and no better than the best of all splits."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gdp.baselines.tarnawski.cost import ON_CPU, latency_s
from gdp.baselines.tarnawski.group_moves import group_moves
from gdp.baselines.tarnawski.latency_annealing import annealed_latency
from gdp.baselines.tarnawski.latency_kernel import latency_of
from gdp.capture.tarnawski_instance import TarnawskiInstance
from tests.baselines.tarnawski.instances import instances


def _splits(instance: TarnawskiInstance, subgraphs_per_accelerator: int) -> list[np.ndarray]:
    choices = range(ON_CPU if instance.num_cpus else 0, instance.num_accelerators * subgraphs_per_accelerator)
    return [np.array(split, np.int32) for split in itertools.product(choices, repeat=instance.num_nodes)]


@given(instances(max_nodes=5, training=False), st.sampled_from([1, 2]), st.integers(0, 100))
@settings(deadline=None, max_examples=60)
def test_never_worse_than_its_start_and_never_below_the_optimum(instance: TarnawskiInstance, per_accelerator: int, seed: int) -> None:
    seconds = [latency_s(instance, split, subgraphs_per_accelerator=per_accelerator) for split in _splits(instance, per_accelerator)]
    runs = [split for split, value in zip(_splits(instance, per_accelerator), seconds, strict=True) if np.isfinite(value)]
    assume(runs)
    start = runs[seed % len(runs)]
    found = [
        annealed_latency(
            instance, start, evaluations=1000, generator=np.random.default_rng(seed), subgraphs_per_accelerator=per_accelerator
        )
        for _ in range(2)
    ]
    assert found[0].split is not None and found[1].split is not None
    np.testing.assert_array_equal(found[0].split, found[1].split)
    start_s = latency_s(instance, start, subgraphs_per_accelerator=per_accelerator)
    assert min(seconds) <= found[0].objective_s <= start_s
    assert found[0].objective_s == latency_s(instance, found[0].split, subgraphs_per_accelerator=per_accelerator)


@given(instances(max_nodes=6, training=False), st.sampled_from([1, 2]), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=100)
def test_the_compiled_latency_is_that_of_the_cost_model(instance: TarnawskiInstance, per_accelerator: int, seed: int) -> None:
    moves = group_moves(instance)
    num_subgraphs = instance.num_accelerators * per_accelerator
    generator = np.random.default_rng(seed)
    place = generator.integers(0, num_subgraphs + (instance.num_cpus > 0), len(moves.size_bytes))
    place = np.where(moves.runs_on_accelerator | (instance.num_cpus == 0), place, num_subgraphs)
    node_place = place[moves.group_of_node]
    held = np.bincount(node_place // per_accelerator, instance.size_bytes, minlength=instance.num_accelerators + 1)
    assume((held[: instance.num_accelerators] <= instance.accelerator_memory_bytes).all())
    by_producer = np.argsort(instance.edge_from, kind="stable")
    work = tuple(np.zeros(length, kind) for length, kind in _shapes(instance.num_nodes, num_subgraphs))
    compiled_s = latency_of(
        moves,
        instance.cpu_time_s,
        np.searchsorted(instance.edge_from[by_producer], np.arange(instance.num_nodes + 1)),
        instance.edge_to[by_producer].astype(np.int64),
        place,
        num_subgraphs,
        per_accelerator,
        work,
    )
    split = np.where(node_place == num_subgraphs, ON_CPU, node_place).astype(np.int32)
    assert compiled_s == pytest.approx(latency_s(instance, split, subgraphs_per_accelerator=per_accelerator), rel=1e-12)


def _shapes(num_nodes: int, num_subgraphs: int) -> list[tuple[int, type]]:
    return [
        (num_nodes, np.float64),
        (num_nodes, np.int64),
        (num_nodes + num_subgraphs, np.int64),
        (num_subgraphs + 2, np.int64),
        (num_nodes, np.int64),
    ]
