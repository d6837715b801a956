"""Where searches start: every kind of simple placement, the first of each first, and as good as schedulers that try all their variants."""

import numpy as np

from gdp.baselines.heft import Heft
from gdp.baselines.list_scheduling import ListScheduling
from gdp.baselines.metis import metis_partitions
from gdp.baselines.starting_points import starting_points
from gdp.cluster import Cluster, preset
from gdp.graph import Graph
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import cells, layered, unrolled_rnn

SIMULATOR = Simulator(num_threads=1)


def best_s(graph: Graph, cluster: Cluster, rows: np.ndarray) -> float:
    return float(SIMULATOR.batch(graph, cluster, rows).step_time_s.min())


def test_devices_alike_are_tried_alone_once_and_no_placement_twice() -> None:
    graph = layered(np.random.default_rng(0), num_ops=120, training=True)
    for cluster, alone in ((preset("p100x8"), 1), (preset("unequal"), 2)):
        rows = starting_points(graph, cluster, num_partitions=5, seed=0)
        assert len(np.unique(rows, axis=0)) == len(rows)
        assert sum(bool((row == row[0]).all()) for row in rows) == alone
        partitions = metis_partitions(graph, cluster, count=5, seed=0)
        assert all((rows == partition).all(axis=1).any() for partition in partitions)


def test_the_first_few_are_of_different_kinds() -> None:
    """One device, and what list scheduling, HEFT, CPoP, METIS and contiguous stages say, before a second of any."""
    graph, cluster = cells(np.random.default_rng(1), num_ops=400, training=True), preset("p100x4")
    rows = starting_points(graph, cluster, num_partitions=8, seed=3)
    assert (rows[0] == 0).all()
    np.testing.assert_array_equal(rows[1], ListScheduling()(graph, cluster).device)
    assert (rows[:6] == metis_partitions(graph, cluster, count=8, seed=3)[0]).all(axis=1).any()


def test_few_promising_schedules_are_nearly_as_good_as_all_variants() -> None:
    ratios = []
    for seed, family in enumerate((layered, cells, unrolled_rnn) * 2):
        graph, cluster = family(np.random.default_rng(seed), num_ops=500, training=True), preset("p100x4")
        every = np.stack([placer(graph, cluster).device for placer in (ListScheduling(runtime=SIMULATOR), Heft(runtime=SIMULATOR))])
        ratios.append(best_s(graph, cluster, starting_points(graph, cluster, num_partitions=8, seed=0)) / best_s(graph, cluster, every))
    assert np.exp(np.mean(np.log(ratios))) < 1.01 and max(ratios) < 1.05
