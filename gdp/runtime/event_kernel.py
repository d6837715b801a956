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

import numba
import numpy as np

from gdp.measurement import Status

READY_ORDER, PROGRAM_ORDER, PRIORITY = 0, 1, 2
OK = int(Status.OK)
_NONE = -1
_NEVER = np.inf
_BLOCK = 64

_TRANSFER = np.dtype(
    [
        ("key", np.float64),  # when it was requested; without a channel, when it ends
        ("bytes", np.int64),
        ("tie", np.int32),  # numbers transfers by producer, destination, tensor
        ("left", np.int32),
        ("right", np.int32),
        ("hold", np.int32),
        ("first", np.int32),  # its consumers in `waiting`
        ("stop", np.int32),
        ("source", np.int32),
        ("destination", np.int32),
        ("tensor", np.int32),
    ],
    align=True,
)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _meld(one, other, items):
    """The skew heap of two; the least (key, tie) is at its root."""
    if one == _NONE:
        return other
    if other == _NONE:
        return one
    if items[other].key < items[one].key or (items[other].key == items[one].key and items[other].tie < items[one].tie):
        one, other = other, one
    root = one
    while True:
        rest = items[one].right
        items[one].right = items[one].left
        if rest == _NONE:
            items[one].left = other
            return root
        if items[other].key < items[rest].key or (items[other].key == items[rest].key and items[other].tie < items[rest].tie):
            rest, other = other, rest
        items[one].left = rest
        one = rest


@numba.njit(cache=True, nogil=True)
@no_type_check
def _insert(root, item, items):
    items[item].left = _NONE
    items[item].right = _NONE
    return _meld(root, item, items)


@numba.njit(cache=True, nogil=True, inline="always")
@no_type_check
def _append(queue, item, now, head, tail, root, items):
    """Puts an item into a queue at a moment that is not before the last one's."""
    items[item].key = now
    if head[queue] == _NONE:
        head[queue] = item
        tail[queue] = item
    elif now > items[tail[queue]].key or items[item].tie > items[tail[queue]].tie:
        items[tail[queue]].right = item
        tail[queue] = item
    else:
        root[queue] = _insert(root[queue], item, items)


@numba.njit(cache=True, nogil=True, inline="always")
@no_type_check
def _take(queue, head, tail, root, items):
    """Takes the least (moment, tie) out of a queue; `_NONE` when it is empty."""
    item = head[queue]
    early = root[queue]
    if early != _NONE and (
        item == _NONE or items[early].key < items[item].key or (items[early].key == items[item].key and items[early].tie < items[item].tie)
    ):
        item = early
        root[queue] = _meld(items[early].left, items[early].right, items)
    elif item != _NONE:
        head[queue] = _NONE if item == tail[queue] else items[item].right
    return item


@numba.njit(cache=True, nogil=True, inline="always")
@no_type_check
def _clear(end, least, width, leaf):
    """Sets the end of a leaf to never, and the least end of its block anew."""
    end[leaf] = _NEVER
    block = leaf // _BLOCK
    smallest = _NEVER
    for other in range(block * _BLOCK, block * _BLOCK + width):
        smallest = min(smallest, end[other])
    least[block] = smallest


@numba.njit(cache=True, nogil=True)
@no_type_check
def _group(low, high, edges, at_device, num_devices, begin, grouped):
    """Sorts the edges `low` to `high` by destination into `grouped`; those of one destination keep their order."""
    if high - low <= 8:
        for edge in range(low, high):
            destination = at_device[edges[edge].consumer]
            place = edge - low
            while place > 0 and at_device[edges[grouped[place - 1]].consumer] > destination:
                grouped[place] = grouped[place - 1]
                place -= 1
            grouped[place] = edge
        return
    begin[:] = 0
    for edge in range(low, high):
        begin[at_device[edges[edge].consumer] + 1] += 1
    for destination in range(num_devices):
        begin[destination + 1] += begin[destination]
    for edge in range(low, high):
        destination = at_device[edges[edge].consumer]
        grouped[begin[destination]] = edge
        begin[destination] += 1


@numba.njit(cache=True, nogil=True, inline="always")
@no_type_check
def _arrive(consumer, at, now, dispatch, ready_head, ready_tail, ready_root, ops):
    """One input of an op has arrived."""
    ops[consumer].missing -= 1
    if ops[consumer].missing == 0:
        if dispatch == READY_ORDER:
            _append(at, consumer, now, ready_head, ready_tail, ready_root, ops)
        elif dispatch == PRIORITY:
            ready_root[at] = _insert(ready_root[at], consumer, ops)


@numba.njit(cache=True, nogil=True)
@no_type_check
def simulate_rows(plan, device, dispatch, priority, status, step_time_s, bottleneck_s, peak, busy_s, num_transfers, transferred, log):
    """Simulates every row of `device[batch, ops]`, and writes row by row what came out.

    The results of a row that is no placement stay as they are. `priority` is the rank negated. `log` is empty, or is filled for the last row: see `EventLog`.
    """
    num_ops, num_devices = plan.op_s.shape
    num_edges = len(plan.edges)
    num_channels = plan.num_channels
    unlimited = num_devices + num_channels  # the leaf of the transfers without a channel
    num_blocks = unlimited // _BLOCK + 1
    width = _BLOCK if num_blocks > 1 else (unlimited // 8 + 1) * 8

    ops = np.empty_like(plan.ops)
    at_device = np.empty(num_ops, np.int8)
    ready_head = np.empty(num_devices, np.int32)
    ready_tail = np.empty(num_devices, np.int32)
    ready_root = np.empty(num_devices, np.int32)
    next_op = np.empty(num_devices, np.int32)
    running_op = np.empty(num_devices, np.int32)
    memory = np.empty(num_devices, np.int64)
    most_memory = np.empty(num_devices, np.int64)
    busy = np.empty(num_devices, np.float64)
    touched = np.empty(num_devices, np.int32)
    is_touched = np.zeros(num_devices, np.bool_)

    transfers = np.empty(num_edges, _TRANSFER)
    waiting = np.empty(num_edges, np.int32)
    request_head = np.empty(num_channels, np.int32)
    request_tail = np.empty(num_channels, np.int32)
    request_root = np.empty(num_channels, np.int32)
    running_transfer = np.empty(num_channels, np.int32)
    occupied_s = np.empty(num_channels, np.float64)
    starting = np.empty(num_edges, np.int32)
    touched_channel = np.empty(num_channels, np.int32)
    is_touched_channel = np.zeros(num_channels, np.bool_)

    grouped = np.empty(num_edges, np.int32)
    begin = np.empty(num_devices + 1, np.int32)
    uses = np.empty(plan.most_tensors, np.int32)
    hold_of_tensor = np.empty(plan.most_tensors, np.int32)
    holds = np.empty(2 * num_edges, np.int32)
    held_bytes = np.empty(2 * num_edges, np.int64)
    next_hold = np.empty(num_edges, np.int32)
    hold_of = np.empty(num_edges, np.int32)

    end = np.empty(num_blocks * _BLOCK, np.float64)
    least = np.empty(num_blocks, np.float64)
    logging = len(log.op_start_s) > 0
    logged = np.empty(num_devices, np.int64)

    for row in range(len(device)):
        valid = True
        for op in range(num_ops):
            valid &= (0 <= device[row, op]) & (device[row, op] < num_devices)
            valid &= device[row, op] == device[row, plan.colocation_leader[op]]
        if not valid:
            continue
        status[row] = OK

        memory[:] = 0
        for op in range(num_ops):
            at = device[row, op]
            at_device[op] = at
            memory[at] += plan.ops[op].param_bytes
            ops[op] = plan.ops[op]
            ops[op].seconds = plan.op_s[op, at]
        most_memory[:] = memory
        ready_head[:] = _NONE
        ready_root[:] = _NONE
        request_head[:] = _NONE
        request_root[:] = _NONE
        occupied_s[:] = 0.0
        busy[:] = 0.0
        end[:] = _NEVER
        least[:] = _NEVER
        logged[:] = -1
        num_logged = 0
        sent = 0
        sent_bytes = 0
        last = 0.0
        num_waiting = 0
        num_linked = 0
        num_holds = 0
        in_flight = _NONE  # the skew heap of the transfers without a channel
        now = 0.0
        num_touched = num_devices
        for at in range(num_devices):
            touched[at] = at
            is_touched[at] = True
        num_touched_channels = 0
        num_starting = 0
        if dispatch == PROGRAM_ORDER:
            next_op[:] = _NONE
            for op in range(num_ops - 1, -1, -1):
                ops[op].right = next_op[at_device[op]]
                next_op[at_device[op]] = op
        elif dispatch == READY_ORDER:
            for op in plan.source:
                _append(at_device[op], op, now, ready_head, ready_tail, ready_root, ops)
        else:
            for op in range(num_ops):
                ops[op].key = priority[op]
            for op in plan.source:
                ready_root[at_device[op]] = _insert(ready_root[at_device[op]], op, ops)

        while True:
            # the second half of a round: what is free takes what is there
            for touch in range(num_touched):
                at = touched[touch]
                is_touched[at] = False
                if end[at] != _NEVER:
                    continue
                if dispatch == READY_ORDER:
                    op = _take(at, ready_head, ready_tail, ready_root, ops)
                elif dispatch == PRIORITY:
                    op = ready_root[at]
                    if op != _NONE:
                        ready_root[at] = _meld(ops[op].left, ops[op].right, ops)
                else:
                    op = next_op[at]
                    if op != _NONE:
                        if ops[op].missing == 0:
                            next_op[at] = ops[op].right
                        else:
                            op = _NONE
                if op != _NONE:
                    seconds = ops[op].seconds
                    running_op[at] = op
                    busy[at] += seconds
                    memory[at] += ops[op].claimed_bytes
                    most_memory[at] = max(most_memory[at], memory[at])
                    end[at] = now + seconds
                    least[at // _BLOCK] = min(least[at // _BLOCK], now + seconds)
                    if logging:
                        log.op_start_s[op] = now
                        log.op_end_s[op] = now + seconds
            num_touched = 0
            for touch in range(num_touched_channels):
                channel = touched_channel[touch]
                is_touched_channel[channel] = False
                transfer = _take(channel, request_head, request_tail, request_root, transfers)
                if transfer != _NONE:
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
                memory[destination] += copied
                most_memory[destination] = max(most_memory[destination], memory[destination])
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
                    in_flight = _insert(in_flight, transfer, transfers)
                    end[leaf] = transfers[in_flight].key
                else:
                    running_transfer[channel] = transfer
                    occupied_s[channel] += seconds
                least[leaf // _BLOCK] = min(least[leaf // _BLOCK], end[leaf])
            num_starting = 0
            if logging:
                for at in range(num_devices):
                    if memory[at] != logged[at]:
                        logged[at] = memory[at]
                        log.memory_device[num_logged] = at
                        log.memory_time_s[num_logged] = now
                        log.memory_bytes[num_logged] = memory[at]
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
                    leaf = block * _BLOCK
                    while end[leaf] != now:
                        leaf += 1
                    if leaf < num_devices:
                        at = leaf
                        _clear(end, least, width, leaf)
                        op = running_op[at]
                        memory[at] -= ops[op].returned_bytes
                        link = ops[op].hold
                        while link != _NONE:
                            hold = hold_of[link]
                            link = next_hold[link]
                            holds[hold] -= 1
                            if holds[hold] == 0:
                                memory[at] -= held_bytes[hold]
                        low, high = ops[op].first_output, ops[op].last_output
                        first_tensor = ops[op].first_tensor
                        if low + 1 == high:
                            grouped[0] = low
                            hold_of_tensor[plan.edges[low].tensor - first_tensor] = _NONE
                        elif low < high:
                            _group(low, high, plan.edges, at_device, num_devices, begin, grouped)
                            uses[: ops[op].num_tensors] = 0
                            last_tensor, destination = _NONE, at
                            place = 0
                            while place < high - low:
                                consumer, tensor = plan.edges[grouped[place]].consumer, plan.edges[grouped[place]].tensor
                                if at_device[consumer] == at or tensor != last_tensor or at_device[consumer] != destination:
                                    uses[tensor - first_tensor] += 1
                                last_tensor, destination = tensor, at_device[consumer]
                                place += 1
                            for number in range(ops[op].num_tensors):
                                hold_of_tensor[number] = _NONE
                            for place in range(high - low):
                                edge = grouped[place]
                                number = plan.edges[edge].tensor - first_tensor
                                if uses[number] > 1 and hold_of_tensor[number] == _NONE:
                                    hold_of_tensor[number] = num_holds
                                    holds[num_holds] = uses[number]
                                    held_bytes[num_holds] = plan.edges[edge].bytes
                                    num_holds += 1
                        place = 0
                        while place < high - low:
                            edge = grouped[place]
                            consumer = plan.edges[edge].consumer
                            tensor = plan.edges[edge].tensor
                            size = plan.edges[edge].bytes
                            destination = at_device[consumer]
                            hold = hold_of_tensor[tensor - first_tensor]
                            if destination == at:
                                if hold == _NONE:
                                    ops[consumer].returned_bytes += size
                                else:
                                    hold_of[num_linked] = hold
                                    next_hold[num_linked] = ops[consumer].hold
                                    ops[consumer].hold = num_linked
                                    num_linked += 1
                                _arrive(consumer, at, now, dispatch, ready_head, ready_tail, ready_root, ops)
                                place += 1
                                continue
                            stop = place + 1
                            while stop < high - low and (
                                plan.edges[grouped[stop]].tensor == tensor and at_device[plan.edges[grouped[stop]].consumer] == destination
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
                                _append(channel, transfer, now, request_head, request_tail, request_root, transfers)
                                if end[num_devices + channel] == _NEVER and not is_touched_channel[channel]:
                                    is_touched_channel[channel] = True
                                    touched_channel[num_touched_channels] = channel
                                    num_touched_channels += 1
                            if stop == place + 1:
                                ops[consumer].returned_bytes += size
                                waiting[num_waiting] = consumer
                                num_waiting += 1
                            else:
                                holds[num_holds] = stop - place
                                held_bytes[num_holds] = size
                                for other in range(place, stop):
                                    consumer = plan.edges[grouped[other]].consumer
                                    hold_of[num_linked] = num_holds
                                    next_hold[num_linked] = ops[consumer].hold
                                    ops[consumer].hold = num_linked
                                    num_linked += 1
                                    waiting[num_waiting] = consumer
                                    num_waiting += 1
                                num_holds += 1
                            place = stop
                    else:
                        if leaf == unlimited:
                            transfer = in_flight
                            in_flight = _meld(transfers[transfer].left, transfers[transfer].right, transfers)
                            _clear(end, least, width, leaf)
                            if in_flight != _NONE:
                                end[leaf] = transfers[in_flight].key
                                least[block] = min(least[block], end[leaf])
                        else:
                            channel = leaf - num_devices
                            transfer = running_transfer[channel]
                            _clear(end, least, width, leaf)
                            if not is_touched_channel[channel]:
                                is_touched_channel[channel] = True
                                touched_channel[num_touched_channels] = channel
                                num_touched_channels += 1
                        hold = transfers[transfer].hold
                        if hold == _NONE:
                            memory[transfers[transfer].source] -= transfers[transfer].bytes
                        else:
                            holds[hold] -= 1
                            if holds[hold] == 0:
                                memory[transfers[transfer].source] -= held_bytes[hold]
                        at = transfers[transfer].destination
                        for place in range(transfers[transfer].first, transfers[transfer].stop):
                            _arrive(waiting[place], at, now, dispatch, ready_head, ready_tail, ready_root, ops)
                    if not is_touched[at]:
                        is_touched[at] = True
                        touched[num_touched] = at
                        num_touched += 1

        step_time_s[row] = last
        most = 0.0
        for at in range(num_devices):
            busy_s[row, at] = busy[at]
            peak[row, at] = most_memory[at]
            most = max(most, busy[at])
        for channel in range(num_channels):
            most = max(most, occupied_s[channel])
        bottleneck_s[row] = most
        num_transfers[row] = sent
        transferred[row] = sent_bytes
