"""What a list scheduler has decided so far, on the simulator's machine: who is busy when, which tensors are where, and what memory is taken."""

import typing
from typing import NamedTuple

import numba
import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64


class ScheduleState(NamedTuple):
    """Changed in place while ops are decided.

    Devices and, after them, channels have busy intervals that do not overlap, in the order of time; a transfer may use any gap of its channel that is long enough.
    Memory is counted by the order of decisions: parameters with their group, a tensor from its decision (or copy) until its last consumer is decided.
    """

    start_s: Float64[np.ndarray, "resources most"]
    end_s: Float64[np.ndarray, "resources most"]
    num_intervals: Int64[np.ndarray, " resources"]
    available_s: Float64[np.ndarray, "tensors devices"]
    """when a tensor is on a device; infinite where it is not going to be."""
    op_device: Int32[np.ndarray, " ops"]
    group_device: Int32[np.ndarray, " groups"]
    """-1 as long as nothing is decided."""
    rest_s: Float64[np.ndarray, "groups devices"]
    """seconds of the ops of a group that are not decided."""
    reserved_s: Float64[np.ndarray, " devices"]
    """seconds of ops that are not decided but belong to groups that are."""
    uses_left: Int64[np.ndarray, " tensors"]
    held_bytes: Int64[np.ndarray, " devices"]
    trial_s: Float64[np.ndarray, " channels"]
    """when the last transfer that the op in hand would cause on each channel ends."""
    keeps_tensors: Bool[np.ndarray, " one"]
    """whether a tensor counts until the end of the step, as in Baechi's account of training."""


@numba.njit(cache=True)
@typing.no_type_check
def begin(p, keeps_tensors):
    num_ops, num_devices = p.op_s.shape
    most = max(num_ops, len(p.use_consumer))
    resources = num_devices + p.num_channels
    return ScheduleState(
        np.empty((resources, most)),
        np.empty((resources, most)),
        np.zeros(resources, np.int64),
        np.full((len(p.tensor_bytes), num_devices), np.inf),
        np.full(num_ops, -1, np.int32),
        np.full(len(p.group_s), -1, np.int32),
        p.group_s.copy(),
        np.zeros(num_devices),
        p.use_start[1:] - p.use_start[:-1],
        np.zeros(num_devices, np.int64),
        np.zeros(p.num_channels),
        np.full(1, keeps_tensors),
    )


@numba.njit(cache=True)
@typing.no_type_check
def first_gap(s, resource, ready, duration):
    """The earliest start from `ready` on at which `resource` is free for `duration`, and the number of the interval that it comes before."""
    count = s.num_intervals[resource]
    place = np.searchsorted(s.end_s[resource, :count], ready, side="right")
    start = ready
    while place < count and s.start_s[resource, place] < start + duration:
        start = max(start, s.end_s[resource, place])
        place += 1
    return start, place


@numba.njit(cache=True)
@typing.no_type_check
def occupy(s, resource, start, duration):
    if duration <= 0.0:
        return
    count = s.num_intervals[resource]
    place = np.searchsorted(s.start_s[resource, :count], start, side="right")
    for at in range(count, place, -1):
        s.start_s[resource, at] = s.start_s[resource, at - 1]
        s.end_s[resource, at] = s.end_s[resource, at - 1]
    s.start_s[resource, place] = start
    s.end_s[resource, place] = start + duration
    s.num_intervals[resource] = count + 1


@numba.njit(cache=True)
@typing.no_type_check
def source_of(p, s, tensor):
    """The device that a tensor comes from, -1 where that is not decided, and when it is there."""
    producer = p.tensor_producer[tensor]
    if p.floating[producer]:
        return s.group_device[p.group_of_op[producer]], 0.0
    return s.op_device[producer], s.available_s[tensor, s.op_device[producer]]


@numba.njit(cache=True)
@typing.no_type_check
def inputs_arrive(p, s, op, device):
    """When the inputs of `op` can be on `device`, and the bytes of those that are not there yet. Floating inputs that are not decided come along."""
    arrival, copied = 0.0, np.int64(0)
    s.trial_s[:] = 0.0
    for edge in range(p.in_start[op], p.in_start[op + 1]):
        tensor = p.in_tensor[edge]
        at = s.available_s[tensor, device]
        if at == np.inf:
            source, at = source_of(p, s, tensor)
            copied += p.tensor_bytes[tensor]
            if source >= 0 and source != device:
                duration = p.latency_s[source, device] + p.tensor_bytes[tensor] / p.bandwidth_bytes_per_s[source, device]
                channel = p.channel[source, device]
                if channel >= 0:
                    at, _ = first_gap(s, len(s.held_bytes) + channel, max(at, s.trial_s[channel]), duration)
                    s.trial_s[channel] = at + duration
                at += duration
        arrival = max(arrival, at)
    return arrival, copied


@numba.njit(cache=True)
@typing.no_type_check
def excess_bytes(p, s, op, device, copied):
    """By how much `op` on `device` would overflow its memory."""
    group = p.group_of_op[op]
    needed = s.held_bytes[device] + copied + p.temp_bytes[op]
    if s.group_device[group] < 0:
        needed += p.group_param_bytes[group]
    for tensor in range(p.out_start[op], p.out_start[op + 1]):
        needed += p.tensor_bytes[tensor]
    return max(np.int64(0), needed - p.memory_bytes[device])


@numba.njit(cache=True)
@typing.no_type_check
def decide_group(p, s, group, device):
    if s.group_device[group] < 0:
        s.group_device[group] = device
        s.held_bytes[device] += p.group_param_bytes[group]
        s.reserved_s[device] += s.rest_s[group, device]


@numba.njit(cache=True)
@typing.no_type_check
def decide(p, s, op, device, start):
    """Puts `op` on `device` at `start`, with the transfers of its inputs."""
    group = p.group_of_op[op]
    decide_group(p, s, group, device)
    for edge in range(p.in_start[op], p.in_start[op + 1]):
        tensor = p.in_tensor[edge]
        producer = p.tensor_producer[tensor]
        if p.floating[producer]:
            decide_group(p, s, p.group_of_op[producer], device)
        if s.available_s[tensor, device] == np.inf:
            source, at = source_of(p, s, tensor)
            if source != device:
                duration = p.latency_s[source, device] + p.tensor_bytes[tensor] / p.bandwidth_bytes_per_s[source, device]
                channel = p.channel[source, device]
                if channel >= 0:
                    at, _ = first_gap(s, len(s.held_bytes) + channel, at, duration)
                    occupy(s, len(s.held_bytes) + channel, at, duration)
                at += duration
            s.available_s[tensor, device] = at
            s.held_bytes[device] += p.tensor_bytes[tensor]
        s.uses_left[tensor] -= 1
        if s.uses_left[tensor] == 0 and not s.keeps_tensors[0]:
            for d in range(len(s.held_bytes)):
                if s.available_s[tensor, d] < np.inf:
                    s.held_bytes[d] -= p.tensor_bytes[tensor]
    s.op_device[op] = device
    s.reserved_s[device] -= p.op_s[op, device]
    s.rest_s[group] -= p.op_s[op]
    occupy(s, device, start, p.op_s[op, device])
    for tensor in range(p.out_start[op], p.out_start[op + 1]):
        s.available_s[tensor, device] = start + p.op_s[op, device]
        if s.uses_left[tensor] > 0 or s.keeps_tensors[0]:
            s.held_bytes[device] += p.tensor_bytes[tensor]


@numba.njit(cache=True)
@typing.no_type_check
def first_missing(p):
    """The number of inputs that each op waits for: those that do not float."""
    missing = np.zeros(len(p.group_of_op), np.int64)
    for op in range(len(missing)):
        for edge in range(p.in_start[op], p.in_start[op + 1]):
            if not p.floating[p.tensor_producer[p.in_tensor[edge]]]:
                missing[op] += 1
    return missing


@numba.njit(cache=True)
@typing.no_type_check
def finish(p, s, allowed):
    """The device of every op, once all that do not float are decided; a group that nobody needed goes where there is most room. And the end of the last op."""
    for group in range(len(s.group_device)):
        if s.group_device[group] < 0:
            roomiest, most = 0, -np.inf
            for d in range(len(s.held_bytes)):
                room = float(p.memory_bytes[d] - s.held_bytes[d])
                if allowed[d] and room > most:
                    roomiest, most = d, room
            decide_group(p, s, group, roomiest)
    last = 0.0
    for d in range(len(s.held_bytes)):
        if s.num_intervals[d] > 0:
            last = max(last, s.end_s[d, s.num_intervals[d] - 1])
    return s.group_device[p.group_of_op], last
