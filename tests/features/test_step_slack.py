"""The slack of a step: by definition, and against what the simulator says when an op takes longer."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster, preset
from gdp.features.op_flow import OpFlow, op_flow
from gdp.features.step_slack import Step, step_of
from gdp.graph import Graph
from gdp.measurement import Timeline
from gdp.runtime.critical_waits import CriticalWaitsOf
from gdp.runtime.roofline import op_time_s
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered
from tests.strategies import clusters, devices, graphs, placement

TIMELINES = Simulator(with_timeline=True)


def apart(graph: Graph) -> Graph:
    """The graph without colocation groups, so that every placement is valid."""
    return dataclasses.replace(graph, colocation_group=np.full(graph.num_ops, Graph.NO_GROUP, np.int32))


def seconds_flow(graph: Graph, cluster: Cluster) -> OpFlow:
    return op_flow(graph, cluster, coarsen(graph), op_s=op_time_s(graph, cluster), unit_s=1.0)


def seen(graph: Graph, cluster: Cluster, device: np.ndarray) -> tuple[Step, Timeline]:
    timeline = TIMELINES(graph, cluster, placement(device)).timeline
    assert timeline is not None
    return step_of(seconds_flow(graph, cluster), device, timeline), timeline


def latest_by_definition(graph: Graph, cluster: Cluster, device: np.ndarray, timeline: Timeline) -> np.ndarray:
    """Of ops: the step's end minus the longest way that what must follow an op takes, over every pair of things of which one must follow the other."""
    num_ops = graph.num_ops
    transfer = {
        (int(tensor), int(to)): num_ops + number
        for number, (tensor, to) in enumerate(zip(timeline.transfer_tensor, timeline.transfer_destination, strict=True))
    }
    start = np.concatenate([timeline.op_start_s, timeline.transfer_start_s])
    end = np.concatenate([timeline.op_end_s, timeline.transfer_end_s])
    follows: list[set[int]] = [set() for _ in end]
    for tensor, consumer in zip(graph.edge_tensor.tolist(), graph.edge_consumer.tolist(), strict=True):
        producer = int(graph.tensor_producer[tensor])
        if device[producer] == device[consumer]:
            follows[producer].add(consumer)
        else:
            follows[producer].add(transfer[tensor, int(device[consumer])])
            follows[transfer[tensor, int(device[consumer])]].add(consumer)
    channel = cluster.channel[timeline.transfer_source, timeline.transfer_destination]
    resource = [("device", int(at)) for at in device] + [
        ("channel", int(of) if of != Cluster.NO_CHANNEL else -2 - number) for number, of in enumerate(channel)
    ]
    for one in range(len(end)):
        for other in range(len(end)):
            if resource[one] == resource[other] and (start[one], end[one], one) < (start[other], end[other], other):
                follows[one].add(other)

    @cache
    def tail_s(thing: int) -> float:
        return max((end[after] - start[after] + tail_s(after) for after in follows[thing]), default=0.0)

    return np.array([end.max() - tail_s(op) for op in range(num_ops)])


@settings(max_examples=100, deadline=None)
@given(data=st.data(), graph=graphs(colocation=False), cluster=clusters(min_devices=1, max_devices=3))
def test_as_defined(data: st.DataObject, graph: Graph, cluster: Cluster) -> None:
    device = data.draw(devices(graph, cluster))
    step, timeline = seen(graph, cluster, device)
    expected_s = latest_by_definition(graph, cluster, device, timeline)
    assert (step.latest_s >= expected_s - 1e-9).all()
    if (timeline.op_end_s > timeline.op_start_s).all() and (timeline.transfer_end_s > timeline.transfer_start_s).all():
        np.testing.assert_allclose(step.latest_s, expected_s, atol=1e-9)  # what takes no time may stand in any order among its equals
    assert (step.latest_s >= step.end_s - 1e-9).all()
    assert (step.ready_s <= step.start_s + 1e-9).all()


def example(seed: int) -> tuple[Graph, Cluster, np.ndarray]:
    graph, cluster = apart(layered(np.random.default_rng(seed), num_ops=120, training=True)), preset("p100x4")
    return graph, cluster, np.random.default_rng(seed).integers(4, size=graph.num_ops).astype(np.int32)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_waited_for_on_a_critical_path_has_no_slack(seed: int) -> None:
    graph, cluster, device = example(seed)
    step, timeline = seen(graph, cluster, device)
    waits = CriticalWaitsOf(graph, cluster)(device, timeline)
    slack_s = step.latest_s - step.end_s
    assert len(waits.seconds) and slack_s.max() > 0.01 * step.step_s
    np.testing.assert_allclose(slack_s[waits.blocked[waits.reason != 1]], 0.0, atol=1e-9 * step.step_s)


@pytest.mark.parametrize("seed", range(5))
def test_an_op_that_is_longer_by_more_than_its_slack_makes_a_fixed_order_longer_by_the_rest(seed: int) -> None:
    """With devices that keep the program's order and one channel for each pair nothing overtakes anything on a device."""
    graph, cluster, device = example(seed)
    fixed = Simulator(dispatch="program_order", with_timeline=True)
    free = dataclasses.replace(cluster, channel=np.full((4, 4), Cluster.NO_CHANNEL, np.int32), channel_name=())
    timeline = fixed(graph, free, placement(device)).timeline
    assert timeline is not None
    step = step_of(seconds_flow(graph, free), device, timeline)
    works = np.flatnonzero(step.end_s - step.start_s > 1e-3 * step.step_s)
    for op in np.random.default_rng(seed).choice(works, size=8):
        slack_s = step.latest_s[op] - step.end_s[op]
        for longer_s in (0.5 * slack_s, slack_s + 0.01 * step.step_s):
            kinds = {kind: graph_seconds.copy() for kind, graph_seconds in _measured(graph, free).items()}
            for seconds in kinds.values():
                seconds[op] += longer_s
            slower = fixed(dataclasses.replace(graph, measured_time_s=kinds), free, placement(device))
            expected_s = step.step_s + max(0.0, longer_s - slack_s)
            assert slower.step_time_s == pytest.approx(expected_s, rel=1e-9)


def _measured(graph: Graph, cluster: Cluster) -> dict[str, np.ndarray]:
    return {cluster.devices[0].kind: op_time_s(graph, cluster)[:, 0]}
