"""How much later everything in a step could end without making it longer, in the order in which it ran: the tails of a job shop's schedule (Taillard, EJOR 47, 1990).

An op may end as late as whatever follows it lets it: the ops that need its outputs, the transfers of them, and the next op on its device; a transfer, as the ops that
wait for it and the next transfer on its channel let it. What has no slack lies on a critical path.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.features.op_flow import OpFlow
from gdp.measurement import Timeline
from gdp.runtime.numba_options import compile_kernel

NO_SLACK = 1e-9
"""Of a step: less slack than this is none."""


class Step(NamedTuple):
    """One step, in seconds. Transfers are those of its timeline, which ascend by tensor, then destination."""

    device: Int64[np.ndarray, " ops"]
    start_s: Float64[np.ndarray, " ops"]
    end_s: Float64[np.ndarray, " ops"]
    latest_s: Float64[np.ndarray, " ops"]
    """the latest end that does not make the step longer."""
    ready_s: Float64[np.ndarray, " ops"]
    """when the last input is there."""
    on_device: Int64[np.ndarray, " ops"]
    """the ops of each device in the order in which they ran, device by device."""
    place: Int64[np.ndarray, " ops"]
    """of each op among them."""
    first_on_device: Int64[np.ndarray, " devices_and_end"]
    worked_s: Float64[np.ndarray, " ops_and_end"]
    """work before each place."""
    busy_s: Float64[np.ndarray, " devices"]
    sent_key: Int64[np.ndarray, " transfers"]
    """tensor x number of devices + destination, ascending."""
    sent_ready_s: Float64[np.ndarray, " transfers"]
    """when the tensor was there."""
    sent_start_s: Float64[np.ndarray, " transfers"]
    sent_end_s: Float64[np.ndarray, " transfers"]
    sent_latest_s: Float64[np.ndarray, " transfers"]
    sent_channel: Int64[np.ndarray, " transfers"]
    on_channel: Int64[np.ndarray, " transfers"]
    """the transfers of each channel in the order in which they ran, after those that wait for no channel."""
    sent_place: Int64[np.ndarray, " transfers"]
    first_on_channel: Int64[np.ndarray, " channels_and_end"]
    step_s: float


def step_of(flow: OpFlow, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> Step:
    """The step of a placement; `flow` is in seconds, `timeline` what the simulator says."""
    num_ops, num_devices = flow.time.shape
    start_s, end_s = timeline.op_start_s, timeline.op_end_s
    channel = flow.channel[timeline.transfer_source, timeline.transfer_destination].astype(np.int64)
    on_device = np.lexsort((end_s, start_s, device))
    on_channel = np.lexsort((timeline.transfer_end_s, timeline.transfer_start_s, channel))
    producer = flow.tensor_producer[timeline.transfer_tensor]
    step_s = max(end_s.max(initial=0.0), timeline.transfer_end_s.max(initial=0.0))
    step = Step(
        device=device.astype(np.int64),
        start_s=start_s,
        end_s=end_s,
        latest_s=np.full(num_ops, step_s),
        ready_s=np.zeros(num_ops),
        on_device=on_device,
        place=_places(on_device),
        first_on_device=np.searchsorted(device[on_device], np.arange(num_devices + 1)),
        worked_s=np.concatenate([[0.0], np.cumsum((end_s - start_s)[on_device])]),
        busy_s=np.bincount(device, weights=end_s - start_s, minlength=num_devices),
        sent_key=timeline.transfer_tensor.astype(np.int64) * num_devices + timeline.transfer_destination,
        sent_ready_s=end_s[producer],
        sent_start_s=timeline.transfer_start_s,
        sent_end_s=timeline.transfer_end_s,
        sent_latest_s=np.full(len(channel), step_s),
        sent_channel=channel,
        on_channel=on_channel,
        sent_place=_places(on_channel),
        first_on_channel=np.searchsorted(channel[on_channel], np.arange(flow.num_channels + 1)),
        step_s=float(step_s),
    )
    moment_s = np.concatenate([end_s, timeline.transfer_end_s])
    after_inputs = np.concatenate(
        [2 * np.arange(num_ops), 2 * producer.astype(np.int64) + 1]
    )  # where nothing takes time, moments do not tell
    _arrivals(flow, step)
    _latest_ends(flow, step, producer, np.lexsort((after_inputs, moment_s))[::-1].copy())
    return step


def _places(order: Int64[np.ndarray, " things"]) -> Int64[np.ndarray, " things"]:
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return place


@compile_kernel
@no_type_check
def sent(step, key):
    """The number of the transfer of a tensor to a device; -1 when there is none."""
    low, high = 0, len(step.sent_key)
    while low < high:
        middle = (low + high) // 2
        if step.sent_key[middle] < key:
            low = middle + 1
        else:
            high = middle
    return low if low < len(step.sent_key) and step.sent_key[low] == key else -1


@compile_kernel
@no_type_check
def _arrivals(flow, step):
    devices = len(step.busy_s)
    for op in range(len(step.device)):
        for edge in range(flow.in_start[op], flow.in_start[op + 1]):
            tensor = flow.in_tensor[edge]
            producer = flow.tensor_producer[tensor]
            at_s = step.end_s[producer]
            if step.device[producer] != step.device[op]:
                at_s = step.sent_end_s[sent(step, tensor * devices + step.device[op])]
            step.ready_s[op] = max(step.ready_s[op], at_s)


@compile_kernel
@no_type_check
def _latest_ends(flow, step, sender, latest_first):
    """Things to look at are ops, and after them transfers; what follows another is looked at before it."""
    num_ops, devices = len(step.device), len(step.busy_s)
    for number in range(len(latest_first)):
        if latest_first[number] < num_ops:
            op = latest_first[number]
            place = step.place[op]
            if place + 1 < step.first_on_device[step.device[op] + 1]:
                after = step.on_device[place + 1]
                step.latest_s[op] = min(step.latest_s[op], step.latest_s[after] - (step.end_s[after] - step.start_s[after]))
            latest_start_s = step.latest_s[op] - (step.end_s[op] - step.start_s[op])
            for edge in range(flow.in_start[op], flow.in_start[op + 1]):
                tensor = flow.in_tensor[edge]
                producer = flow.tensor_producer[tensor]
                if step.device[producer] == step.device[op]:
                    step.latest_s[producer] = min(step.latest_s[producer], latest_start_s)
                else:
                    transfer = sent(step, tensor * devices + step.device[op])
                    step.sent_latest_s[transfer] = min(step.sent_latest_s[transfer], latest_start_s)
        else:
            transfer = latest_first[number] - num_ops
            channel, place = step.sent_channel[transfer], step.sent_place[transfer]
            if channel >= 0 and place + 1 < step.first_on_channel[channel + 1]:
                after = step.on_channel[place + 1]
                seconds = step.sent_end_s[after] - step.sent_start_s[after]
                step.sent_latest_s[transfer] = min(step.sent_latest_s[transfer], step.sent_latest_s[after] - seconds)
            latest_start_s = step.sent_latest_s[transfer] - (step.sent_end_s[transfer] - step.sent_start_s[transfer])
            step.latest_s[sender[transfer]] = min(step.latest_s[sender[transfer]], latest_start_s)
