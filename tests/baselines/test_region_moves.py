"""Regions that somebody decides anew within local search."""

import numpy as np
import pytest

from gdp.baselines.critical_moves import CriticalMoves
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.neighbourhood import Neighbourhood
from gdp.baselines.region_moves import RegionMoves
from gdp.cluster import preset
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered

ON = preset("p100x4")
GRAPH = layered(np.random.default_rng(0), num_ops=400, training=True)
SIMULATOR = Simulator(num_threads=1)


def moves(redecide, *, seen: bool = True) -> tuple[RegionMoves, Neighbourhood]:
    neighbourhood = Neighbourhood(GRAPH, ON)
    critical = CriticalMoves(GRAPH, ON, neighbourhood, predictor=SIMULATOR)
    if seen:
        critical.see(placement(neighbourhood))
    return RegionMoves(neighbourhood, critical, redecide), neighbourhood


def placement(neighbourhood: Neighbourhood) -> np.ndarray:
    group_device = np.random.default_rng(1).integers(ON.num_devices, size=neighbourhood.num_groups)
    return group_device[neighbourhood.group_of_op].astype(np.int32)


@pytest.mark.parametrize("seen", [True, False])
def test_only_the_region_changes_and_regions_cover_the_graph(seen):
    asked: list[np.ndarray] = []

    def everything_to_the_last(device, free, generator):
        asked.append(free.copy())
        return np.where(free, ON.num_devices - 1, device)

    proposer, neighbourhood = moves(everything_to_the_last, seen=seen)
    before, generator = placement(neighbourhood), np.random.default_rng(0)
    for _ in range(300):
        after = proposer.propose(before, generator)
        assert after is not None and after.dtype == np.int32
        changed = np.zeros(neighbourhood.num_groups, np.bool_)
        np.logical_or.at(changed, neighbourhood.group_of_op, after != before)
        assert not (changed & ~asked[-1]).any() and changed.any()
        assert (after[asked[-1][neighbourhood.group_of_op]] == ON.num_devices - 1).all()
    sizes = np.array([free.sum() for free in asked])
    assert sizes.min() < 5 and sizes.max() > neighbourhood.num_groups / 8
    assert np.any(asked, axis=0)[neighbourhood.works].mean() > 0.99


def test_regions_lie_around_what_waits():
    """Groups of critical waits are asked for far more often than their share of all groups."""
    asked: list[np.ndarray] = []

    def note(device, free, generator):
        asked.append(free.copy())
        return np.where(free, (device + 1) % ON.num_devices, device)

    proposer, neighbourhood = moves(note)
    critical = CriticalMoves(GRAPH, ON, neighbourhood, predictor=SIMULATOR)
    critical.see(placement(neighbourhood))
    generator = np.random.default_rng(0)
    waiting = set(critical.waiting_groups(3000, generator).tolist())
    assert len(waiting) / neighbourhood.num_groups < 0.6
    for _ in range(600):
        proposer.propose(placement(neighbourhood), generator)
    of_waits = [all(group in waiting for group in np.flatnonzero(free)) for free in asked]
    assert 0.75 < np.mean(of_waits) < 0.95
    assert len(set(range(neighbourhood.num_groups)) - set(np.flatnonzero(np.any(asked, axis=0)))) < 0.1 * neighbourhood.num_groups


def test_the_likelier_the_longer_the_wait():
    neighbourhood = Neighbourhood(GRAPH, ON)
    critical = CriticalMoves(GRAPH, ON, neighbourhood, predictor=SIMULATOR)
    assert not len(critical.waiting_groups(5, np.random.default_rng(0)))  # nothing was seen yet
    critical.see(placement(neighbourhood))
    waits = critical._waits
    assert waits is not None
    seconds = np.zeros(neighbourhood.num_groups)
    for ends in (waits.blocker, waits.blocked):
        np.add.at(seconds, neighbourhood.group_of_op[ends], waits.seconds / 2)
    drawn = np.zeros(neighbourhood.num_groups)
    generator = np.random.default_rng(0)
    for _ in range(20_000):
        drawn[critical.waiting_groups(1, generator)] += 1
    # five standard deviations of a share of 20 000 draws are at most 0.018
    assert np.abs(drawn / 20_000 - seconds / seconds.sum()).max() < 0.018


def test_a_region_that_stays_as_it_is_is_no_move():
    proposer, neighbourhood = moves(lambda device, free, generator: device)
    assert proposer.propose(placement(neighbourhood), np.random.default_rng(0)) is None


def test_who_knows_the_answer_is_listened_to():
    """The decided region is tried, counted and kept when it is better."""
    target = LocalSearch(runtime=SIMULATOR, evaluations=600, seed=9, predictor=SIMULATOR)(GRAPH, ON)
    known = target.device[Neighbourhood(GRAPH, ON).first_op].astype(np.int64)
    search = LocalSearch(
        runtime=SIMULATOR,
        evaluations=60,
        seed=0,
        predictor=SIMULATOR,
        redecide=lambda graph, cluster: lambda device, free, generator: known,
    )
    found = search.search(GRAPH, ON)
    assert found.best_so_far_s[-1] <= SIMULATOR(GRAPH, ON, target).step_time_s < found.best_so_far_s[0]
    assert len(found.best_so_far_s) == 60
