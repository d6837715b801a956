"""The rule of `specification.py`, compiled: many placements of one graph, one after the other, without the GIL.

The specification's heaps and dictionaries are replaced by structures that give the same answers faster:
- *Routes.* What goes where depends on the placement alone, and is worked out a stretch of ops ahead of the events (`event_routes.py`).
- *Queues.* Ops become ready, and transfers are requested, at moments that never decrease: linked lists, with a heap for the rare item that comes before the tail
  (`event_queue.py`). Transfers are numbered in the order (producer, destination, tensor), so that one number breaks every tie.
- *Events.* A device and a channel each run one thing, so the next moment is the least of one end per device, one per channel, and the least end of the
  transfers without a channel, which a skew heap holds. The ends stand in blocks of eight, each with its least.
- *Memory.* An op knows what it alone gives back at its end; only what several need is counted.

The order of events inside one round differs from the specification's; nothing that is computed depends on it.
"""

from typing import no_type_check

import numpy as np
from numpy import uintp

from gdp.measurement import Status
from gdp.runtime.event_queue import NONE, PRIORITY, PROGRAM_ORDER, READY_ORDER, append, insert, meld, take
from gdp.runtime.event_routes import STRETCH, route
from gdp.runtime.numba_options import compile_inline, compile_kernel
from gdp.runtime.scratch import BLOCK_BITS

OK = int(Status.OK)
_NEVER = np.inf


@compile_inline
@no_type_check
def _set_end(leaf, moment, end, least, soonest):
    """What runs on a leaf is going to end at a moment; on a leaf where something runs, not later than that."""
    block = leaf >> BLOCK_BITS
    end[uintp(leaf)] = moment
    smallest, which = least[uintp(block)], np.int64(soonest[uintp(block)])
    sooner = moment < smallest
    least[uintp(block)] = moment if sooner else smallest
    soonest[uintp(block)] = leaf if sooner else which


@compile_inline
@no_type_check
def _clear(leaf, num_leaves, end, least, soonest):
    """Nothing runs on a leaf any more: looks for the least end of its block anew."""
    block = leaf >> BLOCK_BITS
    end[uintp(leaf)] = _NEVER
    smallest, which = _NEVER, leaf
    for other in range(block << BLOCK_BITS, min(num_leaves, (block + 1) << BLOCK_BITS)):
        sooner = end[uintp(other)] < smallest
        smallest = end[uintp(other)] if sooner else smallest
        which = other if sooner else which
    least[uintp(block)] = smallest
    soonest[uintp(block)] = which


@compile_inline
@no_type_check
def _next_block(least):
    """The block in which the next event is."""
    which = 0
    for block in range(1, len(least)):
        which = block if least[uintp(block)] < least[uintp(which)] else which
    return which


@compile_inline
@no_type_check
def _let_go(hold, holds):
    """One user of a hold is done; returns the bytes that this frees."""
    size, uses = holds[uintp(hold)].bytes, holds[uintp(hold)].uses - 1
    holds[uintp(hold)].uses = uses
    return size if (uses == 0) & (hold >= 0) else np.int64(0)


@compile_inline
@no_type_check
def _arrive(first, stop, at, now, dispatch, work):
    """A tensor is there for the consumers `first` to `stop`."""
    ops, devices = work.ops, work.devices
    for place in range(first, stop):
        consumer = work.receivers[uintp(place)]
        missing = ops[uintp(consumer)].missing - 1
        ops[uintp(consumer)].missing = missing
        if missing == 0 and dispatch == READY_ORDER:
            tail = devices[uintp(at)].tail
            ops[uintp(consumer)].key = now
            if consumer < devices[uintp(at)].last and now == devices[uintp(at)].last_s:
                devices[uintp(at)].root = insert(devices[uintp(at)].root, consumer, ops)
            else:
                work.queue[uintp(tail)] = consumer
                devices[uintp(at)].tail = tail + 1
                devices[uintp(at)].last = consumer
                devices[uintp(at)].last_s = now
        elif dispatch == PRIORITY and missing == 0:
            devices[uintp(at)].root = insert(devices[uintp(at)].root, consumer, ops)


@compile_inline
@no_type_check
def _choose(at, dispatch, work):
    """The op that a free device takes, and whether there is one."""
    ops, devices = work.ops, work.devices
    head, root, running = devices[uintp(at)].head, devices[uintp(at)].root, devices[uintp(at)].running
    free = running == NONE
    op = work.queue[uintp(head)]
    found = free & (head != devices[uintp(at)].tail)
    if dispatch == PROGRAM_ORDER:
        found = found & (ops[uintp(op)].missing == 0)
    if root != NONE and free:
        if not found or ops[uintp(root)].key < ops[uintp(op)].key or (ops[uintp(root)].key == ops[uintp(op)].key and root < op):
            op = root
            devices[uintp(at)].root = meld(ops[uintp(op)].left, ops[uintp(op)].right, ops)
            devices[uintp(at)].head = head - 1
            found = True
    devices[uintp(at)].head += np.int32(found)
    return op, found


@compile_inline
@no_type_check
def _begin_transfer(transfer, now, work, log):
    """A transfer claims its copy."""
    devices, destination = work.devices, work.transfers[uintp(transfer)].destination
    memory = devices[uintp(destination)].memory + work.holds[uintp(work.transfers[uintp(transfer)].hold)].bytes
    devices[uintp(destination)].memory = memory
    devices[uintp(destination)].peak = max(devices[uintp(destination)].peak, memory)
    if log is not None:
        log.transfer_tensor[transfer] = work.holds[work.transfers[transfer].hold].tensor
        log.transfer_source[transfer] = work.transfers[transfer].source
        log.transfer_destination[transfer] = destination
        log.transfer_start_s[transfer] = now
        log.transfer_end_s[transfer] = now + work.transfers[transfer].seconds


@compile_kernel
@no_type_check
def is_placement(device, plan):
    """Whether every device is there, and what must be together is."""
    num_devices = plan.op_s.shape[1]
    valid = True
    for op in range(len(device)):
        valid &= (0 <= device[uintp(op)]) & (device[uintp(op)] < num_devices)
    for member in range(len(plan.colocated)):
        valid &= device[plan.colocated[member]] == device[plan.leader[member]]
    return valid


@compile_kernel
@no_type_check
def begin(device, dispatch, priority, plan, work):
    """Everything as it is before the first round, but for the routes and what becomes ready."""
    ops, devices, channels = work.ops, work.devices, work.channels
    num_ops, num_devices = plan.op_s.shape
    for at in range(num_devices):
        devices[uintp(at)].memory = 0
        devices[uintp(at)].logged = -1
        devices[uintp(at)].busy_s = 0.0
        devices[uintp(at)].last_s = -1.0
        devices[uintp(at)].tail = 0
        devices[uintp(at)].last = devices[uintp(at)].root = devices[uintp(at)].running = NONE
    for channel in range(plan.num_channels):
        channels[uintp(channel)].occupied_s = 0.0
        channels[uintp(channel)].head = channels[uintp(channel)].root = channels[uintp(channel)].running = NONE
    for op in range(num_ops):
        at = device[uintp(op)]
        work.device_of[uintp(op)] = at
        devices[uintp(at)].memory += plan.param_bytes[uintp(op)]
        devices[uintp(at)].tail += 1
        ops[uintp(op)] = plan.ops[uintp(op)]
        ops[uintp(op)].seconds = plan.op_s[uintp(op), uintp(at)]
    start = 0
    for at in range(num_devices):
        devices[uintp(at)].peak = devices[uintp(at)].memory
        devices[uintp(at)].head = start
        start += devices[uintp(at)].tail
        devices[uintp(at)].tail = devices[uintp(at)].head
    work.queue[:] = 0
    work.end[:] = _NEVER
    work.least[:] = _NEVER
    if dispatch == PRIORITY:
        for op in range(num_ops):
            ops[uintp(op)].key = priority[op]


@compile_kernel
@no_type_check
def simulate_rows(
    plan, device, dispatch, priority, status, step_time_s, bottleneck_s, peak, busy_s, num_transfers, transferred, scratch, log
):
    """Simulates every row of `device[batch, ops]`, and writes row by row what came out.

    The results of a row that is no placement stay as they are. `priority` is the rank negated. `log` is None, or is filled for the last row: see `EventLog`;
    numba compiles the two apart, so that what is not asked for is not there.
    """
    num_ops, num_devices = plan.op_s.shape
    num_channels = plan.num_channels
    unlimited = num_devices + num_channels  # the leaf of the transfers without a channel
    ops, devices, channels, transfers = scratch.ops, scratch.devices, scratch.channels, scratch.transfers
    shared, holds, starting = scratch.shared, scratch.holds, scratch.starting
    touched, touched_channel, end, least, soonest = scratch.touched, scratch.touched_channel, scratch.end, scratch.least, scratch.soonest

    for row in range(len(device)):
        if not is_placement(device[row], plan):
            continue
        status[row] = OK
        begin(device[row], dispatch, priority, plan, scratch)
        routed, sent, kept, sent_bytes = 0, 0, 0, 0  # ops whose routes are known, and what these come to
        last, now = 0.0, 0.0
        in_flight = NONE  # the skew heap of the transfers without a channel
        num_starting, num_touched_channels, num_logged = 0, 0, 0
        num_touched = num_devices
        for at in range(num_devices):
            touched[at] = at
        if dispatch == PROGRAM_ORDER:
            for op in range(num_ops):
                scratch.queue[devices[scratch.device_of[op]].tail] = op
                devices[scratch.device_of[op]].tail += 1
        else:
            for op in plan.source:
                if dispatch == READY_ORDER:
                    ops[op].key = now
                    scratch.queue[devices[scratch.device_of[op]].tail] = op
                    devices[scratch.device_of[op]].tail += 1
                    devices[scratch.device_of[op]].last = op
                    devices[scratch.device_of[op]].last_s = now
                else:
                    devices[scratch.device_of[op]].root = insert(devices[scratch.device_of[op]].root, op, ops)

        while True:
            # the second half of a round: what is free takes what is there
            for touch in range(num_touched):
                at = np.int64(touched[uintp(touch)])
                op, found = _choose(at, dispatch, scratch)
                if found:
                    while op >= routed:
                        stretch_end = min(num_ops, routed + STRETCH)
                        sent, kept, sent_bytes = route(routed, stretch_end, sent, kept, sent_bytes, plan, scratch)
                        routed = stretch_end
                    seconds = ops[uintp(op)].seconds
                    devices[uintp(at)].running = op
                    devices[uintp(at)].busy_s += seconds
                    memory = devices[uintp(at)].memory + ops[uintp(op)].claimed_bytes
                    devices[uintp(at)].memory = memory
                    devices[uintp(at)].peak = max(devices[uintp(at)].peak, memory)
                    _set_end(at, now + seconds, end, least, soonest)
                if log is not None and found:
                    log.op_start_s[op] = now
                    log.op_end_s[op] = now + seconds
            num_touched = 0
            for touch in range(num_touched_channels):
                channel = touched_channel[uintp(touch)]
                if channels[uintp(channel)].running == NONE:
                    transfer = take(channels, channel, transfers)
                    if transfer != NONE:
                        seconds = transfers[uintp(transfer)].seconds
                        channels[uintp(channel)].running = transfer
                        channels[uintp(channel)].occupied_s += seconds
                        _set_end(num_devices + np.int64(channel), now + seconds, end, least, soonest)
                        _begin_transfer(transfer, now, scratch, log)
            num_touched_channels = 0
            for start in range(num_starting):
                transfer = starting[uintp(start)]
                transfers[uintp(transfer)].key = now + transfers[uintp(transfer)].seconds
                in_flight = insert(in_flight, transfer, transfers)
                _set_end(unlimited, transfers[uintp(in_flight)].key, end, least, soonest)
                _begin_transfer(transfer, now, scratch, log)
            num_starting = 0
            if log is not None:
                for at in range(num_devices):
                    if devices[at].memory != devices[at].logged:
                        devices[at].logged = devices[at].memory
                        log.memory_device[num_logged] = at
                        log.memory_time_s[num_logged] = now
                        log.memory_bytes[num_logged] = devices[at].memory
                        num_logged += 1

            # the first half of the next round: all that ends at the earliest moment
            block = _next_block(least)
            if least[uintp(block)] == _NEVER:
                break
            now = least[uintp(block)]
            while least[uintp(block)] == now:
                leaf = np.int64(soonest[uintp(block)])
                _clear(leaf, unlimited + 1, end, least, soonest)
                if leaf < num_devices:
                    at = leaf
                    op = devices[uintp(at)].running
                    devices[uintp(at)].running = NONE
                    memory = devices[uintp(at)].memory - ops[uintp(op)].returned_bytes
                    for place in range(ops[uintp(op)].first_shared, ops[uintp(op)].stop_shared):
                        memory -= _let_go(shared[uintp(place)], holds)
                    devices[uintp(at)].memory = memory
                    for transfer in range(ops[uintp(op)].first_transfer, ops[uintp(op + 1)].first_transfer):
                        channel = transfers[uintp(transfer)].channel
                        if channel == num_channels:
                            starting[uintp(num_starting)] = transfer
                            num_starting += 1
                        else:
                            append(channels, channel, transfer, now, transfers)
                            touched_channel[uintp(num_touched_channels)] = channel
                            num_touched_channels += channels[uintp(channel)].running == NONE
                    first, stop = ops[uintp(op)].first_here, ops[uintp(op)].stop_here
                else:
                    if leaf == unlimited:
                        transfer = in_flight
                        in_flight = meld(transfers[uintp(transfer)].left, transfers[uintp(transfer)].right, transfers)
                        if in_flight != NONE:
                            _set_end(leaf, transfers[uintp(in_flight)].key, end, least, soonest)
                    else:
                        channel = leaf - num_devices
                        transfer = channels[uintp(channel)].running
                        channels[uintp(channel)].running = NONE
                        touched_channel[uintp(num_touched_channels)] = channel
                        num_touched_channels += 1
                    devices[uintp(transfers[uintp(transfer)].source)].memory -= _let_go(transfers[uintp(transfer)].hold, holds)
                    at = np.int64(transfers[uintp(transfer)].destination)
                    first, stop = transfers[uintp(transfer)].first, transfers[uintp(transfer)].stop
                _arrive(first, stop, at, now, dispatch, scratch)
                touched[uintp(num_touched)] = at
                num_touched += 1
                block = _next_block(least)
            last = now

        num_transfers[row], transferred[row] = sent, sent_bytes
        step_time_s[row] = last
        most = 0.0
        for at in range(num_devices):
            busy_s[row, at] = devices[at].busy_s
            peak[row, at] = devices[at].peak
            most = max(most, devices[at].busy_s)
        for channel in range(num_channels):
            most = max(most, channels[channel].occupied_s)
        bottleneck_s[row] = most
