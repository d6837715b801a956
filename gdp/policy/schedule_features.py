"""What a policy is shown of the schedule before each decision."""

from typing import no_type_check

import numpy as np

from gdp.policy.channel_gaps import earliest_start
from gdp.runtime.numba_options import compile_kernel

SCHEDULE_FEATURES = (
    "start_gap",
    "finish_gap",
    "finish_gap_of_step",
    "free_gap_of_step",
    "load_gap",
    "coming_gap",
    "transfer_gap",
    "transfer_gap_of_step",
    "input_share",
    "consumer_share",
    "wait_over_time",
    "param_share",
    "output_share",
    "finishes_first",
)
"""Per (group, device). Gaps are to the best device; `start_gap`, `finish_gap` and `transfer_gap` as `gap / (gap + the group's own time)`, the others in units of an ideal step."""

_MOST = 4.0
"""Ideal steps: larger gaps are shown as this."""


_MOST_WAITING = 32
"""Of the ops that wait for transfers to a device, the latest so many are looked at."""


@compile_kernel
@no_type_check
def look(flow, groups, state, group, op, now):
    """Fills `state.row` for a group whose op `op` could start at `now`."""
    incoming, outgoing = _see_neighbours(flow, groups, state, group)
    devices = len(state.free)
    first_start, first_end, first_free, least_load, least_coming, least_transfer = np.inf, np.inf, np.inf, np.inf, np.inf, np.inf
    own = 1e-6
    for d in range(devices):
        state.ready_on[d] = max(now, _arrival(flow, state, op, d))
        state.start[d] = max(state.ready_on[d], _free_at(flow, state, d, state.ready_on[d] + groups.time[group, d]))
        own += groups.time[group, d] / devices
        if state.open[d]:
            first_start = min(first_start, state.start[d])
            first_end = min(first_end, state.start[d] + groups.time[group, d])
            first_free = min(first_free, max(state.free[d], now))
            least_load = min(least_load, state.load[d])
            least_coming = min(least_coming, state.coming[d])
            least_transfer = min(least_transfer, state.transfer[d])
    for d in range(devices):
        start_gap = max(state.start[d] - first_start, 0.0)
        end_gap = max(state.start[d] + groups.time[group, d] - first_end, 0.0)
        transfer_gap = max(state.transfer[d] - least_transfer, 0.0)
        wait = max(state.ready_on[d] - max(state.free[d], now), 0.0)
        state.row[d, 0] = start_gap / (start_gap + own)
        state.row[d, 1] = end_gap / (end_gap + own)
        state.row[d, 2] = min(end_gap, _MOST)
        state.row[d, 3] = min(max(max(state.free[d], now) - first_free, 0.0), _MOST)
        state.row[d, 4] = min(max(state.load[d] - least_load, 0.0), _MOST)
        state.row[d, 5] = min(max(state.coming[d] - least_coming, 0.0), _MOST)
        state.row[d, 6] = transfer_gap / (transfer_gap + own)
        state.row[d, 7] = min(transfer_gap, _MOST)
        state.row[d, 8] = state.here[d] / incoming if incoming > 0 else 0.0
        state.row[d, 9] = state.there[d] / outgoing if outgoing > 0 else 0.0
        state.row[d, 10] = wait / (wait + own)
        state.row[d, 11] = min(state.params[d] + groups.param_share[group, d], 2.0)
        state.row[d, 12] = min(state.outputs[d] + groups.output_share[group, d], 2.0)
        state.row[d, 13] = 1.0 if end_gap <= 0 else 0.0


@compile_kernel
@no_type_check
def _free_at(flow, state, d, until):
    """When a device is free of what has run and of what has its place there, waits for transfers, and could start before `until`."""
    first, last, work, seen = np.inf, 0.0, 0.0, 0
    op = state.first_waiting[d]
    while op >= 0 and seen < _MOST_WAITING:
        if state.arrival[op] <= until:
            first = min(first, state.arrival[op])
            last = max(last, state.arrival[op] + flow.time[op, d])
            work += flow.time[op, d]
        op = state.next_waiting[op]
        seen += 1
    return max(last, max(state.free[d], first) + work) if work > 0 else state.free[d]


@compile_kernel
@no_type_check
def _see_neighbours(flow, groups, state, group):
    """Fills what of a group's inputs and outputs is on each device, and the seconds of transfers that each would cause; returns all inputs and outputs."""
    devices = len(state.free)
    for d in range(devices):
        state.here[d] = state.there[d] = state.transfer[d] = 0.0
    incoming, outgoing = 0.0, 0.0
    for edge in range(groups.in_start[group], groups.in_start[group + 1]):
        at = state.where[groups.in_group[edge]]
        incoming += 1.0 + groups.in_bytes[edge]
        if at >= 0:
            state.here[at] += 1.0 + groups.in_bytes[edge]
            for d in range(devices):
                state.transfer[d] += groups.in_messages[edge] * flow.latency[at, d] + groups.in_bytes[edge] * flow.time_per_byte[at, d]
    for edge in range(groups.out_start[group], groups.out_start[group + 1]):
        at = state.where[groups.out_group[edge]]
        outgoing += 1.0 + groups.out_bytes[edge]
        if at >= 0:
            state.there[at] += 1.0 + groups.out_bytes[edge]
            for d in range(devices):
                state.transfer[d] += groups.out_messages[edge] * flow.latency[d, at] + groups.out_bytes[edge] * flow.time_per_byte[d, at]
    return incoming, outgoing


@compile_kernel
@no_type_check
def _arrival(flow, state, op, d):
    """When the inputs of an op could be on a device: each transfer by itself in the gaps that there are; variables without a place cost nothing."""
    last = 0.0
    for edge in range(flow.in_start[op], flow.in_start[op + 1]):
        tensor = flow.in_tensor[edge]
        at = state.available[tensor, d]
        if at == np.inf:
            producer = flow.tensor_producer[tensor]
            source = state.where[flow.group_of_op[producer]]
            if source < 0 or source == d:
                continue
            duration = flow.latency[source, d] + flow.tensor_bytes[tensor] * flow.time_per_byte[source, d]
            made = 0.0 if flow.floating[producer] else state.available[tensor, source]
            at = earliest_start(state.channels, flow.channel[source, d], made, duration) + duration
        last = max(last, at)
    return last
