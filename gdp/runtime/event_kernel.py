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


@numba.njit(cache=True, nogil=True)
@no_type_check
def _meld(one, other, key, left, right):
    """The skew heap of two; the least (key, number) is at its root."""
    if one == _NONE:
        return other
    if other == _NONE:
        return one
    if key[other] < key[one] or (key[other] == key[one] and other < one):
        one, other = other, one
    root = one
    while True:
        rest = right[one]
        right[one] = left[one]
        if rest == _NONE:
            left[one] = other
            return root
        if key[other] < key[rest] or (key[other] == key[rest] and other < rest):
            rest, other = other, rest
        left[one] = rest
        one = rest


@numba.njit(cache=True, nogil=True)
@no_type_check
def _insert(root, item, key, left, right):
    left[item] = _NONE
    right[item] = _NONE
    return _meld(root, item, key, left, right)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _append(queue, item, now, head, tail, root, key, left, right):
    """Puts an item into a queue at a moment that is not before the last one's."""
    key[item] = now
    if head[queue] == _NONE:
        head[queue] = item
        tail[queue] = item
    elif item > tail[queue] or now > key[tail[queue]]:
        right[tail[queue]] = item
        tail[queue] = item
    else:
        root[queue] = _insert(root[queue], item, key, left, right)


@numba.njit(cache=True, nogil=True)
@no_type_check
def _take(queue, head, tail, root, key, left, right):
    """Takes the least (moment, number) out of a queue; `_NONE` when it is empty."""
    first = head[queue]
    early = root[queue]
    if early != _NONE and (first == _NONE or key[early] < key[first] or (key[early] == key[first] and early < first)):
        root[queue] = _meld(left[early], right[early], key, left, right)
        return early
    if first != _NONE:
        head[queue] = _NONE if first == tail[queue] else right[first]
    return first


@numba.njit(cache=True, nogil=True)
@no_type_check
def _set_end(tree, size, leaf, end):
    """Sets the end of one leaf of the tournament; `tree[1]` is then the least of all."""
    node = size + leaf
    tree[node] = end
    while node > 1:
        other = tree[node ^ 1]
        end = other if other < end else end
        node >>= 1
        tree[node] = end


@numba.njit(cache=True, nogil=True)
@no_type_check
def simulate_rows(plan, device, dispatch, priority, status, step_time_s, bottleneck_s, peak, busy_s, num_transfers, transferred, log):
    """Simulates every row of `device[batch, ops]`, and writes row by row what came out.

    The results of a row that is no placement stay as they are. `priority` is the rank negated.
    `log` is empty, or holds for one placement what its timeline is made of: see `EventLog`.
    """
    num_ops, num_devices = plan.op_s.shape
    num_tensors = len(plan.tensor_bytes)
    num_edges = len(plan.edge_consumer)
    num_channels = plan.num_channels
    unlimited = num_devices + num_channels  # the leaf of the transfers without a channel
    size = 1
    while size < unlimited + 1:
        size *= 2

    missing = np.empty(num_ops, np.int32)
    op_key = np.empty(num_ops, np.float64)
    op_left = np.empty(num_ops, np.int32)
    op_right = np.empty(num_ops, np.int32)
    ready_head = np.empty(num_devices, np.int32)
    ready_tail = np.empty(num_devices, np.int32)
    ready_root = np.empty(num_devices, np.int32)
    next_op = np.empty(num_devices, np.int32)
    running_op = np.empty(num_devices, np.int32)
    memory = np.empty(num_devices, np.int64)
    touched = np.empty(num_devices, np.int32)
    is_touched = np.zeros(num_devices, np.bool_)

    grouped = np.empty(num_edges, np.int32)
    grouped_edge = np.empty(num_edges, np.int32)
    transfer_tensor = np.empty(num_edges, np.int32)
    transfer_stop = np.empty(num_edges, np.int32)
    transfer_source = np.empty(num_edges, np.int32)
    transfer_destination = np.empty(num_edges, np.int32)
    transfer_key = np.empty(num_edges, np.float64)
    transfer_left = np.empty(num_edges, np.int32)
    transfer_right = np.empty(num_edges, np.int32)
    request_head = np.empty(num_channels, np.int32)
    request_tail = np.empty(num_channels, np.int32)
    request_root = np.empty(num_channels, np.int32)
    running_transfer = np.empty(num_channels, np.int32)
    occupied_s = np.empty(num_channels, np.float64)
    starting = np.empty(num_edges, np.int32)
    touched_channel = np.empty(num_channels, np.int32)
    is_touched_channel = np.zeros(num_channels, np.bool_)

    holds = np.empty(num_tensors + num_edges, np.int32)
    held_bytes = np.empty(num_tensors + num_edges, np.int64)
    held_bytes[:num_tensors] = plan.tensor_bytes
    input_hold = np.empty(num_edges, np.int32)
    begin = np.empty(num_devices + 1, np.int32)
    logging = len(log.op_start_s) > 0
    logged = np.empty(num_devices, np.int64)
    tree = np.empty(2 * size, np.float64)

    for row in range(len(device)):
        at_device = device[row]
        valid = True
        for op in range(num_ops):
            valid &= 0 <= at_device[op] < num_devices
        for op in range(num_ops):
            valid &= at_device[op] == at_device[plan.colocation_leader[op]]
        if not valid:
            continue
        status[row] = OK

        memory[:] = 0
        for op in range(num_ops):
            memory[at_device[op]] += plan.param_bytes[op]
        missing[:] = plan.num_inputs
        ready_head[:] = _NONE
        ready_root[:] = _NONE
        request_head[:] = _NONE
        request_root[:] = _NONE
        occupied_s[:] = 0.0
        busy_s[row] = 0.0
        peak[row] = memory
        tree[:] = np.inf
        logged[:] = -1
        num_logged = 0
        sent = 0
        sent_bytes = 0
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
                op_right[op] = next_op[at_device[op]]
                next_op[at_device[op]] = op
        elif dispatch == READY_ORDER:
            for op in plan.source:
                _append(at_device[op], op, now, ready_head, ready_tail, ready_root, op_key, op_left, op_right)
        else:
            op_key[:] = priority
            for op in plan.source:
                ready_root[at_device[op]] = _insert(ready_root[at_device[op]], op, op_key, op_left, op_right)

        while True:
            # the second half of a round: what is free takes what is there
            for place in range(num_touched):
                at = touched[place]
                is_touched[at] = False
                if tree[size + at] != np.inf:
                    continue
                if dispatch == READY_ORDER:
                    op = _take(at, ready_head, ready_tail, ready_root, op_key, op_left, op_right)
                elif dispatch == PRIORITY:
                    op = ready_root[at]
                    if op != _NONE:
                        ready_root[at] = _meld(op_left[op], op_right[op], op_key, op_left, op_right)
                else:
                    op = next_op[at]
                    if op != _NONE:
                        if missing[op] == 0:
                            next_op[at] = op_right[op]
                        else:
                            op = _NONE
                if op != _NONE:
                    seconds = plan.op_s[op, at]
                    running_op[at] = op
                    busy_s[row, at] += seconds
                    memory[at] += plan.claimed_bytes[op]
                    peak[row, at] = max(peak[row, at], memory[at])
                    _set_end(tree, size, at, now + seconds)
                    if logging:
                        log.op_start_s[op] = now
                        log.op_end_s[op] = now + seconds
            num_touched = 0
            for place in range(num_touched_channels):
                channel = touched_channel[place]
                is_touched_channel[channel] = False
                transfer = _take(channel, request_head, request_tail, request_root, transfer_key, transfer_left, transfer_right)
                if transfer != _NONE:
                    starting[num_starting] = transfer
                    num_starting += 1
            num_touched_channels = 0
            for place in range(num_starting):
                transfer = starting[place]
                source = transfer_source[transfer]
                destination = transfer_destination[transfer]
                channel = plan.channel[source, destination]
                copied = held_bytes[num_tensors + transfer]
                seconds = plan.latency_s[source, destination] + copied / plan.bandwidth_bytes_per_s[source, destination]
                memory[destination] += copied
                peak[row, destination] = max(peak[row, destination], memory[destination])
                if logging:
                    log.transfer_tensor[transfer] = transfer_tensor[transfer]
                    log.transfer_source[transfer] = source
                    log.transfer_destination[transfer] = destination
                    log.transfer_start_s[transfer] = now
                    log.transfer_end_s[transfer] = now + seconds
                if channel == num_channels:
                    transfer_key[transfer] = now + seconds
                    in_flight = _insert(in_flight, transfer, transfer_key, transfer_left, transfer_right)
                    _set_end(tree, size, unlimited, transfer_key[in_flight])
                else:
                    running_transfer[channel] = transfer
                    occupied_s[channel] += seconds
                    _set_end(tree, size, num_devices + channel, now + seconds)
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
            if tree[1] == np.inf:
                break
            now = tree[1]
            while tree[1] == now:
                leaf = 1
                while leaf < size:
                    leaf = 2 * leaf + (tree[2 * leaf] != now)
                leaf -= size
                if leaf < num_devices:
                    at = leaf
                    _set_end(tree, size, leaf, np.inf)
                    op = running_op[at]
                    memory[at] -= plan.returned_bytes[op]
                    for place in range(plan.first_input[op], plan.first_input[op + 1]):
                        hold = input_hold[place]
                        holds[hold] -= 1
                        if holds[hold] == 0:
                            memory[at] -= held_bytes[hold]
                    low, high = plan.first_output[op], plan.first_output[op + 1]
                    if low == high:
                        pass
                    else:
                        # group the outgoing edges by destination, stably
                        begin[:] = 0
                        for edge in range(low, high):
                            begin[at_device[plan.edge_consumer[edge]] + 1] += 1
                        begin[0] = low
                        for other in range(num_devices):
                            begin[other + 1] += begin[other]
                        for edge in range(low, high):
                            consumer = plan.edge_consumer[edge]
                            place = begin[at_device[consumer]]
                            begin[at_device[consumer]] += 1
                            grouped[place] = consumer
                            grouped_edge[place] = edge
                        for tensor in range(plan.edge_tensor[low], plan.edge_tensor[high - 1] + 1):
                            holds[tensor] = 0
                        last_tensor = _NONE
                        last_destination = _NONE
                        transfer = _NONE
                        for place in range(low, high):
                            consumer = grouped[place]
                            edge = grouped_edge[place]
                            tensor = plan.edge_tensor[edge]
                            destination = at_device[consumer]
                            if destination == at:
                                holds[tensor] += 1
                                input_hold[plan.edge_input[edge]] = tensor
                                missing[consumer] -= 1
                                if missing[consumer] == 0:
                                    if dispatch == READY_ORDER:
                                        _append(at, consumer, now, ready_head, ready_tail, ready_root, op_key, op_left, op_right)
                                    elif dispatch == PRIORITY:
                                        ready_root[at] = _insert(ready_root[at], consumer, op_key, op_left, op_right)
                                continue
                            if tensor != last_tensor or destination != last_destination:
                                last_tensor = tensor
                                last_destination = destination
                                transfer = place
                                transfer_tensor[transfer] = tensor
                                transfer_source[transfer] = at
                                transfer_destination[transfer] = destination
                                holds[tensor] += 1
                                holds[num_tensors + transfer] = 0
                                held_bytes[num_tensors + transfer] = held_bytes[tensor]
                                sent += 1
                                sent_bytes += held_bytes[tensor]
                                channel = plan.channel[at, destination]
                                if channel == num_channels:
                                    starting[num_starting] = transfer
                                    num_starting += 1
                                else:
                                    _append(
                                        channel,
                                        transfer,
                                        now,
                                        request_head,
                                        request_tail,
                                        request_root,
                                        transfer_key,
                                        transfer_left,
                                        transfer_right,
                                    )
                                    if tree[size + num_devices + channel] == np.inf and not is_touched_channel[channel]:
                                        is_touched_channel[channel] = True
                                        touched_channel[num_touched_channels] = channel
                                        num_touched_channels += 1
                            transfer_stop[transfer] = place + 1
                            holds[num_tensors + transfer] += 1
                            input_hold[plan.edge_input[edge]] = num_tensors + transfer
                else:
                    if leaf == unlimited:
                        transfer = in_flight
                        in_flight = _meld(transfer_left[transfer], transfer_right[transfer], transfer_key, transfer_left, transfer_right)
                        _set_end(tree, size, leaf, np.inf if in_flight == _NONE else transfer_key[in_flight])
                    else:
                        channel = leaf - num_devices
                        transfer = running_transfer[channel]
                        _set_end(tree, size, leaf, np.inf)
                        if not is_touched_channel[channel]:
                            is_touched_channel[channel] = True
                            touched_channel[num_touched_channels] = channel
                            num_touched_channels += 1
                    tensor = transfer_tensor[transfer]
                    holds[tensor] -= 1
                    if holds[tensor] == 0:
                        memory[transfer_source[transfer]] -= held_bytes[tensor]
                    at = transfer_destination[transfer]
                    for place in range(transfer, transfer_stop[transfer]):
                        consumer = grouped[place]
                        missing[consumer] -= 1
                        if missing[consumer] == 0:
                            if dispatch == READY_ORDER:
                                _append(at, consumer, now, ready_head, ready_tail, ready_root, op_key, op_left, op_right)
                            elif dispatch == PRIORITY:
                                ready_root[at] = _insert(ready_root[at], consumer, op_key, op_left, op_right)
                if not is_touched[at]:
                    is_touched[at] = True
                    touched[num_touched] = at
                    num_touched += 1

        step_time_s[row] = now
        most = 0.0
        for at in range(num_devices):
            most = max(most, busy_s[row, at])
        for channel in range(num_channels):
            most = max(most, occupied_s[channel])
        bottleneck_s[row] = most
        num_transfers[row] = sent
        transferred[row] = sent_bytes
