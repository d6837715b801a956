import numpy as np
from feature_examples import diamond

from gdp.features.levels import b_level, t_level


def test_levels_of_a_diamond_by_hand():
    # 0 -> 1 -> 3 and 0 -> 2 -> 3, times 1, 2, 5, 3
    graph, time = diamond(), np.array([1.0, 2.0, 5.0, 3.0])
    assert t_level(graph, time).tolist() == [0, 1, 1, 6]
    assert b_level(graph, time, np.zeros(4)).tolist() == [9, 5, 8, 3]


def test_transfers_lengthen_the_way_to_the_end():
    graph, time = diamond(), np.array([1.0, 2.0, 5.0, 3.0])
    transfer = np.array([10.0, 0.0, 0.0, 1.0])  # edges 0-1, 0-2, 1-3, 2-3
    assert b_level(graph, time, transfer).tolist() == [16, 5, 9, 3]
