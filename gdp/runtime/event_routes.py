"""Which tensors a placement sends where, worked out a stretch of ops ahead of the events, compiled.

None of this depends on time: which consumers of an op are beside it, which tensors it sends to which devices and how long each takes, and who is the last
user of what. Ops are looked at in their order, and nothing waits for the outcome of an event, so that the work on one op overlaps with that on the next.
An op's edges keep their places in `receivers`, sorted: the consumers beside it first, then those of each transfer.
"""

from typing import no_type_check

import numpy as np
from numpy import uintp

from gdp.runtime.event_groups import group
from gdp.runtime.event_queue import NONE
from gdp.runtime.numba_options import compile_inline, compile_kernel
from gdp.runtime.plan import FEW_EDGES, MANY_EDGES, ONE_EDGE

STRETCH = 2048
"""How many ops are looked at in one go: enough for their work to overlap, few enough for their records to be in the cache still when they run."""

_BEYOND = 2**15
"""More than any device's number."""


@compile_inline
@no_type_check
def _use(consumer, hold, shares, size, work):
    """Notes that an op needs what a hold keeps; when nobody else does, the op alone gives it back."""
    place = work.ops[uintp(consumer)].stop_shared
    work.shared[uintp(place)] = hold
    work.ops[uintp(consumer)].stop_shared = place + shares
    work.ops[uintp(consumer)].returned_bytes += np.int64(0) if shares else size


@compile_inline
@no_type_check
def _next_destination(last, at, low, high, edges, device_of):
    """The least device above `last`, but `at`, among those of the consumers; `_BEYOND` when there is none."""
    destination = np.int64(_BEYOND)
    for edge in range(low, high):
        there = np.int64(device_of[uintp(edges[uintp(edge)].consumer)])
        destination = there if (there > last) & (there < destination) & (there != at) else destination
    return destination


@compile_inline
@no_type_check
def _write_transfer(number, at, there, size, hold, first, stop, plan, work):
    work.transfers[uintp(number)].seconds = (
        plan.latency_s[uintp(at), uintp(there)] + size / plan.bandwidth_bytes_per_s[uintp(at), uintp(there)]
    )
    work.transfers[uintp(number)].hold = hold
    work.transfers[uintp(number)].first = first
    work.transfers[uintp(number)].stop = stop
    work.transfers[uintp(number)].channel = plan.channel[uintp(at), uintp(there)]
    work.transfers[uintp(number)].source = at
    work.transfers[uintp(number)].destination = there


@compile_inline
@no_type_check
def _write_hold(hold, size, uses, tensor, work):
    work.holds[uintp(hold)].bytes = size
    work.holds[uintp(hold)].uses = uses
    work.holds[uintp(hold)].tensor = tensor


@compile_inline
@no_type_check
def _route_one(at, low, num_sent, num_holds, plan, work):
    """For an op with a single consumer, edge `low`. Returns as `_route_many`."""
    consumer, size, tensor = plan.edges[uintp(low)].consumer, plan.edges[uintp(low)].bytes, plan.edges[uintp(low)].tensor
    there = np.int64(work.device_of[uintp(consumer)])
    work.receivers[uintp(low)] = consumer
    work.ops[uintp(consumer)].returned_bytes += size
    num_here = 1
    if there != at:
        num_here = 0
        _write_transfer(num_sent, at, there, size, num_holds, low, low + 1, plan, work)
        _write_hold(num_holds, size, 1, tensor, work)
        num_sent += 1
        num_holds += 1
    return num_here, num_sent, num_holds


@compile_inline
@no_type_check
def _route_few(at, low, high, num_sent, num_holds, plan, work):
    """For an op with one tensor and at most `FEW` consumers, edges `low` to `high`: device by device, their consumers gathered without a branch. Returns as `_route_many`."""
    edges, device_of, receivers = plan.edges, work.device_of, work.receivers
    num_here = 0
    size, tensor = edges[uintp(low)].bytes, edges[uintp(low)].tensor
    for edge in range(low, high):
        num_here += np.int64(device_of[uintp(edges[uintp(edge)].consumer)]) == at
    if num_here == high - low:
        _write_hold(num_holds, size, num_here, tensor, work)
        for edge in range(low, high):
            consumer = edges[uintp(edge)].consumer
            receivers[uintp(edge)] = consumer
            _use(consumer, num_holds, True, size, work)
        num_holds += 1
    else:
        hold, before = num_holds, num_sent
        num_holds += 1
        stop = low
        for edge in range(low, high):
            consumer = edges[uintp(edge)].consumer
            receivers[uintp(stop)] = consumer
            stop += np.int64(device_of[uintp(consumer)]) == at
        destination = _next_destination(np.int64(-1), at, low, high, edges, device_of)
        while destination != _BEYOND:
            first = stop
            for edge in range(low, high):
                consumer = edges[uintp(edge)].consumer
                receivers[uintp(stop)] = consumer
                stop += np.int64(device_of[uintp(consumer)]) == destination
            _write_transfer(num_sent, at, destination, size, hold, first, stop, plan, work)
            num_sent += 1
            shares = stop > first + 1
            if shares:
                _write_hold(num_holds, size, stop - first, tensor, work)
            for place in range(first, stop):
                _use(receivers[uintp(place)], num_holds, shares, size, work)
            num_holds += shares
            destination = _next_destination(destination, at, low, high, edges, device_of)
        uses = num_here + num_sent - before
        _write_hold(hold, size, uses, tensor, work)
        for place in range(low, low + num_here):
            _use(receivers[uintp(place)], hold, True, size, work)
    return num_here, num_sent, num_holds


@compile_kernel
@no_type_check
def _route_many(at, low, high, op, num_sent, num_holds, plan, work):
    """For any op: its edges sorted by device, tensor and consumer. Returns how many consumers are beside it, and the counts of transfers and holds so far."""
    edges, device_of, grouped, hold_of_tensor = plan.edges, work.device_of, work.grouped, work.hold_of_tensor
    first_tensor = plan.first_tensor[op]
    group(low, high, edges, device_of, plan.op_s.shape[1], work.begin, grouped)
    hold_of_tensor[: plan.first_tensor[op + 1] - first_tensor] = NONE
    num_here, last_tensor, last_destination = 0, np.int64(NONE), np.int64(at)
    for place in range(high - low):
        edge = edges[grouped[place]]
        there = np.int64(device_of[edge.consumer])
        hold = hold_of_tensor[edge.tensor - first_tensor]
        if hold == NONE:
            hold = num_holds
            num_holds += 1
            hold_of_tensor[edge.tensor - first_tensor] = hold
            _write_hold(hold, edge.bytes, 0, edge.tensor, work)
        num_here += there == at
        if there == at or edge.tensor != last_tensor or there != last_destination:
            work.holds[hold].uses += 1
        last_tensor, last_destination = np.int64(edge.tensor), there
    here, place = low, 0
    beyond = low + num_here
    while place < high - low:
        edge = edges[grouped[place]]
        size, tensor = edge.bytes, edge.tensor
        there = np.int64(device_of[edge.consumer])
        hold = hold_of_tensor[tensor - first_tensor]
        if there == at:
            work.receivers[here] = edge.consumer
            here += 1
            place += 1
            _use(edge.consumer, hold, work.holds[hold].uses > 1, size, work)
            continue
        first = beyond
        while place < high - low:
            edge = edges[grouped[place]]
            if edge.tensor != tensor or np.int64(device_of[edge.consumer]) != there:
                break
            work.receivers[beyond] = edge.consumer
            beyond += 1
            place += 1
        _write_transfer(num_sent, at, there, size, hold, first, beyond, plan, work)
        num_sent += 1
        _write_hold(num_holds, size, beyond - first, tensor, work)
        for receiver in range(first, beyond):
            _use(work.receivers[receiver], num_holds, beyond - first > 1, size, work)
        num_holds += beyond - first > 1
    return num_here, num_sent, num_holds


@compile_kernel
@no_type_check
def route(low_op, high_op, num_sent, num_holds, sent_bytes, plan, work):
    """Fills in what of `work` depends on the placement alone, for the ops `low_op` to `high_op`; those before them must be done, and `work.ops` and `work.device_of` begun.

    Returns the counts of transfers, of holds, and of transferred bytes so far.
    """
    ops, device_of = work.ops, work.device_of
    for op in range(low_op, high_op):
        ops[uintp(op)].first_transfer = num_sent
        low, high = np.int64(plan.first_edge[uintp(op)]), np.int64(plan.first_edge[uintp(op + 1)])
        num_here = 0
        at = np.int64(device_of[uintp(op)])
        routing, before = plan.routing[uintp(op)], num_sent
        if routing == ONE_EDGE:
            num_here, num_sent, num_holds = _route_one(at, low, num_sent, num_holds, plan, work)
            sent_bytes += plan.edges[uintp(low)].bytes * (num_sent - before)
        elif routing == FEW_EDGES:
            num_here, num_sent, num_holds = _route_few(at, low, high, num_sent, num_holds, plan, work)
            sent_bytes += plan.edges[uintp(low)].bytes * (num_sent - before)
        elif routing == MANY_EDGES:
            num_here, num_sent, num_holds = _route_many(at, low, high, op, num_sent, num_holds, plan, work)
            for number in range(before, num_sent):
                sent_bytes += work.holds[work.transfers[number].hold].bytes
        ops[uintp(op)].first_here = low
        ops[uintp(op)].stop_here = low + num_here
    ops[uintp(high_op)].first_transfer = num_sent
    return num_sent, num_holds, sent_bytes
