"""What follows the end of an op: its tensors arrive at consumers beside it, and are sent to other devices. Compiled.

`work` is the `Scratch` of the simulation. An index that numba knows to be unsigned costs one instruction, any other three: hence `uintp`.
"""

from typing import no_type_check

import numpy as np
from numpy import uintp

from gdp.runtime.compiled import compile_inline
from gdp.runtime.event_groups import group
from gdp.runtime.event_queue import NONE, append, arrive

FEW = 8
"""An op with one tensor and at most so many consumers is served without sorting them by device."""

_BEYOND = 2**15
"""More than any device's number."""

_NEVER = np.inf


@compile_inline
@no_type_check
def hold_input(consumer, hold, work):
    """Notes that an op needs what a hold keeps."""
    link = work.tally[0].links
    work.links[uintp(link)].hold = hold
    work.links[uintp(link)].next = work.ops[uintp(consumer)].hold
    work.ops[uintp(consumer)].hold = link
    work.tally[0].links = link + 1


@compile_inline
@no_type_check
def new_hold(uses, size, work):
    """The number of a hold that keeps `size` bytes until `uses` have let it go."""
    hold = work.tally[0].holds
    work.holds[uintp(hold)].uses = uses
    work.holds[uintp(hold)].bytes = size
    work.tally[0].holds = hold + 1
    return hold


@compile_inline
@no_type_check
def send(at, destination, tensor, size, hold, tie, first, now, plan, work):
    """Requests the transfer of a tensor for the consumers in `waiting` from `first` on."""
    stop = work.tally[0].waiting
    number = work.tally[0].sent
    work.tally[0].sent = number + 1
    work.tally[0].sent_bytes += size
    transfer = work.transfers[uintp(number)]
    transfer.bytes = size
    transfer.tie = tie
    transfer.hold = hold
    transfer.first = first
    transfer.stop = stop
    transfer.source = at
    transfer.destination = destination
    transfer.tensor = tensor
    channel = plan.channel[uintp(at), uintp(destination)]
    if channel == plan.num_channels:
        work.starting[uintp(work.tally[0].starting)] = number
        work.tally[0].starting += 1
    else:
        append(work.channels, channel, number, now, work.transfers)
        if work.end[uintp(plan.op_s.shape[1] + channel)] == _NEVER and not work.channels[uintp(channel)].touched:
            work.channels[uintp(channel)].touched = 1
            work.touched_channel[uintp(work.tally[0].touched_channels)] = channel
            work.tally[0].touched_channels += 1
    if stop == first + 1:
        work.ops[uintp(work.waiting[uintp(first)])].returned_bytes += size
    else:
        copy = new_hold(stop - first, size, work)
        for place in range(first, stop):
            hold_input(work.waiting[uintp(place)], copy, work)


@compile_inline
@no_type_check
def deliver_one(at, low, now, dispatch, plan, work):
    """For an op with a single consumer, edge `low`."""
    edge = plan.edges[uintp(low)]
    consumer = edge.consumer
    destination = work.device_of[uintp(consumer)]
    if destination == at:
        work.ops[uintp(consumer)].returned_bytes += edge.bytes
        arrive(consumer, at, now, dispatch, work.devices, work.ops)
    else:
        first = work.tally[0].waiting
        work.waiting[uintp(first)] = consumer
        work.tally[0].waiting = first + 1
        send(at, destination, edge.tensor, edge.bytes, NONE, low, first, now, plan, work)


@compile_inline
@no_type_check
def next_destination(last, low, high, plan, work):
    """The least device above `last` among those of the consumers; `_BEYOND` when there is none."""
    destination = np.int64(_BEYOND)
    for edge in range(low, high):
        there = np.int64(work.device_of[uintp(plan.edges[uintp(edge)].consumer)])
        destination = there if (there > last) & (there < destination) else destination
    return destination


@compile_inline
@no_type_check
def deliver_few(at, low, high, now, dispatch, plan, work):
    """For an op with one tensor and at most `FEW` consumers, edges `low` to `high`: device by device, their consumers gathered without a branch."""
    size, tensor = plan.edges[uintp(low)].bytes, plan.edges[uintp(low)].tensor
    uses = 0  # of the tensor at its source: every consumer here, and one transfer a destination
    for edge in range(low, high):
        uses += np.int64(work.device_of[uintp(plan.edges[uintp(edge)].consumer)]) == at
    last = next_destination(np.int64(-1), low, high, plan, work)
    while last != _BEYOND:
        uses += last != at
        last = next_destination(last, low, high, plan, work)
    hold = np.int64(NONE)
    if uses > 1:
        hold = new_hold(uses, size, work)
    tie = low
    destination = next_destination(np.int64(-1), low, high, plan, work)
    while destination != _BEYOND:
        first = work.tally[0].waiting
        stop = first
        for edge in range(low, high):
            consumer = plan.edges[uintp(edge)].consumer
            work.waiting[uintp(stop)] = consumer
            stop += np.int64(work.device_of[uintp(consumer)]) == destination
        if destination != at:
            work.tally[0].waiting = stop
            send(at, destination, tensor, size, hold, tie, first, now, plan, work)
            tie += 1
        else:
            for place in range(first, stop):
                consumer = work.waiting[uintp(place)]
                if hold == NONE:
                    work.ops[uintp(consumer)].returned_bytes += size
                else:
                    hold_input(consumer, hold, work)
                arrive(consumer, at, now, dispatch, work.devices, work.ops)
        destination = next_destination(destination, low, high, plan, work)


@compile_inline
@no_type_check
def deliver_many(at, op, now, dispatch, plan, work):
    """For any op: its edges sorted by device, tensor and consumer."""
    edges, grouped, uses, hold_of_tensor = plan.edges, work.grouped, work.uses, work.hold_of_tensor
    low, high = work.ops[uintp(op)].first_output, work.ops[uintp(op)].last_output
    first_tensor = work.ops[uintp(op)].first_tensor
    group(low, high, edges, work.device_of, plan.op_s.shape[1], work.begin, grouped)
    for number in range(work.ops[uintp(op)].num_tensors):
        uses[number] = 0
        hold_of_tensor[number] = NONE
    last_tensor, last_destination = np.int64(NONE), np.int64(at)
    for place in range(high - low):
        edge = edges[uintp(grouped[place])]
        there = np.int64(work.device_of[uintp(edge.consumer)])
        if there == at or edge.tensor != last_tensor or there != last_destination:
            uses[uintp(edge.tensor - first_tensor)] += 1
        last_tensor, last_destination = np.int64(edge.tensor), there
    for place in range(high - low):
        edge = edges[uintp(grouped[place])]
        number = edge.tensor - first_tensor
        if uses[uintp(number)] > 1 and hold_of_tensor[uintp(number)] == NONE:
            hold_of_tensor[uintp(number)] = new_hold(uses[uintp(number)], edge.bytes, work)
    place = 0
    while place < high - low:
        edge = edges[uintp(grouped[place])]
        consumer, tensor, size = edge.consumer, edge.tensor, edge.bytes
        destination = np.int64(work.device_of[uintp(consumer)])
        hold = hold_of_tensor[uintp(tensor - first_tensor)]
        if destination == at:
            if hold == NONE:
                work.ops[uintp(consumer)].returned_bytes += size
            else:
                hold_input(consumer, hold, work)
            arrive(consumer, at, now, dispatch, work.devices, work.ops)
            place += 1
            continue
        first, tie = work.tally[0].waiting, low + place
        stop = first
        while place < high - low:
            edge = edges[uintp(grouped[place])]
            if edge.tensor != tensor or np.int64(work.device_of[uintp(edge.consumer)]) != destination:
                break
            work.waiting[uintp(stop)] = edge.consumer
            stop += 1
            place += 1
        work.tally[0].waiting = stop
        send(at, destination, tensor, size, hold, tie, first, now, plan, work)
