import numpy as np

from gdp.runtime.levels import b_level, mean_transfer_s, t_level
from gdp.workloads.known_optimum import fork_join, independent_chains

PROBLEM = fork_join(num_branches=2, transfer_s=0.5)
"""0 -> 1 -> 3 and 0 -> 2 -> 3; its edges are 0-1, 0-2, 1-3, 2-3."""

TIME = np.array([1.0, 2.0, 5.0, 3.0])


def test_levels_of_a_diamond_by_hand():
    assert t_level(PROBLEM.graph, TIME, np.zeros(4)).tolist() == [0, 1, 1, 6]
    assert b_level(PROBLEM.graph, TIME, np.zeros(4)).tolist() == [9, 5, 8, 3]


def test_transfers_lengthen_the_ways():
    transfer = np.array([10.0, 0.0, 0.0, 1.0])
    assert b_level(PROBLEM.graph, TIME, transfer).tolist() == [16, 5, 9, 3]
    assert t_level(PROBLEM.graph, TIME, transfer).tolist() == [0, 11, 1, 13]


def test_mean_transfer_is_that_of_equal_links_and_none_on_one_device():
    assert mean_transfer_s(PROBLEM.cluster, np.array([1000.0, 0.0])).tolist() == [0.5, 0.0]
    alone = independent_chains(num_chains=1, length=1, num_devices=1).cluster
    assert mean_transfer_s(alone, np.array([1000.0])).tolist() == [0.0]
