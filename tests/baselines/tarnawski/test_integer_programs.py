"""The integer programs against brute force, and what they say when their time runs out."""

import dataclasses
import importlib.util
import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gdp.baselines.tarnawski.constraint_latency import constraint_latency
from gdp.baselines.tarnawski.cost import ON_CPU, latency_s, max_load_s
from gdp.baselines.tarnawski.latency_ip import least_latency
from gdp.baselines.tarnawski.throughput_ip import least_max_load
from gdp.capture.tarnawski_instance import TarnawskiInstance
from tests.baselines.tarnawski.instances import all_splits, instances, is_contiguous


@given(instances(max_nodes=5))
@settings(deadline=None, max_examples=100)
def test_throughput_optima_are_those_of_all_splits(instance: TarnawskiInstance) -> None:
    for contiguous in (False, True):
        best_s = min(
            (max_load_s(instance, device) for device in all_splits(instance) if not contiguous or is_contiguous(instance, device)),
            default=np.inf,
        )
        start = next((device for device in all_splits(instance) if np.isfinite(max_load_s(instance, device))), None)
        solution = least_max_load(instance, contiguous=contiguous, time_limit_s=30.0, start=None if contiguous else start)
        assert solution.objective_s == pytest.approx(best_s, rel=1e-6)
        assert solution.proven
        if contiguous and solution.split is not None:
            assert is_contiguous(instance, solution.split)


def latencies_of_all_splits(instance: TarnawskiInstance, subgraphs_per_accelerator: int) -> dict[tuple[int, ...], float]:
    choices = range(ON_CPU if instance.num_cpus else 0, instance.num_accelerators * subgraphs_per_accelerator)
    return {
        split: latency_s(instance, np.array(split, np.int32), subgraphs_per_accelerator=subgraphs_per_accelerator)
        for split in itertools.product(choices, repeat=instance.num_nodes)
    }


@given(instances(max_nodes=5, training=False), st.sampled_from([1, 1, 2]))
@settings(deadline=None, max_examples=60)
def test_latency_optima_are_those_of_all_splits(instance: TarnawskiInstance, subgraphs_per_accelerator: int) -> None:
    # A load of zero would let subgraphs wait for each other in the program, which the cost model forbids.
    instance = dataclasses.replace(instance, accelerator_time_s=instance.accelerator_time_s + 0.5)
    if instance.num_accelerators * subgraphs_per_accelerator > 2:
        subgraphs_per_accelerator = 1
    best_s = min(latencies_of_all_splits(instance, subgraphs_per_accelerator).values(), default=np.inf)
    solution = least_latency(instance, time_limit_s=30.0, subgraphs_per_accelerator=subgraphs_per_accelerator)
    assert solution.objective_s == pytest.approx(best_s, rel=1e-5)
    assert solution.gap <= 1e-5 or np.isinf(best_s)


@pytest.mark.skipif(importlib.util.find_spec("ortools") is None, reason="OR-tools is optional")  # it may not be imported beside highspy
@given(instances(max_nodes=5, training=False), st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_latency_optima_by_constraint_programming(instance: TarnawskiInstance, subgraphs_per_accelerator: int) -> None:
    instance = dataclasses.replace(instance, accelerator_time_s=instance.accelerator_time_s + 0.5)
    latencies = latencies_of_all_splits(instance, subgraphs_per_accelerator)
    worst = max(latencies, key=lambda split: latencies[split] if np.isfinite(latencies[split]) else -1.0)
    assume(np.isfinite(latencies[worst]))
    found = constraint_latency(instance, np.array(worst, np.int32), time_limit_s=30.0, subgraphs_per_accelerator=subgraphs_per_accelerator)
    best_s = min(latencies.values())
    assert found.objective_s == pytest.approx(best_s, rel=1e-5)
    assert best_s * (1 - 1e-4) <= found.bound_s <= best_s
