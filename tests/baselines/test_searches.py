"""Simulated annealing and cross-entropy search: budget, curve, determinism, and what they must reach."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from gdp.baselines.cross_entropy import CrossEntropy
from gdp.baselines.simulated_annealing import SimulatedAnnealing
from gdp.baselines.single_device import SingleDevice
from gdp.cluster import Cluster, preset
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.runtime.simulator import Simulator
from gdp.workloads.known_optimum import fork_join
from gdp.workloads.synthetic import layered
from tests.contracts import brute_force_s
from tests.strategies import clusters, graphs

SIMULATOR = Simulator()
SEARCHES = (SimulatedAnnealing, CrossEntropy)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("evaluations", [1, 7, 130])
def test_budget_curve_and_placement_agree(search: type, evaluations: int) -> None:
    graph, cluster = layered(np.random.default_rng(0), num_ops=80), preset("p100x4")
    placer = search(runtime=SIMULATOR, evaluations=evaluations, seed=5)
    result = placer.search(graph, cluster)
    assert result.best_so_far_s.shape == (evaluations,)
    assert result.placement.origin.evaluations == evaluations
    assert (np.diff(result.best_so_far_s) <= 0).all()
    assert SIMULATOR(graph, cluster, result.placement).step_time_s == result.best_so_far_s[-1]
    np.testing.assert_array_equal(placer(graph, cluster).device, result.placement.device)


@pytest.mark.parametrize("search", SEARCHES)
def test_both_improve_on_one_device_and_depend_on_the_seed(search: type) -> None:
    graph, cluster = layered(np.random.default_rng(3), num_ops=300, training=True), preset("p100x4")
    single_s = SIMULATOR(graph, cluster, SingleDevice(runtime=SIMULATOR)(graph, cluster)).step_time_s
    ends = [search(runtime=SIMULATOR, evaluations=500, seed=seed).search(graph, cluster).best_so_far_s[-1] for seed in (0, 1)]
    assert max(ends) < 0.9 * single_s
    assert ends[0] != ends[1]


@pytest.mark.parametrize("search", SEARCHES)
def test_fork_and_join_is_solved(search: type) -> None:
    problem = fork_join(num_branches=8, transfer_s=0.25)
    found = search(runtime=SIMULATOR, evaluations=400, seed=0).search(problem.graph, problem.cluster)
    assert found.best_so_far_s[-1] == problem.optimum_s


@settings(max_examples=8, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
@given(graph=graphs(min_ops=2, max_ops=5, colocation=False), cluster=clusters(min_devices=2, max_devices=2, roomy=True))
def test_nobody_goes_below_brute_force(graph: Graph, cluster: Cluster) -> None:
    optimum_s = brute_force_s(graph, cluster, runtime=SIMULATOR, objective="bottleneck")
    for search in SEARCHES:
        found = search(runtime=SIMULATOR, evaluations=60, seed=1, objective="bottleneck").search(graph, cluster)
        assert found.best_so_far_s[-1] >= optimum_s


def test_senseless_budgets_are_refused() -> None:
    with pytest.raises(InputError, match="0 evaluations"):
        SimulatedAnnealing(runtime=SIMULATOR, evaluations=0, seed=0)
    with pytest.raises(InputError, match="in batches of 0"):
        CrossEntropy(runtime=SIMULATOR, evaluations=5, seed=0, batch_size=0)
