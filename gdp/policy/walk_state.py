"""What the walk over a schedule knows so far: arrays that it changes in place."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from gdp.features.op_flow import OpFlow
from gdp.policy.channel_gaps import ChannelGaps, idle_channels
from gdp.policy.group_flow import GroupFlow
from gdp.policy.ready_heap import ReadyHeap, ready_heap


class WalkState(NamedTuple):
    """The schedule of one sample so far."""

    where: Int64[np.ndarray, " groups"]
    """-1 as long as a group is not decided."""
    missing: Int64[np.ndarray, " ops"]
    ready: Float64[np.ndarray, " ops"]
    arrival: Float64[np.ndarray, " ops"]
    """of the last input on the op's device; -1 before it is known."""
    available: Float64[np.ndarray, "tensors devices"]
    free: Float64[np.ndarray, " devices"]
    """when what has run so far ends."""
    first_waiting: Int64[np.ndarray, " devices"]
    """the op that waits for a transfer to the device, and was decided last; -1 for none."""
    next_waiting: Int64[np.ndarray, " ops"]
    previous_waiting: Int64[np.ndarray, " ops"]
    load: Float64[np.ndarray, " devices"]
    """of all groups decided."""
    coming: Float64[np.ndarray, " devices"]
    """of groups decided, what has not run yet."""
    params: Float64[np.ndarray, " devices"]
    live_bytes: Float64[np.ndarray, " devices"]
    """of tensors that were made or sent there, and are still needed anywhere."""
    uses: Int64[np.ndarray, " tensors"]
    """of each tensor by ops that have not run."""
    outputs: Float64[np.ndarray, " devices"]
    channels: ChannelGaps
    queue: ReadyHeap
    open: Bool[np.ndarray, " devices"]
    row: Float32[np.ndarray, "devices features"]
    """of the group that is being decided, and the rest of what it is decided by:"""
    here: Float64[np.ndarray, " devices"]
    there: Float64[np.ndarray, " devices"]
    transfer: Float64[np.ndarray, " devices"]
    ready_on: Float64[np.ndarray, " devices"]
    start: Float64[np.ndarray, " devices"]
    logit: Float32[np.ndarray, " devices"]


def walk_state(flow: OpFlow, groups: GroupFlow, *, num_features: int) -> WalkState:
    """Room for the schedule of one sample; `walk` begins every sample anew."""
    num_ops, devices = flow.time.shape
    return WalkState(
        where=np.empty(len(groups.time), np.int64),
        missing=np.empty(num_ops, np.int64),
        ready=np.empty(num_ops),
        arrival=np.empty(num_ops),
        available=np.empty((len(flow.tensor_bytes), devices)),
        free=np.empty(devices),
        first_waiting=np.empty(devices, np.int64),
        next_waiting=np.empty(num_ops, np.int64),
        previous_waiting=np.empty(num_ops, np.int64),
        load=np.empty(devices),
        coming=np.empty(devices),
        params=np.empty(devices),
        live_bytes=np.empty(devices),
        uses=np.empty(len(flow.tensor_bytes), np.int64),
        outputs=np.empty(devices),
        channels=idle_channels(flow.num_channels, len(flow.use_consumer)),
        queue=ready_heap(num_ops + 1),
        open=np.empty(devices, np.bool_),
        row=np.empty((devices, num_features), np.float32),
        here=np.empty(devices),
        there=np.empty(devices),
        transfer=np.empty(devices),
        ready_on=np.empty(devices),
        start=np.empty(devices),
        logit=np.empty(devices, np.float32),
    )
