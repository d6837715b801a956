"""The waits on critical paths, against their definition followed op by op, and where they are known."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Timeline
from gdp.runtime.critical_waits import CriticalWaitsOf, Reason
from gdp.runtime.simulator import Simulator
from tests.strategies import clusters, devices, graphs, placement


def by_definition(graph: Graph, cluster: Cluster, device: np.ndarray, timeline: Timeline) -> set[tuple[int, int, int, int, float]]:
    """Every (reason, blocker, blocked, destination, seconds)."""
    start, end = timeline.op_start_s, timeline.op_end_s
    producer = graph.tensor_producer[timeline.transfer_tensor]
    sent = {
        pair: number
        for number, pair in enumerate(zip(timeline.transfer_tensor.tolist(), timeline.transfer_destination.tolist(), strict=True))
    }
    channel = [int(cluster.channel[pair]) for pair in zip(timeline.transfer_source, timeline.transfer_destination, strict=True)]
    found, seen = set(), set()
    todo = [("op", op) for op in range(graph.num_ops) if end[op] == end.max()]

    def before(thing: int, resources: list, starts: np.ndarray, ends: np.ndarray) -> int | None:
        there = [other for other in range(len(starts)) if resources[other] == resources[thing]]
        there.sort(key=lambda other: (starts[other], ends[other], other))
        place = there.index(thing)
        return there[place - 1] if place else None

    while todo:
        kind, thing = todo.pop()
        if (kind, thing) in seen:
            continue
        seen.add((kind, thing))
        if kind == "op":
            ready = 0.0
            for edge in np.flatnonzero(graph.edge_consumer == thing).tolist():
                source, tensor = int(graph.edge_producer[edge]), int(graph.edge_tensor[edge])
                transfer = sent[tensor, int(device[thing])] if device[source] != device[thing] else None
                at = end[source] if transfer is None else timeline.transfer_end_s[transfer]
                ready = max(ready, at)
                if at == start[thing] > 0:
                    if transfer is not None:
                        found.add((Reason.TRANSFER, source, thing, int(device[thing]), float(at - timeline.transfer_start_s[transfer])))
                    todo.append(("op", source) if transfer is None else ("transfer", transfer))
            earlier = before(thing, device.tolist(), start, end)
            if earlier is not None and end[earlier] == start[thing] > 0:
                lost = min(end[earlier] - start[earlier], start[thing] - ready)
                if lost > 0:
                    found.add((Reason.DEVICE, earlier, thing, int(device[thing]), float(lost)))
                todo.append(("op", earlier))
        elif timeline.transfer_start_s[thing] == end[producer[thing]]:
            todo.append(("op", int(producer[thing])))
        elif channel[thing] != Cluster.NO_CHANNEL:
            earlier = before(thing, channel, timeline.transfer_start_s, timeline.transfer_end_s)
            if earlier is not None and timeline.transfer_end_s[earlier] == timeline.transfer_start_s[thing]:
                took = float(timeline.transfer_end_s[earlier] - timeline.transfer_start_s[earlier])
                found.add((Reason.CHANNEL, int(producer[earlier]), int(producer[thing]), int(timeline.transfer_destination[earlier]), took))
                todo.append(("transfer", earlier))
    return found


@settings(max_examples=300, deadline=None)
@given(data=st.data(), dispatch=st.sampled_from(("ready_order", "program_order")))
def test_as_defined(data: st.DataObject, dispatch: str) -> None:
    graph, cluster = data.draw(graphs()), data.draw(clusters())
    device = data.draw(devices(graph, cluster))
    timeline = Simulator(dispatch=dispatch, with_timeline=True)(graph, cluster, placement(device)).timeline
    if timeline is None:
        return
    waits = CriticalWaitsOf(graph, cluster)(device, timeline)
    rows = list(
        zip(*(column.tolist() for column in (waits.reason, waits.blocker, waits.blocked, waits.destination, waits.seconds)), strict=True)
    )
    assert set(rows) == by_definition(graph, cluster, device, timeline)


@settings(max_examples=50, deadline=None)
@given(graph=graphs(), cluster=clusters())
def test_one_device_waits_for_itself_alone(graph: Graph, cluster: Cluster) -> None:
    device = np.zeros(graph.num_ops, np.int32)
    timeline = Simulator(with_timeline=True)(graph, cluster, placement(device)).timeline
    assert timeline is not None
    waits = CriticalWaitsOf(graph, cluster)(device, timeline)
    assert (waits.reason == Reason.DEVICE).all()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_without_a_wait_the_step_is_one_path_of_the_graph(data: st.DataObject) -> None:
    graph, cluster = data.draw(graphs()), data.draw(clusters())
    device = data.draw(devices(graph, cluster))
    measured = Simulator(with_timeline=True)(graph, cluster, placement(device))
    if measured.timeline is None or len(CriticalWaitsOf(graph, cluster)(device, measured.timeline).reason):
        return
    took = measured.timeline.op_end_s - measured.timeline.op_start_s
    longest = took.copy()
    for op in range(graph.num_ops):
        inputs = graph.edge_producer[graph.edge_consumer == op]
        longest[op] += longest[inputs].max(initial=0.0)
    np.testing.assert_allclose(measured.timeline.op_end_s.max(initial=0.0), longest.max(initial=0.0))
