"""The rule of `specification.py`, compiled: many placements of one graph, one after the other, without the GIL.

The specification's heaps are replaced by structures that give the same answers faster:
- *Queues.* Ops become ready, and transfers are requested, at moments that never decrease. A queue is therefore a linked list that is appended to,
  and a skew heap (Sleator and Tarjan 1986) for the rare item that comes before the tail: same moment, lower number.
- *Transfers* are numbered in the order (producer, destination, tensor), so that one number breaks every tie. A transfer has the number of a place in
  `grouped`, where each op's outgoing edges stand by destination, tensor and consumer; its consumers are the edges from there on.
- *Events.* A device and a channel each run one thing, so the next moment is the least of one end per device, one per channel, and the least end of the
  transfers without a channel, which a skew heap holds. A tournament over these ends gives it in O(log(devices + channels)).
- *Memory.* Every edge knows what its consumer holds: the tensor at its source, or the copy on its own device.

The order of events inside one round differs from the specification's; nothing that is computed depends on it.
"""

from typing import no_type_check

import numpy as np

from gdp.measurement import Status
from gdp.runtime.compiled import compile_inline, compile_kernel
from gdp.runtime.event_groups import group
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

    ops, device_of, devices, channels, transfers, waiting, starting, touched, touched_channel = scratch[:9]
    grouped, begin, uses, hold_of_tensor, holds, links, end, least = scratch[9:]
    edges = plan.edges
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
            devices[at].memory = 0
            devices[at].logged = -1
            devices[at].busy_s = 0.0
            devices[at].head = devices[at].root = devices[at].next = NONE
        for channel in range(num_channels):
            channels[channel].occupied_s = 0.0
            channels[channel].head = channels[channel].root = NONE
        for op in range(num_ops):
            at = device[row, op]
            device_of[op] = at
            devices[at].memory += plan.ops[op].param_bytes
            ops[op] = plan.ops[op]
            ops[op].seconds = plan.op_s[op, at]
        for at in range(num_devices):
            devices[at].peak = devices[at].memory
        end[:] = _NEVER
        least[:] = _NEVER
        num_logged = 0
        sent = 0
        sent_bytes = 0
        last = 0.0
        num_waiting = 0
        num_linked = 0
        num_holds = 0
        in_flight = NONE  # the skew heap of the transfers without a channel
        now = 0.0
        num_touched = num_devices
        for at in range(num_devices):
            touched[at] = at
            devices[at].touched = 1
        num_touched_channels = 0
        num_starting = 0
        if dispatch == PROGRAM_ORDER:
            for op in range(num_ops - 1, -1, -1):
                ops[op].right = devices[device_of[op]].next
                devices[device_of[op]].next = op
        elif dispatch == READY_ORDER:
            for op in plan.source:
                append(devices, device_of[op], op, now, ops)
        else:
            for op in range(num_ops):
                ops[op].key = priority[op]
            for op in plan.source:
                devices[device_of[op]].root = insert(devices[device_of[op]].root, op, ops)

        while True:
            # the second half of a round: what is free takes what is there
            for touch in range(num_touched):
                at = touched[touch]
                devices[at].touched = 0
                if end[at] != _NEVER:
                    continue
                if dispatch == READY_ORDER:
                    op = take(devices, at, ops)
                elif dispatch == PRIORITY:
                    op = devices[at].root
                    if op != NONE:
                        devices[at].root = meld(ops[op].left, ops[op].right, ops)
                else:
                    op = devices[at].next
                    if op != NONE:
                        if ops[op].missing == 0:
                            devices[at].next = ops[op].right
                        else:
                            op = NONE
                if op != NONE:
                    seconds = ops[op].seconds
                    devices[at].running = op
                    devices[at].busy_s += seconds
                    devices[at].memory += ops[op].claimed_bytes
                    devices[at].peak = max(devices[at].peak, devices[at].memory)
                    end[at] = now + seconds
                    least[at // BLOCK] = min(least[at // BLOCK], now + seconds)
                    if logging:
                        log.op_start_s[op] = now
                        log.op_end_s[op] = now + seconds
            num_touched = 0
            for touch in range(num_touched_channels):
                channel = touched_channel[touch]
                channels[channel].touched = 0
                transfer = take(channels, channel, transfers)
                if transfer != NONE:
                    starting[num_starting] = transfer
                    num_starting += 1
            num_touched_channels = 0
            for start in range(num_starting):
                transfer = starting[start]
                source = transfers[transfer].source
                destination = transfers[transfer].destination
                channel = plan.channel[source, destination]
                copied = transfers[transfer].bytes
                seconds = plan.latency_s[source, destination] + copied / plan.bandwidth_bytes_per_s[source, destination]
                devices[destination].memory += copied
                devices[destination].peak = max(devices[destination].peak, devices[destination].memory)
                if logging:
                    log.transfer_tensor[transfer] = transfers[transfer].tensor
                    log.transfer_source[transfer] = source
                    log.transfer_destination[transfer] = destination
                    log.transfer_start_s[transfer] = now
                    log.transfer_end_s[transfer] = now + seconds
                leaf = num_devices + channel
                end[leaf] = now + seconds
                if leaf == unlimited:
                    transfers[transfer].key = now + seconds
                    in_flight = insert(in_flight, transfer, transfers)
                    end[leaf] = transfers[in_flight].key
                else:
                    channels[channel].running = transfer
                    channels[channel].occupied_s += seconds
                least[leaf // BLOCK] = min(least[leaf // BLOCK], end[leaf])
            num_starting = 0
            if logging:
                for at in range(num_devices):
                    if devices[at].memory != devices[at].logged:
                        devices[at].logged = devices[at].memory
                        log.memory_device[num_logged] = at
                        log.memory_time_s[num_logged] = now
                        log.memory_bytes[num_logged] = devices[at].memory
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
                        op = devices[at].running
                        devices[at].memory -= ops[op].returned_bytes
                        link = ops[op].hold
                        while link != NONE:
                            hold = links[link].hold
                            link = links[link].next
                            holds[hold].uses -= 1
                            if holds[hold].uses == 0:
                                devices[at].memory -= holds[hold].bytes
                        low, high = ops[op].first_output, ops[op].last_output
                        first_tensor = ops[op].first_tensor
                        if low + 1 == high:
                            grouped[0] = low
                            hold_of_tensor[edges[low].tensor - first_tensor] = NONE
                        elif low < high:
                            group(low, high, edges, device_of, num_devices, begin, grouped)
                            for number in range(ops[op].num_tensors):
                                uses[number] = 0
                            last_tensor, destination = NONE, at
                            place = 0
                            while place < high - low:
                                consumer, tensor = edges[grouped[place]].consumer, edges[grouped[place]].tensor
                                if device_of[consumer] == at or tensor != last_tensor or device_of[consumer] != destination:
                                    uses[tensor - first_tensor] += 1
                                last_tensor, destination = tensor, device_of[consumer]
                                place += 1
                            for number in range(ops[op].num_tensors):
                                hold_of_tensor[number] = NONE
                            for place in range(high - low):
                                edge = grouped[place]
                                number = edges[edge].tensor - first_tensor
                                if uses[number] > 1 and hold_of_tensor[number] == NONE:
                                    hold_of_tensor[number] = num_holds
                                    holds[num_holds].uses = uses[number]
                                    holds[num_holds].bytes = edges[edge].bytes
                                    num_holds += 1
                        place = 0
                        while place < high - low:
                            edge = grouped[place]
                            consumer = edges[edge].consumer
                            tensor = edges[edge].tensor
                            size = edges[edge].bytes
                            destination = device_of[consumer]
                            hold = hold_of_tensor[tensor - first_tensor]
                            if destination == at:
                                if hold == NONE:
                                    ops[consumer].returned_bytes += size
                                else:
                                    links[num_linked].hold = hold
                                    links[num_linked].next = ops[consumer].hold
                                    ops[consumer].hold = num_linked
                                    num_linked += 1
                                arrive(consumer, at, now, dispatch, devices, ops)
                                place += 1
                                continue
                            stop = place + 1
                            while stop < high - low and (
                                edges[grouped[stop]].tensor == tensor and device_of[edges[grouped[stop]].consumer] == destination
                            ):
                                stop += 1
                            transfer = sent
                            sent += 1
                            sent_bytes += size
                            transfers[transfer].bytes = size
                            transfers[transfer].tie = low + place
                            transfers[transfer].hold = hold
                            transfers[transfer].first = num_waiting
                            transfers[transfer].stop = num_waiting + stop - place
                            transfers[transfer].source = at
                            transfers[transfer].destination = destination
                            transfers[transfer].tensor = tensor
                            channel = plan.channel[at, destination]
                            if channel == num_channels:
                                starting[num_starting] = transfer
                                num_starting += 1
                            else:
                                append(channels, channel, transfer, now, transfers)
                                if end[num_devices + channel] == _NEVER and not channels[channel].touched:
                                    channels[channel].touched = 1
                                    touched_channel[num_touched_channels] = channel
                                    num_touched_channels += 1
                            if stop == place + 1:
                                ops[consumer].returned_bytes += size
                                waiting[num_waiting] = consumer
                                num_waiting += 1
                            else:
                                holds[num_holds].uses = stop - place
                                holds[num_holds].bytes = size
                                for other in range(place, stop):
                                    consumer = edges[grouped[other]].consumer
                                    links[num_linked].hold = num_holds
                                    links[num_linked].next = ops[consumer].hold
                                    ops[consumer].hold = num_linked
                                    num_linked += 1
                                    waiting[num_waiting] = consumer
                                    num_waiting += 1
                                num_holds += 1
                            place = stop
                    else:
                        if leaf == unlimited:
                            transfer = in_flight
                            in_flight = meld(transfers[transfer].left, transfers[transfer].right, transfers)
                            _clear(end, least, width, leaf)
                            if in_flight != NONE:
                                end[leaf] = transfers[in_flight].key
                                least[block] = min(least[block], end[leaf])
                        else:
                            channel = leaf - num_devices
                            transfer = channels[channel].running
                            _clear(end, least, width, leaf)
                            if not channels[channel].touched:
                                channels[channel].touched = 1
                                touched_channel[num_touched_channels] = channel
                                num_touched_channels += 1
                        hold = transfers[transfer].hold
                        if hold == NONE:
                            devices[transfers[transfer].source].memory -= transfers[transfer].bytes
                        else:
                            holds[hold].uses -= 1
                            if holds[hold].uses == 0:
                                devices[transfers[transfer].source].memory -= holds[hold].bytes
                        at = transfers[transfer].destination
                        for place in range(transfers[transfer].first, transfers[transfer].stop):
                            arrive(waiting[place], at, now, dispatch, devices, ops)
                    if not devices[at].touched:
                        devices[at].touched = 1
                        touched[num_touched] = at
                        num_touched += 1

        step_time_s[row] = last
        most = 0.0
        for at in range(num_devices):
            busy_s[row, at] = devices[at].busy_s
            peak[row, at] = devices[at].peak
            most = max(most, devices[at].busy_s)
        for channel in range(num_channels):
            most = max(most, channels[channel].occupied_s)
        bottleneck_s[row] = most
        num_transfers[row] = sent
        transferred[row] = sent_bytes
