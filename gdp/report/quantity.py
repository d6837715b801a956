"""Numbers as people read them: three significant digits and a unit."""

import math


def seconds(value: float | int) -> str:
    """`1.24 s`, `12.4 ms`, `124 µs`; a dash for a time that is not finite."""
    if not math.isfinite(value):
        return "–"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= 0.9995 * scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{_three_digits(value / 1e-9)} ns" if value else "0 s"


def data_size(value: float | int) -> str:
    """`3.20 GiB`, `412 MiB`, `96 B`."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= 0.9995 * scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{value:.0f} B"


def work(flops: float | int) -> str:
    """`1.24 TFLOP`."""
    for unit, scale in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if abs(flops) >= 0.9995 * scale:
            return f"{_three_digits(flops / scale)} {unit}"
    return f"{flops:,.0f} FLOP"


def count(value: int) -> str:
    return f"{value:,}"


def ratio(value: float | int) -> str:
    """`1.62×`; a dash where there is none."""
    return f"{_three_digits(value)}×" if math.isfinite(value) else "–"


def share(value: float | int) -> str:
    """A fraction as whole per cent; what is there but rounds to nothing is `<1 %`."""
    return "<1 %" if 0 < value < 0.005 else f"{100 * value:.0f} %"


def ticks(top: float, *, at_most: int) -> list[float]:
    """Round values from 0 to at most `top`, 1, 2 or 5 times a power of ten apart."""
    if not 0 < top < math.inf:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(top / at_most))
    step = next(power * factor for factor in (1, 2, 5, 10) if top / (power * factor) <= at_most)
    return [step * i for i in range(int(top / step + 1e-9) + 1)]


def _three_digits(value: float | int) -> str:
    if abs(value) >= 999.5:
        return f"{value:,.0f}"
    places = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{places}f}"
