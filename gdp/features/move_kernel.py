"""The compiled part of `move_features`."""

import math
from typing import no_type_check

from gdp.features.move_tally import Tally
from gdp.features.step_slack import NO_SLACK, sent
from gdp.runtime.numba_options import compile_kernel

_NEAR = 0.003
"""Of a step: slack over this is the exponent by which what is near-critical counts."""


@compile_kernel
@no_type_check
def look_at_moves(flow, step, candidates, scratch, out):
    """Fills the first columns of each row of `out` for one candidate; a candidate that changes nothing leaves its row as it is."""
    for row in range(len(candidates)):
        count = 0
        for op in range(len(step.device)):
            if candidates[row, op] != step.device[op]:
                scratch.moved[count] = op
                scratch.moves[op] = True
                count += 1
        if count:
            _begin(step, scratch)
            for number in range(count):
                op = scratch.moved[number]
                _leave(flow, step, candidates, row, scratch, op)
                _join(flow, step, candidates, row, scratch, op)
                _deliver(flow, step, candidates, row, scratch, op)
            _finish(step, candidates, row, scratch, count, out)
        for number in range(count):
            scratch.moves[scratch.moved[number]] = False


@compile_kernel
@no_type_check
def _begin(step, scratch):
    for number in range(len(scratch.tally)):
        scratch.tally[number] = 0.0
    for number in (Tally.OWN_LATENESS, Tally.CONSUMER_LATENESS, Tally.PUSH, Tally.CHANNEL_PUSH):
        scratch.tally[number] = -step.step_s
    scratch.tally[Tally.FIRST_START] = step.step_s
    scratch.tally[Tally.LEAST_SLACK] = step.step_s
    for device in range(len(step.busy_s)):
        scratch.last_end_s[device] = 0.0
        scratch.shift_s[device] = 0.0
        scratch.shifted_from[device] = step.first_on_device[device]


@compile_kernel
@no_type_check
def _leave(flow, step, candidates, row, scratch, op):
    """Counts what the op leaves behind: its work, the transfers of its inputs, and the next op on its old device."""
    tally, here, devices = scratch.tally, step.device[op], len(step.busy_s)
    work_s, slack_s = step.end_s[op] - step.start_s[op], step.latest_s[op] - step.end_s[op]
    tally[Tally.WORK_BEFORE] += work_s
    tally[Tally.NEAR_CRITICAL_WORK] += work_s * math.exp(-max(slack_s, 0.0) / (_NEAR * step.step_s))
    tally[Tally.LEAST_SLACK] = min(tally[Tally.LEAST_SLACK], slack_s)
    tally[Tally.FIRST_START] = min(tally[Tally.FIRST_START], step.start_s[op])
    tally[Tally.LAST_END] = max(tally[Tally.LAST_END], step.end_s[op])
    if slack_s <= NO_SLACK * step.step_s:
        tally[Tally.CRITICAL_WORK_BEFORE] += work_s
    for edge in range(flow.in_start[op], flow.in_start[op + 1]):
        tensor = flow.in_tensor[edge]
        transfer = sent(step, tensor * devices + here)
        if transfer >= 0 and scratch.seen_leaving[transfer] != row:
            scratch.seen_leaving[transfer] = row
            if candidates[row, flow.tensor_producer[tensor]] == here or not _will_be_used(flow, candidates, row, tensor, here):
                _spare(step, scratch, row, transfer)
    place = step.place[op] + 1
    while place < step.first_on_device[here + 1] and scratch.moves[step.on_device[place]]:
        place += 1
    if place < step.first_on_device[here + 1]:
        after = step.on_device[place]
        if step.latest_s[after] - step.end_s[after] <= NO_SLACK * step.step_s:
            relief_s = min(work_s, step.start_s[after] - step.ready_s[after])
            if relief_s > 0:
                tally[Tally.DEVICE_RELIEF_SUM] += relief_s
                tally[Tally.DEVICE_RELIEF] = max(tally[Tally.DEVICE_RELIEF], relief_s)


@compile_kernel
@no_type_check
def _will_be_used(flow, candidates, row, tensor, device):
    """Whether a consumer of the tensor stays on the device, or comes there."""
    for use in range(flow.use_start[tensor], flow.use_start[tensor + 1]):
        if candidates[row, flow.use_consumer[use]] == device:
            return True
    return False


@compile_kernel
@no_type_check
def _spare(step, scratch, row, transfer):
    """Counts a transfer that goes away, once, and what that leaves free on its channel."""
    if scratch.spared[transfer] == row:
        return
    scratch.spared[transfer] = row
    tally, channel = scratch.tally, step.sent_channel[transfer]
    seconds, slack_s = (
        step.sent_end_s[transfer] - step.sent_start_s[transfer],
        step.sent_latest_s[transfer] - step.sent_end_s[transfer],
    )
    tally[Tally.SPARED] += seconds
    tally[Tally.LOG_SPARED] += 1
    tally[Tally.NEAR_CRITICAL_SPARED] += seconds * math.exp(-slack_s / (_NEAR * step.step_s))
    if slack_s <= NO_SLACK * step.step_s:
        tally[Tally.CRITICAL_SPARED] += seconds
    place = step.sent_place[transfer] + 1
    if channel >= 0 and place < step.first_on_channel[channel + 1]:
        after = step.on_channel[place]
        if step.sent_latest_s[after] - step.sent_end_s[after] <= NO_SLACK * step.step_s:
            relief_s = max(0.0, min(seconds, step.sent_start_s[after] - step.sent_ready_s[after]))
            tally[Tally.CHANNEL_RELIEF_SUM] += relief_s
            tally[Tally.CHANNEL_RELIEF] = max(tally[Tally.CHANNEL_RELIEF], relief_s)


@compile_kernel
@no_type_check
def _is_new(step, scratch, row, tensor, device):
    """Whether a tensor goes to a device where it did not go before, and nobody asked before."""
    bit = 1 << device
    if scratch.made_in[tensor] != row:
        scratch.made_in[tensor] = row
        scratch.made[tensor] = 0
    if scratch.made[tensor] & bit or sent(step, tensor * len(step.busy_s) + device) >= 0:
        return False
    scratch.made[tensor] |= bit
    return True


@compile_kernel
@no_type_check
def _send(step, scratch, channel, ready_s, seconds, counts):
    """When a new transfer would end; what it pushes back is counted if it `counts`."""
    if channel < 0:
        return ready_s + seconds
    begin = step.first_on_channel[channel]
    low, high = begin, step.first_on_channel[channel + 1]
    stop = high
    while low < high:
        middle = (low + high) // 2
        if step.sent_start_s[step.on_channel[middle]] < ready_s:
            low = middle + 1
        else:
            high = middle
    start_s = ready_s
    if low > begin:
        start_s = max(start_s, step.sent_end_s[step.on_channel[low - 1]])
    if low < stop and counts:
        after = step.on_channel[low]
        push_s = start_s + seconds - step.sent_start_s[after] - (step.sent_latest_s[after] - step.sent_end_s[after])
        scratch.tally[Tally.CHANNEL_PUSH] = max(scratch.tally[Tally.CHANNEL_PUSH], push_s)
        scratch.tally[Tally.CHANNEL_PUSH_SUM] += max(push_s, 0.0)
    return start_s + seconds


@compile_kernel
@no_type_check
def _join(flow, step, candidates, row, scratch, op):
    """Puts the op on its new device, and says when it would end there."""
    tally, there, devices = scratch.tally, candidates[row, op], len(step.busy_s)
    work_s, slack_s = flow.time[op, there], step.latest_s[op] - step.end_s[op]
    before_s = step.end_s[op] - step.start_s[op]
    tally[Tally.WORK_AFTER] += work_s
    tally[Tally.LOAD_SHIFT] += before_s * (step.busy_s[there] - step.busy_s[step.device[op]]) / step.step_s
    if slack_s <= NO_SLACK * step.step_s:
        tally[Tally.CRITICAL_WORK_AFTER] += work_s
    arrival_s = 0.0
    for edge in range(flow.in_start[op], flow.in_start[op + 1]):
        tensor = flow.in_tensor[edge]
        producer = flow.tensor_producer[tensor]
        at_s = scratch.new_end_s[producer] if scratch.moves[producer] else step.end_s[producer]
        if candidates[row, producer] != there:
            transfer = -1 if scratch.moves[producer] else sent(step, tensor * devices + there)
            if transfer >= 0:
                at_s = step.sent_end_s[transfer]
            else:
                at = candidates[row, producer]
                seconds = flow.latency[at, there] + flow.tensor_bytes[tensor] * flow.time_per_byte[at, there]
                new = _is_new(step, scratch, row, tensor, there)
                at_s = _send(step, scratch, flow.channel[at, there], at_s, seconds, new)
                if new:
                    tally[Tally.MADE] += seconds
                    tally[Tally.LOG_MADE] += 1
                    slack_there_s = step.latest_s[op] - before_s - at_s
                    tally[Tally.NEAR_CRITICAL_MADE] += seconds * math.exp(-max(slack_there_s, 0.0) / (_NEAR * step.step_s))
                    if at_s > step.start_s[op] and slack_s < seconds:
                        tally[Tally.URGENT_MADE] += seconds
        arrival_s = max(arrival_s, at_s)
    end_s = _free_from(step, scratch, there, max(arrival_s, scratch.last_end_s[there])) + work_s
    scratch.new_end_s[op] = scratch.last_end_s[there] = end_s
    _push(step, scratch, there, end_s)
    lateness_s = end_s - step.latest_s[op]
    tally[Tally.OWN_LATENESS] = max(tally[Tally.OWN_LATENESS], lateness_s)
    tally[Tally.OWN_LATENESS_SUM] += max(lateness_s, 0.0)


@compile_kernel
@no_type_check
def _free_from(step, scratch, device, ready_s):
    """When the device would be free for something that is ready, what was pushed back there counted; `shifted_from` becomes what runs next."""
    begin, stop, shifted = step.first_on_device[device], step.first_on_device[device + 1], scratch.shifted_from[device]
    low, high = begin, stop
    while low < high:
        middle = (low + high) // 2
        start_s = step.start_s[step.on_device[middle]] + (scratch.shift_s[device] if middle >= shifted else 0.0)
        if start_s < ready_s:
            low = middle + 1
        else:
            high = middle
    if low > shifted and scratch.shift_s[device] > 0:
        last = low - 1
        between_s = step.start_s[step.on_device[last]] - step.start_s[step.on_device[shifted]]
        idle_s = between_s - (step.worked_s[last] - step.worked_s[shifted])
        scratch.shift_s[device] = max(0.0, scratch.shift_s[device] - idle_s)
    if low > begin:
        running = step.on_device[low - 1]
        if not scratch.moves[running]:
            ready_s = max(ready_s, step.end_s[running] + (scratch.shift_s[device] if low > shifted else 0.0))
    while low < stop and scratch.moves[step.on_device[low]]:
        low += 1
    scratch.shifted_from[device] = low
    return ready_s


@compile_kernel
@no_type_check
def _push(step, scratch, device, end_s):
    """Counts by how much what runs next on the device is pushed back by a moved op that ends then."""
    place = scratch.shifted_from[device]
    if place >= step.first_on_device[device + 1]:
        return
    after = step.on_device[place]
    delay_s = end_s - step.start_s[after]
    scratch.shift_s[device] = max(delay_s, scratch.shift_s[device]) if delay_s > 0 else 0.0
    push_s = scratch.shift_s[device] - (step.latest_s[after] - step.end_s[after])
    scratch.tally[Tally.PUSH] = max(scratch.tally[Tally.PUSH], push_s)
    scratch.tally[Tally.PUSH_SUM] += max(push_s, 0.0)


@compile_kernel
@no_type_check
def _deliver(flow, step, candidates, row, scratch, op):
    """Sees when what the op makes would reach the consumers that stay."""
    tally, here, there, devices = scratch.tally, step.device[op], candidates[row, op], len(step.busy_s)
    end_s = scratch.new_end_s[op]
    for output in range(flow.out_start[op], flow.out_start[op + 1]):
        tensor = flow.out_tensor[output]
        if flow.use_start[tensor] < flow.use_start[tensor + 1]:
            spared = sent(step, tensor * devices + there)
            if spared >= 0:
                _spare(step, scratch, row, spared)
        for use in range(flow.use_start[tensor], flow.use_start[tensor + 1]):
            consumer = flow.use_consumer[use]
            at = step.device[consumer]
            if scratch.moves[consumer]:
                continue
            transfer = -1 if at == here else sent(step, tensor * devices + at)
            latest_s = step.latest_s[consumer] - (step.end_s[consumer] - step.start_s[consumer])
            before_s = step.end_s[op] if transfer < 0 else step.sent_end_s[transfer]
            after_s = end_s
            if at != there:
                seconds = flow.latency[there, at] + flow.tensor_bytes[tensor] * flow.time_per_byte[there, at]
                after_s = end_s + seconds
                if at == here:
                    new = _is_new(step, scratch, row, tensor, at)
                    after_s = _send(step, scratch, flow.channel[there, at], end_s, seconds, new)
                    if new:
                        tally[Tally.MADE] += seconds
                        tally[Tally.LOG_MADE] += 1
                        tally[Tally.NEAR_CRITICAL_MADE] += seconds * math.exp(-max(latest_s - after_s, 0.0) / (_NEAR * step.step_s))
            tally[Tally.CONSUMER_LATENESS] = max(tally[Tally.CONSUMER_LATENESS], after_s - latest_s)
            tally[Tally.CONSUMER_LATENESS_SUM] += max(after_s - latest_s, 0.0)
            if before_s >= latest_s - NO_SLACK * step.step_s:
                shift_s = after_s - before_s
                if tally[Tally.LOG_CRITICAL_ARRIVALS] == 0 or shift_s < tally[Tally.LEAST_ARRIVAL_SHIFT]:
                    tally[Tally.LEAST_ARRIVAL_SHIFT] = shift_s
                if tally[Tally.LOG_CRITICAL_ARRIVALS] == 0 or shift_s > tally[Tally.MOST_ARRIVAL_SHIFT]:
                    tally[Tally.MOST_ARRIVAL_SHIFT] = shift_s
                tally[Tally.ARRIVAL_SHIFT_SUM] += shift_s
                tally[Tally.LOG_CRITICAL_ARRIVALS] += 1


@compile_kernel
@no_type_check
def _finish(step, candidates, row, scratch, count, out):
    """Writes a row: differences first, then everything on its scale."""
    tally, first = scratch.tally, scratch.moved[0]
    tally[Tally.MORE_WORK] = tally[Tally.WORK_AFTER] - tally[Tally.WORK_BEFORE]
    tally[Tally.SPAN] = tally[Tally.LAST_END] - tally[Tally.FIRST_START]
    tally[Tally.NET_SPARED] = tally[Tally.SPARED] - tally[Tally.MADE]
    tally[Tally.NET_CRITICAL_SPARED] = tally[Tally.CRITICAL_SPARED] - tally[Tally.URGENT_MADE]
    tally[Tally.NET_NEAR_CRITICAL_SPARED] = tally[Tally.NEAR_CRITICAL_SPARED] - tally[Tally.NEAR_CRITICAL_MADE]
    tally[Tally.WORST] = max(
        max(tally[Tally.CONSUMER_LATENESS], tally[Tally.OWN_LATENESS]), max(tally[Tally.PUSH], tally[Tally.CHANNEL_PUSH])
    )
    tally[Tally.WORST_SUM] = tally[Tally.CONSUMER_LATENESS_SUM] + tally[Tally.PUSH_SUM] + tally[Tally.CHANNEL_PUSH_SUM]
    tally[Tally.NET_CHANNEL_RELIEF] = tally[Tally.CHANNEL_RELIEF_SUM] - tally[Tally.CHANNEL_PUSH_SUM]
    load_shift = tally[Tally.LOAD_SHIFT] / max(tally[Tally.WORK_BEFORE], 1e-300)
    for number in range(len(tally)):
        share = tally[number] / step.step_s
        out[row, number] = math.copysign(0.2 * math.log1p(1e5 * abs(share)), share)
    out[row, Tally.LOG_OPS] = math.log1p(count) / 5
    out[row, Tally.LOG_MADE] = math.log1p(tally[Tally.LOG_MADE]) / 3
    out[row, Tally.LOG_SPARED] = math.log1p(tally[Tally.LOG_SPARED]) / 3
    out[row, Tally.LOG_CRITICAL_ARRIVALS] = math.log1p(tally[Tally.LOG_CRITICAL_ARRIVALS]) / 2
    out[row, Tally.FIRST_START] = tally[Tally.FIRST_START] / step.step_s
    out[row, Tally.LAST_END] = tally[Tally.LAST_END] / step.step_s
    out[row, Tally.LOAD_SHIFT] = load_shift
    out[row, Tally.FIRST_LOAD_SHIFT] = (step.busy_s[candidates[row, first]] - step.busy_s[step.device[first]]) / step.step_s
