"""The chain of events that sets the step time: what each event waited for, followed back from the end of the step.

An op waits for the op before it on its device, for its inputs, or for the arrival of a copy; a transfer waits for its producer, or for the transfer before
it on its channel. The one that ended last is what it waited for (the critical path of the schedule, resources included).
"""

import dataclasses
from bisect import bisect_left

import numpy as np
from jaxtyping import Int32, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Timeline


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Chain:
    """The events on the chain, last first."""

    ops: Int64[np.ndarray, " _"]
    transfers: Int64[np.ndarray, " _"]
    compute_s: float
    transfer_s: float
    idle_s: float
    """the rest of the step: nothing on the chain was going on."""


def channel_of(cluster: Cluster, timeline: Timeline) -> Int64[np.ndarray, " transfers"]:
    """What carries each transfer: a channel's number, or a number of its own for a pair without a channel."""
    channel = cluster.channel[timeline.transfer_source, timeline.transfer_destination].astype(np.int64)
    pair = timeline.transfer_source.astype(np.int64) * cluster.num_devices + timeline.transfer_destination
    return np.asarray(np.where(channel == Cluster.NO_CHANNEL, cluster.num_channels + pair, channel))


def chain(graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Chain:
    """The chain of one step. Times measured on real devices need not touch: gaps are counted as idle."""
    before = _previous_on(device.astype(np.int64), timeline.op_start_s, timeline.op_end_s)
    carrier = channel_of(cluster, timeline)
    shared = np.where(carrier < cluster.num_channels, carrier, cluster.num_channels + np.arange(len(carrier)))
    before_transfer = _previous_on(shared, timeline.transfer_start_s, timeline.transfer_end_s)
    arrival = {
        (int(tensor), int(destination)): number
        for number, (tensor, destination) in enumerate(zip(timeline.transfer_tensor, timeline.transfer_destination, strict=True))
    }
    by_consumer = np.argsort(graph.edge_consumer, kind="stable")
    consumers = graph.edge_consumer[by_consumer].tolist()
    ops, transfers = [], []
    seen = set()
    kind, number = "op", int(np.argmax(timeline.op_end_s))
    while True:
        seen.add((kind, number))
        waited: list[tuple[float, str, int]] = []
        if kind == "op":
            ops.append(number)
            if before[number] >= 0:
                waited.append((float(timeline.op_end_s[before[number]]), "op", int(before[number])))
            place = int(device[number])
            for position in range(bisect_left(consumers, number), bisect_left(consumers, number + 1)):
                tensor = int(graph.edge_tensor[by_consumer[position]])
                producer = int(graph.tensor_producer[tensor])
                carried = arrival.get((tensor, place))
                if carried is not None and int(device[producer]) != place:
                    waited.append((float(timeline.transfer_end_s[carried]), "transfer", carried))
                else:
                    waited.append((float(timeline.op_end_s[producer]), "op", producer))
        else:
            transfers.append(number)
            producer = int(graph.tensor_producer[timeline.transfer_tensor[number]])
            waited.append((float(timeline.op_end_s[producer]), "op", producer))
            if before_transfer[number] >= 0:
                waited.append((float(timeline.transfer_end_s[before_transfer[number]]), "transfer", int(before_transfer[number])))
        earlier = [event for event in waited if event[1:] not in seen]
        if not earlier:
            break
        _, kind, number = max(earlier)
    compute = float((timeline.op_end_s[ops] - timeline.op_start_s[ops]).sum())
    moving = float((timeline.transfer_end_s[transfers] - timeline.transfer_start_s[transfers]).sum()) if transfers else 0.0
    return Chain(
        ops=np.array(ops, np.int64),
        transfers=np.array(transfers, np.int64),
        compute_s=compute,
        transfer_s=moving,
        idle_s=max(0.0, float(timeline.op_end_s.max()) - compute - moving),
    )


def _previous_on(resource: Int64[np.ndarray, " events"], start_s: np.ndarray, end_s: np.ndarray) -> Int64[np.ndarray, " events"]:
    """The event before each one on the same resource, -1 for the first."""
    order = np.lexsort((end_s, start_s, resource))
    previous = np.full(len(resource), -1, np.int64)
    same = resource[order][1:] == resource[order][:-1]
    previous[order[1:][same]] = order[:-1][same]
    return previous
