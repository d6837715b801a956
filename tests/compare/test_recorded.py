"""The runtime that counts."""

import numpy as np

from gdp.baselines.local_search import LocalSearch
from gdp.baselines.metis import MetisManyTimes
from gdp.cluster import preset
from gdp.compare.recorded import Recorded
from gdp.compare.standings import best_after
from gdp.placement import Origin, Placement
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered

GRAPH, CLUSTER = layered(np.random.default_rng(0), num_ops=80, training=False), preset("p100x2")


def test_every_placement_is_one_evaluation_alone_or_in_a_batch() -> None:
    recorded, plain = Recorded(Simulator(), objective="step_time"), Simulator()
    device = np.random.default_rng(1).integers(0, 2, (5, GRAPH.num_ops)).astype(np.int32)
    batch = recorded.batch(GRAPH, CLUSTER, device)
    one = recorded(GRAPH, CLUSTER, Placement(device=device[2], origin=Origin(placer="test")))
    assert recorded.evaluations == 6
    seconds = [*plain.batch(GRAPH, CLUSTER, device).step_time_s.tolist(), one.step_time_s]
    assert batch.step_time_s.tolist() == seconds[:5]
    expected = np.minimum.accumulate(seconds)
    assert best_after(recorded.improved_at, recorded.best_s, range(1, 7)).tolist() == expected.tolist()


def test_it_agrees_with_what_the_searches_say_of_themselves() -> None:
    for search in (LocalSearch, MetisManyTimes):
        recorded = Recorded(Simulator(), objective="step_time")
        result = search(runtime=recorded, evaluations=37, seed=3).search(GRAPH, CLUSTER)
        assert recorded.evaluations == 37 == result.placement.origin.evaluations
        found = best_after(recorded.improved_at, recorded.best_s, range(1, 38))
        assert found.tolist() == result.best_so_far_s.tolist()


def test_what_cannot_run_is_counted_and_never_the_best() -> None:
    recorded = Recorded(Simulator(), objective="bottleneck")
    wrong = np.full((2, GRAPH.num_ops), 7, np.int32)
    recorded.batch(GRAPH, CLUSTER, wrong)
    assert recorded.evaluations == 2 and not recorded.best_s
    assert best_after(recorded.improved_at, recorded.best_s, [1, 2]).tolist() == [np.inf, np.inf]
