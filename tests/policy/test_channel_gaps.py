"""Gaps of a channel, against every moment tried one by one."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.policy.channel_gaps import earliest_start, idle_channels, occupy

TRANSFERS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 8)), min_size=1, max_size=40)


@settings(deadline=None)
@given(TRANSFERS)
def test_a_transfer_takes_the_earliest_gap_that_is_long_enough(transfers):
    """Times are whole here, so a set of busy moments is the oracle."""
    gaps = idle_channels(1, len(transfers))
    busy: set[int] = set()
    for ready, duration in transfers:
        start = ready
        while any(moment in busy for moment in range(start, start + duration)):
            start += 1
        assert earliest_start(gaps, 0, float(ready), float(duration)) == start
        occupy(gaps, 0, float(start), float(duration), 1e-3)
        busy.update(range(start, start + duration))
    count = gaps.num_intervals[0]
    intervals = [(gaps.begin[0, number], gaps.end[0, number]) for number in range(count)]
    assert {moment for begin, end in intervals for moment in range(int(begin), int(end))} == busy
    assert all(before[1] < after[0] for before, after in zip(intervals, intervals[1:], strict=False))


@settings(deadline=None)
@given(TRANSFERS, st.integers(2, 5))
def test_gaps_too_short_for_any_transfer_are_closed(transfers, shortest):
    """What is left of the channel serves every transfer of at least that length as before."""
    exact, closed = idle_channels(1, len(transfers)), idle_channels(1, len(transfers))
    for ready, duration in transfers:
        lasting = float(max(duration, shortest))
        start = earliest_start(exact, 0, float(ready), lasting)
        assert earliest_start(closed, 0, float(ready), lasting) == start
        occupy(exact, 0, start, lasting, 1e-9)
        occupy(closed, 0, start, lasting, float(shortest))
    assert closed.num_intervals[0] <= exact.num_intervals[0]


def test_without_a_channel_nothing_waits():
    gaps = idle_channels(0, 0)
    assert earliest_start(gaps, -1, 3.0, 5.0) == 3.0
    occupy(gaps, -1, 3.0, 5.0, 1.0)
    assert np.array_equal(gaps.num_intervals, [])
