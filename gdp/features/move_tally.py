"""What is counted of one change to a placement, and room to count it in."""

import enum
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64


class Tally(enum.IntEnum):
    """Seconds, but for logarithms of counts and differences of load.

    Work of the ops that move: before, after, without slack, weighted by slack; when it starts and ends; how much longer its new device is busy than its old one.
    Transfers that the change makes and spares, each once however many of the ops that move need it: all, those that matter now, those weighted by slack.
    By how much moved ops, and their tensors at consumers that stay, would be too late, and by how much they would push what runs next on their device or channel beyond its slack:
    the most (negative: what is left), and the sum of what is positive.
    How much later tensors would reach the consumers that wait for them now.
    How much earlier the next op without slack on an old device, and the next such transfer on a channel, could start.
    """

    LOG_OPS = 0
    WORK_BEFORE = 1
    WORK_AFTER = 2
    MORE_WORK = 3
    CRITICAL_WORK_BEFORE = 4
    CRITICAL_WORK_AFTER = 5
    NEAR_CRITICAL_WORK = 6
    FIRST_START = 7
    LAST_END = 8
    SPAN = 9
    LEAST_SLACK = 10
    LOAD_SHIFT = 11
    FIRST_LOAD_SHIFT = 12
    MADE = 13
    LOG_MADE = 14
    URGENT_MADE = 15
    NEAR_CRITICAL_MADE = 16
    SPARED = 17
    LOG_SPARED = 18
    CRITICAL_SPARED = 19
    NEAR_CRITICAL_SPARED = 20
    NET_SPARED = 21
    NET_CRITICAL_SPARED = 22
    NET_NEAR_CRITICAL_SPARED = 23
    OWN_LATENESS = 24
    OWN_LATENESS_SUM = 25
    CONSUMER_LATENESS = 26
    CONSUMER_LATENESS_SUM = 27
    PUSH = 28
    PUSH_SUM = 29
    CHANNEL_PUSH = 30
    CHANNEL_PUSH_SUM = 31
    WORST = 32
    WORST_SUM = 33
    LEAST_ARRIVAL_SHIFT = 34
    MOST_ARRIVAL_SHIFT = 35
    ARRIVAL_SHIFT_SUM = 36
    LOG_CRITICAL_ARRIVALS = 37
    DEVICE_RELIEF = 38
    DEVICE_RELIEF_SUM = 39
    CHANNEL_RELIEF = 40
    CHANNEL_RELIEF_SUM = 41
    NET_CHANNEL_RELIEF = 42


MOVE_TALLY = tuple(each.name.lower() for each in Tally)


class MoveScratch(NamedTuple):
    """Of the change that is being looked at."""

    moves: Bool[np.ndarray, " ops"]
    moved: Int64[np.ndarray, " ops"]
    """the ops that move, ascending."""
    new_end_s: Float64[np.ndarray, " ops"]
    last_end_s: Float64[np.ndarray, " devices"]
    """of the ops moved to each device."""
    shift_s: Float64[np.ndarray, " devices"]
    """by how much what runs on each device is pushed back, from `shifted_from` on."""
    shifted_from: Int64[np.ndarray, " devices"]
    seen_leaving: Int64[np.ndarray, " transfers"]
    """the change for which it was last asked whether the transfer goes away with its consumers; so the next three, too, need no clearing between changes."""
    spared: Int64[np.ndarray, " transfers"]
    """the change that last made the transfer needless."""
    made_in: Int64[np.ndarray, " tensors"]
    """the change that `made` is of."""
    made: Int64[np.ndarray, " tensors"]
    """a bit for every device to which the tensor would go anew."""
    tally: Float64[np.ndarray, " tally"]


def move_scratch(num_ops: int, num_devices: int, *, num_tensors: int, num_transfers: int) -> MoveScratch:
    """Room for changes of one placement of a graph; the transfers are those of its step."""
    return MoveScratch(
        moves=np.zeros(num_ops, np.bool_),
        moved=np.empty(num_ops, np.int64),
        new_end_s=np.empty(num_ops),
        last_end_s=np.empty(num_devices),
        shift_s=np.empty(num_devices),
        shifted_from=np.empty(num_devices, np.int64),
        seen_leaving=np.full(num_transfers, -1),
        spared=np.full(num_transfers, -1),
        made_in=np.full(num_tensors, -1),
        made=np.empty(num_tensors, np.int64),
        tally=np.empty(len(MOVE_TALLY)),
    )
