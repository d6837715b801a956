"""HEFT and CPoP against the schedules that their paper prints."""

import numpy as np
from small_graphs import machine, small_graph
from textbook import every_op_alone, ten_tasks

from gdp.baselines.cpop import cpop, cpop_priority_s, critical_path
from gdp.baselines.heft import heft, heft_rank_s
from gdp.baselines.insertion_schedule import insertion_schedule
from gdp.baselines.schedule_variants import Variant
from gdp.baselines.scheduling_problem import scheduling_problem

GRAPH, CLUSTER = ten_tasks()
AS_PUBLISHED = Variant(grouping=every_op_alone(GRAPH), allowed=np.ones(3, np.bool_), option=False)


def test_ranks_are_those_of_table_2() -> None:
    np.testing.assert_allclose(heft_rank_s(GRAPH, CLUSTER), [108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667], atol=6e-4)


def test_heft_reaches_the_printed_schedule() -> None:
    found = heft(GRAPH, CLUSTER, AS_PUBLISHED, rank=heft_rank_s(GRAPH, CLUSTER))
    assert found.end_s == 80
    assert (found.device + 1).tolist() == [3, 1, 3, 2, 3, 2, 3, 1, 2, 2]


def test_cpop_reaches_the_printed_schedule() -> None:
    priority = cpop_priority_s(GRAPH, CLUSTER)
    path = critical_path(GRAPH, priority)
    assert [GRAPH.name[op] for op in path] == ["n1", "n2", "n9", "n10"]
    np.testing.assert_allclose(priority[path], 108)
    found = cpop(GRAPH, CLUSTER, AS_PUBLISHED, priority=priority, path=path)
    assert found.end_s == 86
    assert (found.device[path] + 1).tolist() == [2, 2, 2, 2]


def test_a_short_op_fills_the_gap_in_which_a_device_waits() -> None:
    """Op 2 waits on the first device from 1 s to 5 s for op 1 on the second; op 3, decided last, ends there at 3 s and not at 8 s."""
    cluster = machine(memory_bytes=[2**30] * 2, flops_per_s=[1.0, 2.0])
    graph = small_graph([(0, 2), (1, 2)], seconds=[1.0] * 4).with_measured_time(
        {"speed 1": np.array([1.0, 100.0, 1.0, 2.0]), "speed 2": np.array([100.0, 5.0, 100.0, 100.0])}
    )
    found = insertion_schedule(
        scheduling_problem(graph, cluster, every_op_alone(graph)),
        priority=np.array([4.0, 3.0, 2.0, 1.0]),
        preferred=np.full(4, -1, np.int32),
        allowed=np.ones(2, np.bool_),
        reserve=False,
    )
    assert found.device.tolist() == [0, 1, 0, 0]
    assert found.end_s == 6
