"""The memory that the event kernel works in: made once for a batch, overwritten by each placement."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int8, Int32

from gdp.runtime.plan import Plan

BLOCK = 64
"""The ends of what is running stand in blocks of this many."""

_QUEUE = [("head", np.int32), ("tail", np.int32), ("root", np.int32)]

DEVICE = np.dtype(
    [
        ("memory", np.int64),  # bytes in use
        ("peak", np.int64),
        ("logged", np.int64),  # bytes in use by the last entry of the log
        ("busy_s", np.float64),
        *_QUEUE,  # of its ready ops
        ("next", np.int32),  # in program order
        ("running", np.int32),
        ("touched", np.int32),  # whether it is to be looked at in this round
    ],
    align=True,
)

CHANNEL = np.dtype([("occupied_s", np.float64), *_QUEUE, ("running", np.int32), ("touched", np.int32)], align=True)

TRANSFER = np.dtype(
    [
        ("key", np.float64),  # when it was requested; without a channel, when it ends
        ("bytes", np.int64),
        ("tie", np.int32),  # orders transfers by producer, destination, tensor
        ("left", np.int32),
        ("right", np.int32),
        ("hold", np.int32),  # what it shares its tensor at the source with
        ("first", np.int32),  # its consumers in `waiting`
        ("stop", np.int32),
        ("source", np.int32),
        ("destination", np.int32),
        ("tensor", np.int32),
    ],
    align=True,
)

HOLD = np.dtype([("bytes", np.int64), ("uses", np.int64)], align=True)
"""A tensor or a copy that several need: it goes when the last of them is done."""

LINK = np.dtype([("hold", np.int32), ("next", np.int32)], align=True)
"""One of the holds of an op's inputs."""


TALLY = np.dtype(
    [(name, np.int64) for name in ("waiting", "links", "holds", "starting", "touched_channels", "sent", "sent_bytes")], align=True
)
"""How many entries the lists of these names have so far."""


class Scratch(NamedTuple):
    """See the records above. Where a number of edges bounds a length, every edge adds at most one entry."""

    ops: np.ndarray
    """`[ops]` records of `plan.OP`."""
    device_of: Int8[np.ndarray, " ops"]
    devices: np.ndarray
    """`[devices]` records of `DEVICE`."""
    channels: np.ndarray
    """`[channels]` records of `CHANNEL`."""
    transfers: np.ndarray
    """`[edges]` records of `TRANSFER`, in the order of requests."""
    waiting: Int32[np.ndarray, " edges"]
    """the consumers of each transfer."""
    starting: Int32[np.ndarray, " edges"]
    """the transfers that start in this round."""
    touched: Int32[np.ndarray, " devices"]
    """the devices that are to be looked at in this round."""
    touched_channel: Int32[np.ndarray, " channels"]
    grouped: Int32[np.ndarray, " edges"]
    """the edges that leave one op, by destination."""
    begin: Int32[np.ndarray, " devices_and_one"]
    uses: Int32[np.ndarray, " outputs"]
    """how many need each tensor of one op on its device."""
    hold_of_tensor: Int32[np.ndarray, " outputs"]
    holds: np.ndarray
    """`[2 * edges]` records of `HOLD`."""
    links: np.ndarray
    """`[edges]` records of `LINK`."""
    end: Float64[np.ndarray, " leaves"]
    """when each device, then each channel, then the first of the transfers without a channel, ends; infinite where nothing runs."""
    least: Float64[np.ndarray, " blocks"]
    """the least end of each block."""
    tally: np.ndarray
    """one record of `TALLY`."""


def scratch_for(plan: Plan) -> Scratch:
    """Scratch memory for placements of the plan's graph."""
    num_ops, num_devices = plan.op_s.shape
    num_edges = len(plan.edges)
    num_blocks = (num_devices + plan.num_channels) // BLOCK + 1
    return Scratch(
        ops=np.empty_like(plan.ops),
        device_of=np.empty(num_ops, np.int8),
        devices=np.zeros(num_devices, DEVICE),
        channels=np.zeros(plan.num_channels, CHANNEL),
        transfers=np.empty(num_edges, TRANSFER),
        waiting=np.empty(num_edges + 1, np.int32),
        starting=np.empty(num_edges, np.int32),
        touched=np.empty(num_devices, np.int32),
        touched_channel=np.empty(plan.num_channels, np.int32),
        grouped=np.empty(max(num_edges, 1), np.int32),
        begin=np.empty(num_devices + 1, np.int32),
        uses=np.empty(plan.most_tensors, np.int32),
        hold_of_tensor=np.empty(plan.most_tensors, np.int32),
        holds=np.empty(2 * num_edges, HOLD),
        links=np.empty(num_edges, LINK),
        end=np.empty(num_blocks * BLOCK),
        least=np.empty(num_blocks),
        tally=np.zeros(1, TALLY),
    )
