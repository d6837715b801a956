"""Numbers as people read them, by hand."""

import math

import pytest

from gdp.report.quantity import data_size, ratio, seconds, share, ticks, work


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.2345, "1.23 s"),
        (0.9996, "1.00 s"),
        (0.0123456, "12.3 ms"),
        (0.4567, "457 ms"),
        (0.0996, "99.6 ms"),
        (4.2e-5, "42.0 µs"),
        (3e-9, "3.00 ns"),
        (0.0, "0 s"),
        (12345.0, "12,345 s"),
        (math.inf, "–"),
    ],
)
def test_seconds(value: float, written: str) -> None:
    assert seconds(value) == written


def test_other_units() -> None:
    assert data_size(2**34) == "16.0 GiB"
    assert data_size(96) == "96 B"
    assert work(2.5e12) == "2.50 TFLOP"
    assert ratio(1.6182) == "1.62×"
    assert ratio(math.inf) == "–"
    assert share(0.001) == "<1 %"
    assert share(0.0) == "0 %"
    assert share(0.426) == "43 %"


@pytest.mark.parametrize(("top", "expected"), [(1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0.09, [0, 0.02, 0.04, 0.06, 0.08]), (0.0, [0.0])])
def test_ticks_are_round(top: float, expected: list[float]) -> None:
    assert ticks(top, at_most=5) == pytest.approx(expected)
