"""Annealing on max-load: what it returns can run, is no worse than its start, and on small instances is the optimum of all splits."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gdp.baselines.tarnawski.annealing import annealed_max_load
from gdp.baselines.tarnawski.cost import max_load_s, why_infeasible
from gdp.capture.tarnawski_instance import TarnawskiInstance
from tests.baselines.tarnawski.instances import all_splits, instances


@given(instances(max_nodes=5), st.integers(0, 3))
@settings(deadline=None, max_examples=60)
def test_never_worse_than_its_start_and_often_the_optimum(instance: TarnawskiInstance, seed: int) -> None:
    splits = [device for device in all_splits(instance) if why_infeasible(instance, device) is None]
    assume(splits)
    start = splits[seed % len(splits)]
    solution = annealed_max_load(instance, start, evaluations=2000, generator=np.random.default_rng(seed))
    again = annealed_max_load(instance, start, evaluations=2000, generator=np.random.default_rng(seed))
    best_s = min(max_load_s(instance, device) for device in splits)
    assert solution.split is not None
    assert again.split is not None
    np.testing.assert_array_equal(solution.split, again.split)
    assert best_s <= max_load_s(instance, solution.split) == solution.objective_s <= max_load_s(instance, start)


def test_it_finds_the_best_split_that_memory_allows() -> None:
    """Each accelerator holds one of the first three nodes: the best load is 3 + 1, and would be 3 if one could hold them all."""
    count = 5
    instance = TarnawskiInstance(
        source="five nodes without edges",
        num_accelerators=3,
        num_cpus=0,
        accelerator_memory_bytes=1.0,
        node_id=np.arange(count),
        cpu_time_s=np.ones(count),
        accelerator_time_s=np.array([1.0, 1.0, 1.0, 3.0, 3.0]),
        runs_on_accelerator=np.ones(count, np.bool_),
        backward=np.zeros(count, np.bool_),
        colour=np.full(count, -1, np.int32),
        size_bytes=np.array([1.0, 1.0, 1.0, 0.0, 0.0]),
        transfer_s=np.zeros(count),
        edge_from=np.zeros(0, np.int32),
        edge_to=np.zeros(0, np.int32),
    )
    solution = annealed_max_load(instance, np.array([0, 1, 2, 0, 0], np.int32), evaluations=3000, generator=np.random.default_rng(0))
    assert solution.objective_s == 4.0
