"""Merging short events: by hand, and what it must keep."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gdp.report.marks import merge


def test_long_events_stand_alone_and_short_neighbours_are_one() -> None:
    start = np.array([0.0, 10.0, 10.5, 11.0, 20.0])
    end = np.array([5.0, 10.4, 10.9, 11.3, 20.2])
    marks = merge(np.arange(5), start, end, pixel_s=1.0)
    assert [(m.start_s, m.end_s, m.num_events) for m in marks] == [(0.0, 5.0, 1), (10.0, 11.3, 3), (20.0, 20.2, 1)]
    assert (marks[1].first, marks[1].last) == (1, 3)


@given(st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), max_size=60), st.floats(0.01, 5))
def test_no_event_and_no_second_is_lost_and_none_grows_beyond_three_pixels(gaps: list[tuple[float, float]], pixel_s: float) -> None:
    moments = np.cumsum(np.array(gaps, np.float64).reshape(-1))
    start, end = moments[0::2], moments[1::2]
    marks = merge(np.arange(len(start)), start, end, pixel_s=pixel_s)
    assert sum(m.num_events for m in marks) == int((end > start).sum())
    assert abs(sum(m.busy_s for m in marks) - float((end - start).sum())) < 1e-9
    assert all(a.end_s <= b.start_s for a, b in zip(marks, marks[1:], strict=False))
    assert all(m.end_s - m.start_s <= 3 * pixel_s for m in marks if m.num_events > 1)
