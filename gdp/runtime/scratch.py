"""The memory that the event kernel works in: made once for a batch, overwritten by each placement."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int8, Int32

from gdp.runtime.plan import OP, Plan

BLOCK_BITS = 3
"""The ends of what is running stand in blocks of two to this power."""

_QUEUE = [("head", np.int32), ("tail", np.int32), ("root", np.int32)]

DEVICE = np.dtype(
    [
        ("memory", np.int64),  # bytes in use
        ("peak", np.int64),
        ("logged", np.int64),  # bytes in use by the last entry of the log
        ("busy_s", np.float64),
        ("last_s", np.float64),  # when the last op was put into its queue
        ("last", np.int32),  # that op
        *_QUEUE,  # its queue lies in `queue` from head to tail
        ("running", np.int32),
    ],
    align=True,
)

CHANNEL = np.dtype([("occupied_s", np.float64), *_QUEUE, ("running", np.int32)], align=True)

TRANSFER = np.dtype(
    [
        ("seconds", np.float64),
        ("key", np.float64),  # when it was requested; without a channel, when it ends
        ("left", np.int32),
        ("right", np.int32),
        ("hold", np.int32),  # its tensor at the source
        ("first", np.int32),  # its consumers, in `receivers`
        ("stop", np.int32),
        ("channel", np.int32),
        ("source", np.int16),
        ("destination", np.int16),
    ],
    align=True,
)
"""A tensor on its way to a device. Transfers are numbered by producer, destination and tensor: of one moment, the lower number goes first."""

HOLD = np.dtype([("bytes", np.int64), ("uses", np.int32), ("tensor", np.int32)], align=True)
"""A tensor or a copy that is kept until the last of its users is done."""


class Scratch(NamedTuple):
    """See the records above. Where a number of edges bounds a length, every edge adds at most one entry."""

    ops: np.ndarray
    """`[ops + 1]` records of `plan.OP`."""
    device_of: Int8[np.ndarray, " ops"]
    devices: np.ndarray
    """`[devices]` records of `DEVICE`."""
    channels: np.ndarray
    """`[channels]` records of `CHANNEL`."""
    transfers: np.ndarray
    """`[edges]` records of `TRANSFER`."""
    receivers: Int32[np.ndarray, " edges_and_one"]
    """the consumers of each op's tensors: those beside it, then those of each transfer. One more is written before it is known whether it counts."""
    shared: Int32[np.ndarray, " edges_and_one"]
    """the holds of each op's inputs that it shares."""
    holds: np.ndarray
    """`[2 * edges + 1]` records of `HOLD`; one is written before it is known whether it counts."""
    queue: Int32[np.ndarray, " ops_and_one"]
    """the ops of each device in the order in which they became ready; in program order, by number."""
    starting: Int32[np.ndarray, " edges"]
    """the transfers that start in this round."""
    touched: Int32[np.ndarray, " devices_and_edges"]
    """the devices that are to be looked at in this round."""
    touched_channel: Int32[np.ndarray, " channels_and_edges"]
    grouped: Int32[np.ndarray, " edges"]
    """the edges that leave one op, by destination."""
    begin: Int32[np.ndarray, " devices_and_one"]
    """where the edges to each device begin while they are grouped."""
    hold_of_tensor: Int32[np.ndarray, " outputs"]
    """of one op."""
    end: Float64[np.ndarray, " leaves_of_whole_blocks"]
    """when each device, then each channel, then the first of the transfers without a channel, ends; infinite where nothing runs, and up to the end of the last block."""
    least: Float64[np.ndarray, " blocks"]
    """the least end of each block."""
    soonest: Int32[np.ndarray, " blocks"]
    """the leaf whose end that is."""


_KEPT_BYTES = 2**29
_idle: list[tuple[Plan, Scratch]] = []
_idle_lock = Lock()


@contextmanager
def lent_scratch(plan: Plan) -> Iterator[Scratch]:
    """Scratch memory for placements of the plan's graph, for one thread at a time.

    What comes back is kept for the next, the latest up to `_KEPT_BYTES` in all: the system hands out fresh memory page by page, which takes longer than a simulation uses it.
    """
    with _idle_lock:
        place = next((place for place, (of, _) in enumerate(_idle) if of is plan), None)
        scratch = None if place is None else _idle.pop(place)[1]
    scratch = scratch or _new_scratch(plan)
    try:
        yield scratch
    finally:
        with _idle_lock:
            _idle.insert(0, (plan, scratch))
            total = np.cumsum([sum(array.nbytes for array in kept) for _, kept in _idle])
            del _idle[int(np.searchsorted(total, _KEPT_BYTES, side="right")) :]


def _new_scratch(plan: Plan) -> Scratch:
    num_ops, num_devices = plan.op_s.shape
    num_edges = len(plan.edges)
    num_leaves = num_devices + plan.num_channels + 1
    num_blocks = ((num_leaves - 1) >> BLOCK_BITS) + 1
    return Scratch(
        ops=_aligned(num_ops + 1, OP),
        device_of=np.empty(num_ops, np.int8),
        devices=np.zeros(num_devices, DEVICE),
        channels=np.zeros(plan.num_channels, CHANNEL),
        transfers=np.empty(num_edges, TRANSFER),
        receivers=np.empty(num_edges + 1, np.int32),
        shared=np.empty(num_edges + 1, np.int32),
        holds=np.empty(2 * num_edges + 1, HOLD),
        queue=np.empty(num_ops + 1, np.int32),
        starting=np.empty(num_edges, np.int32),
        touched=np.empty(num_devices + num_edges, np.int32),
        touched_channel=np.empty(plan.num_channels + num_edges, np.int32),
        grouped=np.empty(max(num_edges, 1), np.int32),
        begin=np.empty(num_devices + 1, np.int32),
        hold_of_tensor=np.empty(max(plan.most_tensors, 1), np.int32),
        end=np.empty(num_blocks << BLOCK_BITS),
        least=np.empty(num_blocks),
        soonest=np.empty(num_blocks, np.int32),
    )


def _aligned(count: int, record: np.dtype, *, line_bytes: int = 64) -> np.ndarray:
    """`[count]` records, none of which lies in more lines of cache than it must."""
    memory = np.empty(count * record.itemsize + line_bytes, np.uint8)
    skipped = -memory.ctypes.data % line_bytes
    return memory[skipped : skipped + count * record.itemsize].view(record)
