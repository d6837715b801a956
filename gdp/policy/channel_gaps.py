"""When channels are busy: transfers take the earliest gap that is long enough."""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int64

from gdp.runtime.numba_options import compile_kernel


class ChannelGaps(NamedTuple):
    """The busy intervals of every channel, apart from each other and in the order of time; what lies between two is a gap."""

    begin: Float64[np.ndarray, "channels most"]
    end: Float64[np.ndarray, "channels most"]
    num_intervals: Int64[np.ndarray, " channels"]


def idle_channels(num_channels: int, most: int) -> ChannelGaps:
    """Channels on which at most `most` transfers will run."""
    return ChannelGaps(np.empty((num_channels, most + 1)), np.empty((num_channels, most + 1)), np.zeros(num_channels, np.int64))


@compile_kernel
@no_type_check
def earliest_start(gaps, channel, ready, duration):
    """The earliest time from `ready` on at which a transfer of `duration` fits on the channel; a channel below 0 is never busy."""
    if channel < 0:
        return ready
    number, count = _first_after(gaps, channel, ready), gaps.num_intervals[channel]
    while number < count and gaps.begin[channel, number] < ready + duration:
        ready = gaps.end[channel, number]
        number += 1
    return ready


@compile_kernel
@no_type_check
def occupy(gaps, channel, start, duration, shortest):
    """Makes the channel busy in a gap that `earliest_start` found. Gaps that would be left with no room for `shortest` are closed: no transfer fits them."""
    if channel < 0 or duration <= 0:
        return
    number, count = _first_after(gaps, channel, start), gaps.num_intervals[channel]
    stop = start + duration
    joins_before = number > 0 and start - gaps.end[channel, number - 1] < shortest
    joins_after = number < count and gaps.begin[channel, number] - stop < shortest
    if joins_before and joins_after:
        gaps.end[channel, number - 1] = gaps.end[channel, number]
        for later in range(number, count - 1):
            gaps.begin[channel, later] = gaps.begin[channel, later + 1]
            gaps.end[channel, later] = gaps.end[channel, later + 1]
        gaps.num_intervals[channel] -= 1
    elif joins_before:
        gaps.end[channel, number - 1] = stop
    elif joins_after:
        gaps.begin[channel, number] = start
    else:
        for later in range(count, number, -1):
            gaps.begin[channel, later] = gaps.begin[channel, later - 1]
            gaps.end[channel, later] = gaps.end[channel, later - 1]
        gaps.begin[channel, number] = start
        gaps.end[channel, number] = stop
        gaps.num_intervals[channel] += 1


@compile_kernel
@no_type_check
def _first_after(gaps, channel, moment):
    """The first interval that ends after a moment; most are asked for near the end."""
    high = gaps.num_intervals[channel]
    low = 0
    if high > 0 and gaps.end[channel, high - 1] <= moment:
        return high
    while low < high:
        middle = (low + high) >> 1
        if gaps.end[channel, middle] <= moment:
            low = middle + 1
        else:
            high = middle
    return low
