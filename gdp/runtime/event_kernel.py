"""The rule of `specification.py`, compiled: many placements of one graph, one after the other, without the GIL.

The specification's heaps are replaced by structures that give the same answers faster:
- *Queues.* Ops become ready, and transfers are requested, at moments that never decrease. A queue is therefore a linked list that is appended to,
  and a skew heap (Sleator and Tarjan 1986) for the rare item that comes before the tail: same moment, lower number.
- *Transfers* are numbered in the order (producer, destination, tensor), so that one number breaks every tie: a number among the edges of its producer, which ascend by destination
  and tensor (`event_delivery.py`).
- *Events.* A device and a channel each run one thing, so the next moment is the least of one end per device, one per channel, and the least end of the
  transfers without a channel, which a skew heap holds. A tournament over these ends gives it in O(log(devices + channels)).
- *Memory.* Every edge knows what its consumer holds: the tensor at its source, or the copy on its own device.

The order of events inside one round differs from the specification's; nothing that is computed depends on it.
"""

from typing import no_type_check

import numpy as np
from numpy import uintp

from gdp.measurement import Status
from gdp.runtime.compiled import compile_inline, compile_kernel
from gdp.runtime.event_delivery import FEW, deliver_few, deliver_many, deliver_one
from gdp.runtime.event_queue import NONE, PRIORITY, PROGRAM_ORDER, READY_ORDER, append, arrive, insert, meld, take
from gdp.runtime.scratch import BLOCK

OK = int(Status.OK)
_NEVER = np.inf


@compile_inline
@no_type_check
def _clear(end, least, width, leaf):
    """Sets the end of a leaf to never, and the least end of its block anew."""
    end[leaf] = _NEVER
    block = leaf // BLOCK
    smallest = _NEVER
    for other in range(block * BLOCK, block * BLOCK + width):
        smallest = end[other] if end[other] < smallest else smallest
    least[block] = smallest


@compile_kernel
@no_type_check
def simulate_rows(
    plan, device, dispatch, priority, status, step_time_s, bottleneck_s, peak, busy_s, num_transfers, transferred, scratch, log
):
    """Simulates every row of `device[batch, ops]`, and writes row by row what came out.

    The results of a row that is no placement stay as they are. `priority` is the rank negated. `log` is empty, or is filled for the last row: see `EventLog`.
    """
    num_ops, num_devices = plan.op_s.shape
    num_channels = plan.num_channels
    unlimited = num_devices + num_channels  # the leaf of the transfers without a channel
    num_blocks = unlimited // BLOCK + 1
    width = BLOCK if num_blocks > 1 else (unlimited // 8 + 1) * 8

    ops, device_of, devices, channels, transfers = scratch.ops, scratch.device_of, scratch.devices, scratch.channels, scratch.transfers
    waiting, starting, touched, touched_channel = scratch.waiting, scratch.starting, scratch.touched, scratch.touched_channel
    holds, links, end, least, tally = scratch.holds, scratch.links, scratch.end, scratch.least, scratch.tally
    logging = len(log.op_start_s) > 0

    for row in range(len(device)):
        valid = True
        for op in range(num_ops):
            valid &= (0 <= device[row, op]) & (device[row, op] < num_devices)
            valid &= device[row, op] == device[row, plan.colocation_leader[op]]
        if not valid:
            continue
        status[row] = OK

        for at in range(num_devices):
            devices[uintp(at)].memory = 0
            devices[uintp(at)].logged = -1
            devices[uintp(at)].busy_s = 0.0
            devices[uintp(at)].head = devices[uintp(at)].root = devices[uintp(at)].next = NONE
        for channel in range(num_channels):
            channels[uintp(channel)].occupied_s = 0.0
            channels[uintp(channel)].head = channels[uintp(channel)].root = NONE
        for op in range(num_ops):
            at = device[row, op]
            device_of[op] = at
            devices[uintp(at)].memory += plan.ops[op].param_bytes
            ops[uintp(op)] = plan.ops[op]
            ops[uintp(op)].seconds = plan.op_s[op, at]
        for at in range(num_devices):
            devices[uintp(at)].peak = devices[uintp(at)].memory
        end[:] = _NEVER
        least[:] = _NEVER
        num_logged = 0
        tally[0].waiting = tally[0].links = tally[0].holds = 0
        tally[0].starting = tally[0].touched_channels = 0
        tally[0].sent = tally[0].sent_bytes = 0
        last = 0.0
        in_flight = NONE  # the skew heap of the transfers without a channel
        now = 0.0
        num_touched = num_devices
        for at in range(num_devices):
            touched[at] = at
            devices[uintp(at)].touched = 1
        if dispatch == PROGRAM_ORDER:
            for op in range(num_ops - 1, -1, -1):
                ops[uintp(op)].right = devices[device_of[op]].next
                devices[device_of[op]].next = op
        elif dispatch == READY_ORDER:
            for op in plan.source:
                append(devices, device_of[op], op, now, ops)
        else:
            for op in range(num_ops):
                ops[uintp(op)].key = priority[op]
            for op in plan.source:
                devices[device_of[op]].root = insert(devices[device_of[op]].root, op, ops)

        while True:
            # the second half of a round: what is free takes what is there
            for touch in range(num_touched):
                at = touched[touch]
                devices[uintp(at)].touched = 0
                if end[at] != _NEVER:
                    continue
                if dispatch == READY_ORDER:
                    op = take(devices, at, ops)
                elif dispatch == PRIORITY:
                    op = devices[uintp(at)].root
                    if op != NONE:
                        devices[uintp(at)].root = meld(ops[uintp(op)].left, ops[uintp(op)].right, ops)
                else:
                    op = devices[uintp(at)].next
                    if op != NONE:
                        if ops[uintp(op)].missing == 0:
                            devices[uintp(at)].next = ops[uintp(op)].right
                        else:
                            op = NONE
                if op != NONE:
                    seconds = ops[uintp(op)].seconds
                    devices[uintp(at)].running = op
                    devices[uintp(at)].busy_s += seconds
                    devices[uintp(at)].memory += ops[uintp(op)].claimed_bytes
                    devices[uintp(at)].peak = max(devices[uintp(at)].peak, devices[uintp(at)].memory)
                    end[at] = now + seconds
                    least[at // BLOCK] = min(least[at // BLOCK], now + seconds)
                    if logging:
                        log.op_start_s[op] = now
                        log.op_end_s[op] = now + seconds
            num_touched = 0
            for touch in range(tally[0].touched_channels):
                channel = touched_channel[touch]
                channels[uintp(channel)].touched = 0
                transfer = take(channels, channel, transfers)
                if transfer != NONE:
                    starting[tally[0].starting] = transfer
                    tally[0].starting += 1
            tally[0].touched_channels = 0
            for start in range(tally[0].starting):
                transfer = starting[uintp(start)]
                source = transfers[uintp(transfer)].source
                destination = transfers[uintp(transfer)].destination
                channel = plan.channel[source, destination]
                copied = transfers[uintp(transfer)].bytes
                seconds = plan.latency_s[source, destination] + copied / plan.bandwidth_bytes_per_s[source, destination]
                devices[uintp(destination)].memory += copied
                devices[uintp(destination)].peak = max(devices[uintp(destination)].peak, devices[uintp(destination)].memory)
                if logging:
                    log.transfer_tensor[transfer] = transfers[uintp(transfer)].tensor
                    log.transfer_source[transfer] = source
                    log.transfer_destination[transfer] = destination
                    log.transfer_start_s[transfer] = now
                    log.transfer_end_s[transfer] = now + seconds
                leaf = num_devices + channel
                end[leaf] = now + seconds
                if leaf == unlimited:
                    transfers[uintp(transfer)].key = now + seconds
                    in_flight = insert(in_flight, transfer, transfers)
                    end[leaf] = transfers[uintp(in_flight)].key
                else:
                    channels[uintp(channel)].running = transfer
                    channels[uintp(channel)].occupied_s += seconds
                least[leaf // BLOCK] = min(least[leaf // BLOCK], end[leaf])
            tally[0].starting = 0
            if logging:
                for at in range(num_devices):
                    if devices[uintp(at)].memory != devices[uintp(at)].logged:
                        devices[uintp(at)].logged = devices[uintp(at)].memory
                        log.memory_device[num_logged] = at
                        log.memory_time_s[num_logged] = now
                        log.memory_bytes[num_logged] = devices[uintp(at)].memory
                        num_logged += 1

            # the first half of the next round: all that ends at the earliest moment
            last = now
            now = least[0]
            for block in range(1, num_blocks):
                now = min(now, least[block])
            if now == _NEVER:
                break
            for block in range(num_blocks):
                while least[block] == now:
                    leaf = block * BLOCK
                    while end[leaf] != now:
                        leaf += 1
                    if leaf < num_devices:
                        at = leaf
                        _clear(end, least, width, leaf)
                        op = devices[uintp(at)].running
                        devices[uintp(at)].memory -= ops[uintp(op)].returned_bytes
                        link = ops[uintp(op)].hold
                        while link != NONE:
                            hold = links[uintp(link)].hold
                            link = links[uintp(link)].next
                            holds[uintp(hold)].uses -= 1
                            if holds[uintp(hold)].uses == 0:
                                devices[uintp(at)].memory -= holds[uintp(hold)].bytes
                        low, high = ops[uintp(op)].first_output, ops[uintp(op)].last_output
                        if low + 1 == high:
                            deliver_one(at, low, now, dispatch, plan, scratch)
                        elif low < high <= low + FEW and ops[uintp(op)].num_tensors == 1:
                            deliver_few(at, low, high, now, dispatch, plan, scratch)
                        elif low < high:
                            deliver_many(at, op, now, dispatch, plan, scratch)
                    else:
                        if leaf == unlimited:
                            transfer = in_flight
                            in_flight = meld(transfers[uintp(transfer)].left, transfers[uintp(transfer)].right, transfers)
                            _clear(end, least, width, leaf)
                            if in_flight != NONE:
                                end[leaf] = transfers[uintp(in_flight)].key
                                least[block] = min(least[block], end[leaf])
                        else:
                            channel = leaf - num_devices
                            transfer = channels[uintp(channel)].running
                            _clear(end, least, width, leaf)
                            if not channels[uintp(channel)].touched:
                                channels[uintp(channel)].touched = 1
                                touched_channel[tally[0].touched_channels] = channel
                                tally[0].touched_channels += 1
                        hold = transfers[uintp(transfer)].hold
                        if hold == NONE:
                            devices[transfers[uintp(transfer)].source].memory -= transfers[uintp(transfer)].bytes
                        else:
                            holds[uintp(hold)].uses -= 1
                            if holds[uintp(hold)].uses == 0:
                                devices[transfers[uintp(transfer)].source].memory -= holds[uintp(hold)].bytes
                        at = transfers[uintp(transfer)].destination
                        for place in range(transfers[uintp(transfer)].first, transfers[uintp(transfer)].stop):
                            arrive(waiting[uintp(place)], at, now, dispatch, devices, ops)
                    if not devices[uintp(at)].touched:
                        devices[uintp(at)].touched = 1
                        touched[num_touched] = at
                        num_touched += 1

        step_time_s[row] = last
        most = 0.0
        for at in range(num_devices):
            busy_s[row, at] = devices[uintp(at)].busy_s
            peak[row, at] = devices[uintp(at)].peak
            most = max(most, devices[uintp(at)].busy_s)
        for channel in range(num_channels):
            most = max(most, channels[uintp(channel)].occupied_s)
        bottleneck_s[row] = most
        num_transfers[row] = tally[0].sent
        transferred[row] = tally[0].sent_bytes
