"""The dynamic program over ideals: brute force on small instances, the published optima on published ones."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.baselines.tarnawski import ideals
from gdp.baselines.tarnawski.contiguous_dp import contiguous_optimum, linearised_optimum, work_bound_s
from gdp.baselines.tarnawski.cost import max_load_s, why_infeasible
from gdp.baselines.tarnawski.groups import contiguous_groups
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.capture.tarnawski_json import read_tarnawski
from gdp.errors import InputError
from tests.baselines.tarnawski.instances import PUBLISHED, all_splits, instances, is_contiguous

CONTIGUOUS_MS = {
    "bert24_layer_inference": 17.790,
    "bert24_layer_training": 41.746,
    "gnmt_layer_inference": 32.911,
    "resnet50_layer_inference": 33.775,
    "inceptionv3_layer_inference": 51.552,
    "bert3_op_inference": 27.919,
}


@given(instances())
@settings(deadline=None, max_examples=300)
def test_the_optimum_is_that_of_all_contiguous_splits(instance: TarnawskiInstance) -> None:
    best_s = min((max_load_s(instance, device) for device in all_splits(instance) if is_contiguous(instance, device)), default=np.inf)
    solution = contiguous_optimum(instance, time_limit_s=60.0)
    assert solution.objective_s == pytest.approx(best_s, rel=1e-12)
    assert solution.proven
    if solution.split is not None:
        assert why_infeasible(instance, solution.split) is None
        assert is_contiguous(instance, solution.split)
        assert max_load_s(instance, solution.split) == solution.objective_s
    linear = linearised_optimum(instance)
    assert linear.objective_s >= solution.objective_s >= work_bound_s(instance) * (1 - 1e-12)


@given(instances(max_nodes=6, training=False), st.lists(st.booleans(), min_size=6, max_size=6))
@settings(deadline=None, max_examples=300)
def test_joining_idle_nodes_loses_no_optimum(instance: TarnawskiInstance, idle: list[bool]) -> None:
    busy = ~np.array(idle[: instance.num_nodes])
    instance = dataclasses.replace(
        instance,
        accelerator_time_s=np.where(busy, 1.0 + instance.accelerator_time_s, 0.0),
        cpu_time_s=np.where(busy, 1.0 + instance.cpu_time_s, 0.0),
        runs_on_accelerator=np.ones(instance.num_nodes, np.bool_),
        colour=np.full(instance.num_nodes, -1, np.int32),
    )
    best_s = min((max_load_s(instance, device) for device in all_splits(instance) if is_contiguous(instance, device)), default=np.inf)
    assert contiguous_optimum(instance, time_limit_s=60.0).objective_s == pytest.approx(best_s, rel=1e-12)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published instances are not here")
@pytest.mark.parametrize("name", CONTIGUOUS_MS)
def test_published_optima(name: str) -> None:
    instance = read_tarnawski(PUBLISHED / "max_load" / f"{name}.json")
    solution = contiguous_optimum(instance, time_limit_s=300.0)
    assert solution.proven
    assert solution.objective_s * 1e3 == pytest.approx(CONTIGUOUS_MS[name], abs=6e-4)
    assert is_acyclic(instance, solution.split)


def is_acyclic(instance: TarnawskiInstance, device: np.ndarray) -> bool:
    """`is_contiguous` without trying all orders: devices are taken away one by one that no other precedes."""
    forward = ~instance.backward[instance.edge_from] & ~instance.backward[instance.edge_to]
    one, other = device[instance.edge_from[forward]], device[instance.edge_to[forward]]
    left = set(range(instance.num_devices))
    while left:
        free = {d for d in left if not ((other == d) & (one != d) & np.isin(one, list(left))).any()}
        if not free:
            return False
        left -= free
    return True


def test_too_many_ideals_are_refused_at_once() -> None:
    count = 20
    wide = TarnawskiInstance(
        source="twenty nodes side by side",
        num_accelerators=2,
        num_cpus=0,
        accelerator_memory_bytes=1.0,
        node_id=np.arange(count),
        cpu_time_s=np.ones(count),
        accelerator_time_s=np.ones(count),
        runs_on_accelerator=np.ones(count, np.bool_),
        backward=np.zeros(count, np.bool_),
        colour=np.full(count, -1, np.int32),
        size_bytes=np.zeros(count),
        transfer_s=np.zeros(count),
        edge_from=np.zeros(0, np.int32),
        edge_to=np.zeros(0, np.int32),
    )
    with pytest.raises(InputError, match="over 60000 ideals.*linearised"):
        contiguous_optimum(wide, time_limit_s=10.0)
    assert linearised_optimum(wide).objective_s == 10.0
    assert linearised_optimum(wide, time_limit_s=0.0).split is None
    narrow = dataclasses.replace(wide, edge_from=np.arange(count - 1, dtype=np.int32), edge_to=np.arange(1, count, dtype=np.int32))
    assert ideals.all_ideals(contiguous_groups(narrow), source="a chain").num_ideals == count + 1


def test_when_time_runs_out_there_is_a_split_and_a_bound() -> None:
    count = 13
    wide = TarnawskiInstance(
        source="thirteen nodes side by side",
        num_accelerators=3,
        num_cpus=0,
        accelerator_memory_bytes=1.0,
        node_id=np.arange(count),
        cpu_time_s=np.ones(count),
        accelerator_time_s=np.arange(1.0, count + 1),
        runs_on_accelerator=np.ones(count, np.bool_),
        backward=np.zeros(count, np.bool_),
        colour=np.full(count, -1, np.int32),
        size_bytes=np.zeros(count),
        transfer_s=np.zeros(count),
        edge_from=np.zeros(0, np.int32),
        edge_to=np.zeros(0, np.int32),
    )
    solution = contiguous_optimum(wide, time_limit_s=0.0)
    assert not solution.proven
    assert solution.bound_s == pytest.approx(91 / 3)
    assert solution.gap == pytest.approx(solution.objective_s / (91 / 3) - 1)
