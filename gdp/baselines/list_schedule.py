"""One list schedule: the loop inside `list_scheduling`, compiled."""

import dataclasses
import heapq
import typing

import numba
import numpy as np
from jaxtyping import Float64, Int32

from gdp.baselines.scheduling_problem import scheduling_problem
from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.runtime.offsets import offsets
from gdp.runtime.roofline import op_time_s


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Schedule:
    """A placement and what the scheduler expects of it."""

    device: Int32[np.ndarray, " ops"]
    end_s: float
    overflows: bool
    """whether some device had to take more than its memory holds, by the scheduler's account."""


def list_schedule(graph: Graph, cluster: Cluster, grouping: Grouping, *, by_rank: bool, transfer_weight: float, reserve: bool) -> Schedule:
    """Decides the ops of `graph` one after the other, groups as wholes.

    `by_rank` takes the ready op of highest upward rank next, else the one that became ready first. The device is the one with the least
    `end + seconds of the rest of its group + (transfer_weight - 1) * seconds of transfers caused` among those with room. With `reserve`, the work still to come of groups
    that are decided counts, too: without it, what must stay together over the whole step (a recurrent layer's weights) all lands where the input is. An op without
    inputs (a variable, the program's input) waits for its first consumer and goes with it.
    """
    problem = scheduling_problem(graph, cluster, grouping)
    device, end_s, overflows = _schedule(
        problem.op_s,
        problem.group_of_op,
        problem.group_s,
        problem.group_param_bytes,
        problem.temp_bytes,
        problem.tensor_producer,
        problem.tensor_bytes,
        problem.in_start,
        problem.in_tensor,
        problem.use_start,
        problem.use_consumer,
        problem.out_start,
        problem.memory_bytes,
        problem.bandwidth_bytes_per_s,
        problem.latency_s,
        problem.channel,
        problem.num_channels,
        upward_rank_s(graph, cluster),
        by_rank,
        transfer_weight,
        reserve,
    )
    return Schedule(device=device, end_s=float(end_s), overflows=bool(overflows))


def upward_rank_s(graph: Graph, cluster: Cluster) -> Float64[np.ndarray, " ops"]:
    """HEFT's upward rank (equation 8): mean seconds of the op plus the longest of mean transfer and rank over its consumers; transfers as between devices."""
    count = cluster.num_devices
    pairs = ~np.eye(count, dtype=bool)
    remote = (count - 1) / count
    latency_s = float(cluster.latency_s[pairs].mean()) * remote if count > 1 else 0.0
    s_per_byte = float((1.0 / cluster.bandwidth_bytes_per_s[pairs]).mean()) * remote if count > 1 else 0.0
    mean_s = op_time_s(graph, cluster).mean(axis=1)
    order = np.argsort(graph.edge_producer, kind="stable")
    transfer_s = latency_s + s_per_byte * graph.tensor_bytes[graph.edge_tensor[order]]
    return np.asarray(_upward_rank(mean_s, offsets(graph.edge_producer, graph.num_ops), graph.edge_consumer[order], transfer_s))


@numba.njit(cache=True)
@typing.no_type_check
def _upward_rank(mean_s, out_start, out_consumer, transfer_s):
    rank = np.zeros(len(mean_s))
    for op in range(len(mean_s) - 1, -1, -1):
        longest = 0.0
        for edge in range(out_start[op], out_start[op + 1]):
            longest = max(longest, transfer_s[edge] + rank[out_consumer[edge]])
        rank[op] = mean_s[op] + longest
    return rank


@numba.njit(cache=True)
@typing.no_type_check
def _schedule(
    seconds,
    group_of_op,
    group_s,
    group_params,
    temp_bytes,
    tensor_producer,
    tensor_bytes,
    in_start,
    in_tensor,
    use_start,
    use_consumer,
    out_start,
    capacity,
    bandwidth,
    latency,
    channel,
    num_channels,
    rank,
    by_rank,
    transfer_weight,
    reserve,
):
    num_ops, num_devices = seconds.shape
    op_device = np.full(num_ops, -1, np.int32)
    group_device = np.full(len(group_s), -1, np.int32)
    rest_s = group_s.copy()
    device_free = np.zeros(num_devices)
    channel_free = np.zeros(num_channels)
    available = np.full((len(tensor_producer), num_devices), np.inf)  # when a tensor is on a device
    uses_left = use_start[1:] - use_start[:-1]
    held = np.zeros(num_devices, np.int64)
    reserved_s = np.zeros(num_devices)
    missing = in_start[1:] - in_start[:-1]
    queue = [(0.0, np.int64(0))]
    queue.pop()
    for op in range(num_ops):
        if missing[op] == 0:
            heapq.heappush(queue, (-rank[op] if by_rank else 0.0, np.int64(op)))
    last_end = 0.0
    overflows = False
    trial_free = np.zeros(num_channels)
    floating = np.zeros(num_ops, np.bool_)
    while len(queue) > 0:
        _, op = heapq.heappop(queue)
        if in_start[op] == in_start[op + 1]:
            for tensor in range(out_start[op], out_start[op + 1]):
                floating[op] = floating[op] or use_start[tensor + 1] > use_start[tensor]
        if floating[op]:
            for tensor in range(out_start[op], out_start[op + 1]):
                for use in range(use_start[tensor], use_start[tensor + 1]):
                    consumer = use_consumer[use]
                    missing[consumer] -= 1
                    if missing[consumer] == 0:
                        heapq.heappush(queue, (-rank[consumer] if by_rank else 0.0, np.int64(consumer)))
            continue
        group = group_of_op[op]
        first, last = 0, num_devices
        if group_device[group] >= 0:
            first = group_device[group]
            last = first + 1
        output_bytes = np.int64(0)
        for tensor in range(out_start[op], out_start[op + 1]):
            output_bytes += tensor_bytes[tensor]
        best, best_key, best_end, best_excess = -1, np.inf, 0.0, np.int64(2**62)
        for d in range(first, last):
            ready, caused = 0.0, 0.0
            trial_free[:] = channel_free
            copied = np.int64(0)
            for edge in range(in_start[op], in_start[op + 1]):
                tensor = in_tensor[edge]
                producer = tensor_producer[tensor]
                at = available[tensor, d]
                source = op_device[producer]
                if floating[producer]:
                    source = group_device[group_of_op[producer]]
                    if source < 0 or source == d:
                        at = seconds[producer, d]
                        copied += tensor_bytes[tensor]
                if at == np.inf:
                    duration = latency[source, d] + tensor_bytes[tensor] / bandwidth[source, d]
                    start = seconds[producer, source] if floating[producer] else available[tensor, source]
                    if channel[source, d] >= 0:
                        start = max(start, trial_free[channel[source, d]])
                        trial_free[channel[source, d]] = start + duration
                    at = start + duration
                    caused += duration
                    copied += tensor_bytes[tensor]
                ready = max(ready, at)
            end = max(ready, device_free[d]) + seconds[op, d]
            params = group_params[group] if group_device[group] < 0 else 0
            excess = max(np.int64(0), held[d] + params + copied + output_bytes + temp_bytes[op] - capacity[d])
            key = end + (rest_s[group, d] - seconds[op, d]) + (transfer_weight - 1.0) * caused
            if reserve:
                key += reserved_s[d]
            if excess < best_excess or (excess == best_excess and key < best_key):
                best, best_key, best_end, best_excess = d, key, end, excess
        overflows = overflows or best_excess > 0
        if group_device[group] < 0:
            group_device[group] = best
            held[best] += group_params[group]
            reserved_s[best] += rest_s[group, best]
        reserved_s[best] -= seconds[op, best]
        for d in range(num_devices):
            rest_s[group, d] -= seconds[op, d]
        op_device[op] = best
        for edge in range(in_start[op], in_start[op + 1]):
            tensor = in_tensor[edge]
            producer = tensor_producer[tensor]
            if floating[producer]:
                floating[producer] = False
                its_group = group_of_op[producer]
                if group_device[its_group] < 0:
                    group_device[its_group] = best
                    held[best] += group_params[its_group]
                    reserved_s[best] += rest_s[its_group, best]
                home = group_device[its_group]
                op_device[producer] = home
                reserved_s[home] -= seconds[producer, home]
                for d in range(num_devices):
                    rest_s[its_group, d] -= seconds[producer, d]
                for output in range(out_start[producer], out_start[producer + 1]):
                    available[output, home] = seconds[producer, home]
                    if uses_left[output] > 0:
                        held[home] += tensor_bytes[output]
            if available[tensor, best] == np.inf:
                source = op_device[tensor_producer[tensor]]
                duration = latency[source, best] + tensor_bytes[tensor] / bandwidth[source, best]
                start = available[tensor, source]
                if channel[source, best] >= 0:
                    start = max(start, channel_free[channel[source, best]])
                    channel_free[channel[source, best]] = start + duration
                available[tensor, best] = start + duration
                held[best] += tensor_bytes[tensor]
            uses_left[tensor] -= 1
            if uses_left[tensor] == 0:
                for d in range(num_devices):
                    if available[tensor, d] < np.inf:
                        held[d] -= tensor_bytes[tensor]
        device_free[best] = best_end
        last_end = max(last_end, best_end)
        for tensor in range(out_start[op], out_start[op + 1]):
            available[tensor, best] = best_end
            if uses_left[tensor] > 0:
                held[best] += tensor_bytes[tensor]
            for use in range(use_start[tensor], use_start[tensor + 1]):
                consumer = use_consumer[use]
                missing[consumer] -= 1
                if missing[consumer] == 0:
                    key = -rank[consumer]
                    if not by_rank:
                        key = 0.0
                        for edge in range(in_start[consumer], in_start[consumer + 1]):
                            producer = tensor_producer[in_tensor[edge]]
                            if not floating[producer]:
                                key = max(key, available[in_tensor[edge], op_device[producer]])
                    heapq.heappush(queue, (key, np.int64(consumer)))
    return op_device, last_end, overflows
