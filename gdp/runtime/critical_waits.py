"""Why a simulated step takes as long as it does: what its last op waited for, what that waited for, and so on back to the start.

An op starts at the moment at which the last of its inputs is there or its device is free; a transfer, at which its producer ends or its channel is free. The moments of a
simulation are exact, so what a start waited for is whatever ended at that very moment. Where several things did, each of them alone would have held it up, and all are followed:
the waits found are those of every critical path. A change elsewhere can shorten the step only by changing the order in which things run.
"""

import dataclasses
import enum
import typing

import numba
import numpy as np
from jaxtyping import Float64, Int8, Int32

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Timeline


class Reason(enum.IntEnum):
    """What something waited for."""

    TRANSFER = 0
    """an op, for a tensor from another device."""
    CHANNEL = 1
    """a transfer, for another one on its channel."""
    DEVICE = 2
    """an op whose inputs were there, for another one on its device."""


_TRANSFER, _CHANNEL, _DEVICE = (int(reason) for reason in Reason)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class CriticalWaits:
    """The waits of all critical paths of one step, each once."""

    reason: Int8[np.ndarray, " waits"]
    blocker: Int32[np.ndarray, " waits"]
    """the op that was waited for; of a transfer, the one that produced its tensor."""
    blocked: Int32[np.ndarray, " waits"]
    """the op that waited; for a channel, the one that produced the tensor whose transfer did."""
    destination: Int32[np.ndarray, " waits"]
    """where the transfer that was waited for goes; of `DEVICE`, the device."""
    seconds: Float64[np.ndarray, " waits"]
    """what was waited for took so long; of `DEVICE`, what the blocked op lost by it."""


class CriticalWaitsOf:
    """Finds the waits of steps of one graph on one cluster, in time linear in ops, edges and transfers (but for sorting by time)."""

    def __init__(self, graph: Graph, cluster: Cluster) -> None:
        by_consumer = np.argsort(graph.edge_consumer, kind="stable")
        self._first_input = np.searchsorted(graph.edge_consumer[by_consumer], np.arange(graph.num_ops + 1))
        self._input_producer = graph.edge_producer[by_consumer]
        self._input_tensor = graph.edge_tensor[by_consumer]
        self._tensor_producer = graph.tensor_producer
        self._channel = cluster.channel
        self._num_devices = cluster.num_devices

    def __call__(self, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> CriticalWaits:
        """Of the step of a placement: `timeline` is what the simulator says of it."""
        start_s, end_s = timeline.op_start_s, timeline.op_end_s
        source, destination = timeline.transfer_source, timeline.transfer_destination
        channel = self._channel[source, destination]
        most = len(self._input_producer) + 2 * (len(device) + len(source))
        reason, blocker, blocked = np.empty(most, np.int8), np.empty(most, np.int32), np.empty(most, np.int32)
        towards, seconds = np.empty(most, np.int32), np.empty(most)
        count = _follow(
            device,
            start_s,
            end_s,
            _before(device, start_s, end_s),
            self._first_input,
            self._input_producer,
            self._input_tensor,
            self._num_devices,
            timeline.transfer_tensor.astype(np.int64) * self._num_devices + destination,
            self._tensor_producer[timeline.transfer_tensor],
            destination,
            timeline.transfer_start_s,
            timeline.transfer_end_s,
            np.where(channel == Cluster.NO_CHANNEL, -1, _before(channel, timeline.transfer_start_s, timeline.transfer_end_s)),
            reason,
            blocker,
            blocked,
            towards,
            seconds,
        )
        return CriticalWaits(
            reason=reason[:count], blocker=blocker[:count], blocked=blocked[:count], destination=towards[:count], seconds=seconds[:count]
        )


def _before(resource: np.ndarray, start_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
    """What each thing follows on its resource, -1 for the first."""
    order = np.lexsort((end_s, start_s, resource))
    follows = np.full(len(order), -1, np.int64)
    same = resource[order[1:]] == resource[order[:-1]]
    follows[order[1:][same]] = order[:-1][same]
    return follows


@numba.njit(cache=True, nogil=True)
@typing.no_type_check
def _follow(
    device,
    start_s,
    end_s,
    before,
    first_input,
    input_producer,
    input_tensor,
    num_devices,
    transfer_key,
    transfer_producer,
    transfer_destination,
    transfer_start_s,
    transfer_end_s,
    transfer_before,
    reason,
    blocker,
    blocked,
    towards,
    seconds,
):
    """Fills the last five arrays; returns how many waits there are. Things to look at are ops, and after them transfers."""
    num_ops, num_transfers = len(device), len(transfer_key)
    seen = np.zeros(num_ops + num_transfers, np.bool_)
    stack = np.empty(num_ops + num_transfers, np.int64)
    depth, count = 0, 0
    last_s = end_s.max() if num_ops else 0.0
    for op in range(num_ops):
        if end_s[op] == last_s:
            seen[op] = True
            stack[depth] = op
            depth += 1
    while depth > 0:
        depth -= 1
        thing = stack[depth]
        if thing < num_ops:
            op, moment = thing, start_s[thing]
            ready_s = 0.0
            for place in range(first_input[op], first_input[op + 1]):
                producer = input_producer[place]
                cause, at_s, transfer = producer, end_s[producer], -1
                if device[producer] != device[op]:
                    transfer = np.searchsorted(transfer_key, np.int64(input_tensor[place]) * num_devices + device[op])
                    cause, at_s = num_ops + transfer, transfer_end_s[transfer]
                ready_s = max(ready_s, at_s)
                if at_s == moment and moment > 0:
                    if transfer >= 0:
                        reason[count], blocker[count], blocked[count] = _TRANSFER, producer, op
                        towards[count], seconds[count] = device[op], at_s - transfer_start_s[transfer]
                        count += 1
                    if not seen[cause]:
                        seen[cause] = True
                        stack[depth] = cause
                        depth += 1
            earlier = before[op]
            if earlier >= 0 and end_s[earlier] == moment and moment > 0:
                lost_s = min(end_s[earlier] - start_s[earlier], moment - ready_s)
                if lost_s > 0:
                    reason[count], blocker[count], blocked[count] = _DEVICE, earlier, op
                    towards[count], seconds[count] = device[op], lost_s
                    count += 1
                if not seen[earlier]:
                    seen[earlier] = True
                    stack[depth] = earlier
                    depth += 1
        else:
            transfer = thing - num_ops
            producer = transfer_producer[transfer]
            earlier = transfer_before[transfer]
            if transfer_start_s[transfer] == end_s[producer]:
                if not seen[producer]:
                    seen[producer] = True
                    stack[depth] = producer
                    depth += 1
            elif earlier >= 0 and transfer_end_s[earlier] == transfer_start_s[transfer]:
                reason[count], blocker[count], blocked[count] = _CHANNEL, transfer_producer[earlier], producer
                towards[count], seconds[count] = transfer_destination[earlier], transfer_end_s[earlier] - transfer_start_s[earlier]
                count += 1
                if not seen[num_ops + earlier]:
                    seen[num_ops + earlier] = True
                    stack[depth] = num_ops + earlier
                    depth += 1
    return count
