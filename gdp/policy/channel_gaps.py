"""When channels are busy: transfers take the earliest gap that is long enough."""

import typing
from typing import NamedTuple

import numba
import numpy as np
from jaxtyping import Float64, Int64


class ChannelGaps(NamedTuple):
    """The busy intervals of every channel, apart from each other and in the order of time; what lies between two is a gap."""

    begin: Float64[np.ndarray, "channels most"]
    end: Float64[np.ndarray, "channels most"]
    num_intervals: Int64[np.ndarray, " channels"]


@numba.njit(cache=True, nogil=True)
@typing.no_type_check
def idle_channels(num_channels, most):
    """Channels on which at most `most` transfers will run."""
    return ChannelGaps(np.empty((num_channels, most + 1)), np.empty((num_channels, most + 1)), np.zeros(num_channels, np.int64))


@numba.njit(cache=True, nogil=True)
@typing.no_type_check
def earliest_start(gaps, channel, ready, duration):
    """The earliest time from `ready` on at which a transfer of `duration` fits on the channel; a channel below 0 is never busy."""
    if channel < 0:
        return ready
    number = np.searchsorted(gaps.end[channel, : gaps.num_intervals[channel]], ready, side="right")
    while number < gaps.num_intervals[channel] and gaps.begin[channel, number] < ready + duration:
        ready = gaps.end[channel, number]
        number += 1
    return ready


@numba.njit(cache=True, nogil=True)
@typing.no_type_check
def occupy(gaps, channel, start, duration, shortest):
    """Makes the channel busy in a gap that `earliest_start` found. Gaps that would be left with no room for `shortest` are closed: no transfer fits them."""
    if channel < 0 or duration <= 0:
        return
    begin, end, count = gaps.begin[channel], gaps.end[channel], gaps.num_intervals[channel]
    number = np.searchsorted(end[:count], start, side="right")
    stop = start + duration
    joins_before = number > 0 and start - end[number - 1] < shortest
    joins_after = number < count and begin[number] - stop < shortest
    if joins_before and joins_after:
        end[number - 1] = end[number]
        for later in range(number, count - 1):
            begin[later], end[later] = begin[later + 1], end[later + 1]
        gaps.num_intervals[channel] -= 1
    elif joins_before:
        end[number - 1] = stop
    elif joins_after:
        begin[number] = start
    else:
        for later in range(count, number, -1):
            begin[later], end[later] = begin[later - 1], end[later - 1]
        begin[number], end[number] = start, stop
        gaps.num_intervals[channel] += 1
