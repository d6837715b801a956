"""Local search: reaches brute force on tiny graphs, keeps its budget, finds its way out of memory trouble."""

import dataclasses

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from gdp.baselines.critical_moves import CriticalMoves
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.neighbourhood import Neighbourhood
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster, preset
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Status
from gdp.runtime.critical_waits import CriticalWaitsOf
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import cells, layered
from tests.contracts import brute_force_s
from tests.strategies import clusters, graphs, placement

SIMULATOR = Simulator()
NO_SHRINKING = (Phase.explicit, Phase.generate)


def grouped_optimum_s(graph: Graph, cluster: Cluster, objective: Objective) -> float:
    """The least objective over placements that keep groups together: all that the search may choose from."""
    grouping = coarsen(graph)
    device = (
        np.array(np.meshgrid(*[np.arange(cluster.num_devices, dtype=np.int32)] * grouping.num_groups)).reshape(grouping.num_groups, -1).T
    )
    return float(SIMULATOR.batch(graph, cluster, grouping.expand(device)).objective_s(objective).min())


@pytest.mark.parametrize("objective", ["step_time", "bottleneck"])
@settings(max_examples=8, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(min_ops=2, max_ops=6), cluster=clusters(min_devices=2, max_devices=2))
def test_reaches_the_optimum_of_tiny_graphs(objective: Objective, graph: Graph, cluster: Cluster) -> None:
    found = LocalSearch(runtime=SIMULATOR, evaluations=120, seed=1, objective=objective).search(graph, cluster)
    assert found.best_so_far_s[-1] == grouped_optimum_s(graph, cluster, objective)
    assert found.best_so_far_s[-1] >= brute_force_s(graph, cluster, runtime=SIMULATOR, objective=objective)


@pytest.mark.parametrize("batch_size", [1, 7])
def test_curve_budget_and_placement_agree(batch_size: int) -> None:
    graph, cluster = layered(np.random.default_rng(0), num_ops=80), preset("p100x4")
    short = LocalSearch(runtime=SIMULATOR, evaluations=150, seed=5, batch_size=batch_size)
    result = short.search(graph, cluster)
    assert result.best_so_far_s.shape == (150,)
    assert result.placement.origin.evaluations == 150
    assert (np.diff(result.best_so_far_s) <= 0).all()
    assert SIMULATOR(graph, cluster, result.placement).step_time_s == result.best_so_far_s[-1]
    np.testing.assert_array_equal(short(graph, cluster).device, result.placement.device)
    assert LocalSearch(runtime=SIMULATOR, evaluations=1, seed=5).search(graph, cluster).best_so_far_s.shape == (1,)


def test_search_improves_on_its_starting_points() -> None:
    graph, cluster = layered(np.random.default_rng(3), num_ops=300, training=True), preset("p100x4")
    curve = LocalSearch(runtime=SIMULATOR, evaluations=1000, seed=0).search(graph, cluster).best_so_far_s
    assert curve[-1] < 0.95 * curve[120], "the simple methods come first"


def test_seeing_what_a_step_waits_for_pays() -> None:
    """Both with 400 evaluations from the same starting points."""
    ratios = []
    for seed in range(6):
        graph, cluster = cells(np.random.default_rng(seed), num_ops=1000, training=True), preset(("p100x2", "p100x4")[seed % 2])
        seconds = [
            LocalSearch(runtime=SIMULATOR, evaluations=400, seed=seed, predictor=predictor).search(graph, cluster).best_so_far_s[-1]
            for predictor in (SIMULATOR, None)
        ]
        ratios.append(seconds[0] / seconds[1])
    assert np.exp(np.log(ratios).mean()) < 0.99


def test_critical_moves_touch_a_wait_and_keep_groups_together() -> None:
    graph, cluster = layered(np.random.default_rng(1), num_ops=200, training=True), preset("p100x4")
    grouping, neighbourhood, generator = coarsen(graph), Neighbourhood(graph, cluster), np.random.default_rng(0)
    moves = CriticalMoves(graph, cluster, neighbourhood, predictor=SIMULATOR)
    device = grouping.expand(generator.integers(0, 4, grouping.num_groups).astype(np.int32))
    timeline = Simulator(with_timeline=True)(graph, cluster, placement(device)).timeline
    assert timeline is not None
    waits = CriticalWaitsOf(graph, cluster)(device, timeline)
    ends = {*grouping.group_of_op[waits.blocker].tolist(), *grouping.group_of_op[waits.blocked].tolist()}
    moves.see(device)
    for _ in range(200):
        proposal = moves.propose(device, generator)
        assert proposal is not None
        moved = set(grouping.group_of_op[proposal != device].tolist())
        assert moved & ends
        np.testing.assert_array_equal(proposal, grouping.expand(proposal[neighbourhood.first_op]))


def test_critical_moves_need_to_have_seen_something() -> None:
    graph, cluster = layered(np.random.default_rng(1), num_ops=20), preset("p100x2")
    moves = CriticalMoves(graph, cluster, Neighbourhood(graph, cluster), predictor=SIMULATOR)
    device, generator = np.zeros(graph.num_ops, np.int32), np.random.default_rng(0)
    assert moves.propose(device, generator) is None
    moves.see(device)
    assert moves.propose(device, generator) is not None


def test_finds_the_placement_that_fits() -> None:
    """Two halves of 100 parameter bytes on two devices of 150: most placements do not fit, and both single devices least of all."""
    graph = layered(np.random.default_rng(2), num_ops=40)
    graph = dataclasses.replace(graph, param_bytes=np.full(graph.num_ops, 10**11, np.int64))
    roomy = preset("p100x2")
    cluster = dataclasses.replace(
        roomy, devices=tuple(dataclasses.replace(device, memory_bytes=int(0.55 * graph.param_bytes.sum())) for device in roomy.devices)
    )
    placement = LocalSearch(runtime=SIMULATOR, evaluations=500, seed=0)(graph, cluster)
    assert SIMULATOR(graph, cluster, placement).status == Status.OK


def test_moves_keep_groups_together_and_the_placement_unchanged() -> None:
    graph, cluster = layered(np.random.default_rng(1), num_ops=200, training=True), preset("p100x4")
    grouping, neighbourhood, generator = coarsen(graph), Neighbourhood(graph, cluster), np.random.default_rng(0)
    device = np.zeros(graph.num_ops, np.int32)
    for _ in range(200):
        proposal = neighbourhood.propose(device, generator)
        assert (proposal != device).any()
        group_device = np.zeros(grouping.num_groups, np.int32)
        group_device[grouping.group_of_op] = proposal
        np.testing.assert_array_equal(grouping.expand(group_device), proposal)
        device = proposal
    assert len(np.unique(device)) == cluster.num_devices


@pytest.mark.parametrize(("evaluations", "batch_size"), [(0, 1), (10, 0)])
def test_an_empty_budget_is_refused(evaluations: int, batch_size: int) -> None:
    with pytest.raises(InputError, match="at least 1 of each"):
        LocalSearch(runtime=SIMULATOR, evaluations=evaluations, seed=0, batch_size=batch_size)
