"""Predicted against measured step times: how far the simulator can be trusted here."""

import numpy as np
from jaxtyping import Float64

from gdp.report.data import Section, interval
from gdp.report.markup import Markup, disclosure, percent, shorten, table, tag, text
from gdp.report.quantity import seconds, share, ticks

HEIGHT_PX = 280
BAND = 0.15
"""The shaded band: predictions within this share of what was measured."""


def pairs(section: Section) -> list[tuple[str, float, float]]:
    """Name, predicted and measured seconds of every placement that has both."""
    found = []
    for candidate in section.candidates:
        predicted, measured = interval(candidate.predicted, section.objective), interval(candidate.measured, section.objective)
        if predicted is not None and measured is not None:
            found.append((candidate.name, predicted.value, measured.value))
    return found + [(probe.name, probe.predicted_s, probe.measured_s) for probe in section.probes]


def rank_correlation(a: Float64[np.ndarray, " n"], b: Float64[np.ndarray, " n"]) -> float:
    """Spearman's: the correlation of the ranks, ties sharing their mean rank; NaN where one side does not vary."""
    ranks = [_ranks(values) for values in (a, b)]
    if any(np.ptp(values) == 0 for values in ranks):
        return float("nan")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def scatter_chart(points: list[tuple[str, float, float]]) -> Markup:
    """The chart, the agreement in one sentence, and the table; needs at least two points."""
    predicted = np.array([point[1] for point in points])
    measured = np.array([point[2] for point in points])
    top = 1.08 * float(max(predicted.max(), measured.max()))
    grid: list[Markup] = []
    for i, value in enumerate(ticks(top, at_most=5)):
        across, down = percent(value / top), HEIGHT_PX * (1 - value / top)
        grid.append(tag("line", {"class": "grid", "x1": 0, "x2": "100%", "y1": down, "y2": down}))
        grid.append(tag("line", {"class": "grid", "x1": across, "x2": across, "y1": 0, "y2": HEIGHT_PX}))
        grid.append(tag("text", {"class": "tick end", "x": -8, "y": down + 4}, text(seconds(value))))
        grid.append(tag("text", {"class": "tick" if i % 2 == 0 else "tick odd", "x": across, "y": HEIGHT_PX + 16}, text(seconds(value))))
    steep, flat = 1000 * (1 - BAND), HEIGHT_PX * (1 - 1 / (1 + BAND))
    band = f"M0 {HEIGHT_PX}L{steep:.1f} 0H1000V{flat:.1f}Z"
    scaled = tag(
        "svg",
        {"width": "100%", "height": HEIGHT_PX, "viewBox": f"0 0 1000 {HEIGHT_PX}", "preserveAspectRatio": "none"},
        tag("path", {"class": "band", "d": band}),
        tag("line", {"class": "equal", "x1": 0, "y1": HEIGHT_PX, "x2": 1000, "y2": 0}),
    )
    dots = [
        tag(
            "circle",
            {"class": "dot", "cx": percent(p / top), "cy": HEIGHT_PX * (1 - m / top), "r": 4.5},
            tag("title", {}, text(f"{shorten(name)}: predicted {seconds(p)}, measured {seconds(m)}")),
        )
        for name, p, m in points
    ]
    plot = tag(
        "svg",
        {"width": "100%", "height": HEIGHT_PX + 22, "role": "img", "aria-label": "predicted against measured step time"},
        *grid,
        scaled,
        *dots,
    )
    error = np.abs(predicted - measured) / measured
    sentence = f"{len(points)} placements: median error {share(float(np.median(error)))}, largest {share(float(error.max()))}"
    correlation = rank_correlation(predicted, measured)
    if len(points) > 2 and np.isfinite(correlation):
        sentence += f", rank correlation {correlation:.2f}"
    rows = [(name, seconds(p), seconds(m), f"{100 * (p / m - 1):+.0f} %") for name, p, m in sorted(points, key=lambda point: point[2])]
    return tag(
        "div",
        {},
        tag("p", {"class": "hint"}, text(sentence + ". The band is 15 % to either side of what was measured.")),
        tag("div", {"class": "curve square"}, plot),
        tag("p", {"class": "axis-name"}, text("predicted (across) · measured (up)")),
        disclosure("Table", table(("placement", "predicted", "measured", "error"), rows)),
    )


def _ranks(values: Float64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])
