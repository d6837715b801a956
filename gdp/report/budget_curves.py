"""Best so far against evaluations spent, as SVG that stands alone: one panel for a mean over cells, or a grid with one panel a cell.

Both axes are logarithmic: a search gains by factors. A curve begins where its method first has a placement that runs.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float64

from gdp.report.markup import Markup, join, number, shorten, tag, text

COLOURS = ("#0068a8", "#c97a00", "#00876a", "#bf5b93", "#6b57b8", "#c4480a", "#3a8fc8", "#77770f")
_INK, _SOFT, _GRID = "#15191f", "#545c68", "#dde1e6"
_FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"
_LABEL_PX = 14


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class BudgetCurve:
    """One method."""

    name: str
    best: Float64[np.ndarray, " evaluations"]
    """over the best time that any method found; not finite where there is none yet."""
    low: Float64[np.ndarray, " evaluations"]
    high: Float64[np.ndarray, " evaluations"]
    """the band over seeds; equal to `best` where there is one seed."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Level:
    """A method that does not search, or a bound, as a horizontal line."""

    name: str
    value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Panel:
    """One drawing."""

    title: str
    curves: Sequence[BudgetCurve]
    """in the order of colours, the same in all panels."""
    levels: Sequence[Level]


def budget_chart(panel: Panel, evaluations: Sequence[int]) -> str:
    """One large panel with names at the ends of its curves."""
    width, height, left, top, right = 640.0, 320.0, 56.0, 34.0, 210.0
    drawn = _panel(panel, evaluations, width=width, height=height)
    ends = [(curve.best[-1], curve.name, COLOURS[i % len(COLOURS)]) for i, curve in enumerate(panel.curves) if np.isfinite(curve.best[-1])]
    ends += [(level.value, level.name, _SOFT) for level in panel.levels if math.isfinite(level.value)]
    y = _scale(panel, height)
    labels = [
        tag("text", {"x": width + 8, "y": at + 4, "fill": colour}, text(f"{value:.3f} {shorten(name)}"))
        for at, (value, name, colour) in zip(_apart([y(value) for value, _, _ in sorted(ends)], height), sorted(ends), strict=True)
    ]
    return _document(width + left + right, height + top + 44, [_at(left, top, drawn, *labels)])


def budget_grid(panels: Sequence[Panel], evaluations: Sequence[int], *, columns: int) -> str:
    """Small panels, row by row, with one legend above."""
    width, height, left, top = 230.0, 120.0, 46.0, 24.0
    step_x, step_y = width + left + 16, height + top + 30
    names = list(dict.fromkeys(curve.name for panel in panels for curve in panel.curves))
    legend, x = [], float(left)
    for i, name in enumerate(names):
        legend.append(tag("line", {"x1": x, "x2": x + 18, "y1": 14, "y2": 14, "stroke": COLOURS[i % len(COLOURS)], "stroke-width": 2}))
        legend.append(tag("text", {"x": x + 23, "y": 18, "fill": _INK}, text(name)))
        x += 40 + 7 * len(name)
    cells = [
        _at(left + (i % columns) * step_x, 40 + top + (i // columns) * step_y, _panel(panel, evaluations, width=width, height=height))
        for i, panel in enumerate(panels)
    ]
    rows = -(-len(panels) // columns)
    return _document(max(columns * step_x, x), 50.0 + rows * step_y, [*legend, *cells])


def _panel(panel: Panel, evaluations: Sequence[int], *, width: float, height: float) -> Markup:
    y = _scale(panel, height)
    last = max(math.log(evaluations[-1]), 1e-9)

    def x(count: int) -> float:
        return width * math.log(count) / last

    parts = [tag("text", {"x": 0, "y": -8, "fill": _INK, "font-weight": 600}, text(shorten(panel.title)))]
    bottom, top = _limits(panel)
    for value in _round_values(bottom, top):
        parts.append(tag("line", {"x1": 0, "x2": width, "y1": y(value), "y2": y(value), "stroke": _GRID}))
        parts.append(tag("text", {"x": -6, "y": y(value) + 4, "text-anchor": "end", "fill": _SOFT}, text(f"{value:g}")))
    for power in range(int(math.log10(evaluations[-1])) + 1):
        parts.append(tag("text", {"x": x(10**power), "y": height + 15, "text-anchor": "middle", "fill": _SOFT}, text(f"{10**power:,}")))
    for level in panel.levels:
        if bottom <= level.value <= top:
            line: dict[str, str | float] = {
                "x1": 0,
                "x2": width,
                "y1": y(level.value),
                "y2": y(level.value),
                "stroke": _SOFT,
                "stroke-dasharray": "4 3",
            }
            parts.append(tag("line", line, tag("title", {}, text(f"{level.name}: {level.value:.3f}"))))
    for i, curve in enumerate(panel.curves):
        colour = COLOURS[i % len(COLOURS)]
        places = [x(count) for count in evaluations]
        parts.append(tag("path", {"d": _band(places, curve, y), "fill": colour, "fill-opacity": 0.15, "stroke": "none"}))
        path: dict[str, str | float] = {"d": _steps(places, curve.best, y), "fill": "none", "stroke": colour, "stroke-width": 1.8}
        parts.append(tag("path", path, tag("title", {}, text(curve.name))))
    return join(parts)


def _limits(panel: Panel) -> tuple[float, float]:
    """Curves decide the range; of their beginnings, at most three times the best is shown."""
    found = [float(value) for curve in panel.curves for value in (*curve.best, *curve.low) if np.isfinite(value)]
    if not found:
        return 0.9, 1.1
    low = min(found)
    high = min(max(found), 3 * low)
    return low / 1.03, max(high, low * 1.05) * 1.03


def _scale(panel: Panel, height: float) -> Callable[[float], float]:
    bottom, top = (math.log(value) for value in _limits(panel))

    def y(value: float) -> float:
        share = (math.log(value) - bottom) / (top - bottom)
        return height * (1 - min(max(share, 0.0), 1.0))

    return y


def _round_values(bottom: float, top: float) -> list[float]:
    """A few round values inside the range."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0):
        first, last = math.ceil(bottom / step), int(top / step)
        if last - first < 6:
            return [round(step * i, 2) for i in range(first, last + 1)]
    return [round(bottom, 1), round(top, 1)]


def _steps(places: Sequence[float], values: np.ndarray, y: Callable[[float], float]) -> str:
    """Level until the next value; a point where nothing changes is left out."""
    path, before = "", math.nan
    for place, value in zip(places, values.tolist(), strict=True):
        if math.isfinite(value) and value != before:
            path += f"H{place:.1f}V{y(value):.1f}" if path else f"M{place:.1f} {y(value):.1f}"
            before = value
    return f"{path}H{places[-1]:.1f}" if path else ""


def _band(places: Sequence[float], curve: BudgetCurve, y: Callable[[float], float]) -> str:
    """Between the seeds' lowest and highest, where both are known and differ."""
    known = [i for i in range(len(places)) if np.isfinite(curve.low[i]) and np.isfinite(curve.high[i])]
    if not known or np.array_equal(curve.low[known], curve.high[known]):
        return ""
    there = [f"{places[i]:.1f} {y(float(curve.low[i])):.1f}" for i in known]
    back = [f"{places[i]:.1f} {y(float(curve.high[i])):.1f}" for i in reversed(known)]
    return "M" + "L".join([*there, *back]) + "Z"


def _apart(heights: Sequence[float], height: float) -> list[float]:
    """Labels from the lowest on the drawing upwards, moved apart so that none covers another."""
    moved, limit = [], height + _LABEL_PX
    for wanted in heights:
        limit = min(wanted, limit - _LABEL_PX)
        moved.append(limit)
    return moved


def _at(x: float, y: float, *children: Markup) -> Markup:
    return tag("g", {"transform": f"translate({number(x)} {number(y)})"}, *children)


def _document(width: float, height: float, children: Sequence[Markup]) -> str:
    size = {"width": number(width), "height": number(height), "viewBox": f"0 0 {number(width)} {number(height)}"}
    page = tag("rect", {"x": 0, "y": 0, "width": "100%", "height": "100%", "fill": "#ffffff"})
    return tag("svg", {"xmlns": "http://www.w3.org/2000/svg", **size, "role": "img", "style": f"font: {_FONT}"}, page, *children) + "\n"
