"""Best so far against evaluations, with the simple methods as horizontal lines."""

import math
from collections.abc import Callable

import numpy as np

from gdp.report.data import Curve, Section
from gdp.report.markup import Markup, disclosure, number, percent, shorten, table, tag, text
from gdp.report.quantity import count, seconds, ticks

HEIGHT_PX = 280
LABEL_PX = 15
MAX_POINTS = 400


def learning_chart(section: Section) -> Markup:
    """The chart and the table behind it; needs at least one curve."""
    finite = [float(v) for curve in section.curves for v in curve.best_s if math.isfinite(v)]
    finite += [level.seconds for level in section.levels if math.isfinite(level.seconds)]
    if not finite:
        return tag("p", {"class": "hint"}, text("No placement that was tried can run: there is no curve to draw."))
    low, high = min(finite), max(finite)
    samples = np.concatenate([curve.mean_sampled_s[np.isfinite(curve.mean_sampled_s)] for curve in section.curves])
    if len(samples):
        high = max(high, min(float(np.quantile(samples, 0.9)), 2 * high))
    margin = 0.08 * (high - low) or 0.1 * high or 1.0  # a step of no time has an axis, too
    bottom, top = max(0.0, low - margin), high + margin
    last = max(int(curve.evaluations[-1]) for curve in section.curves if len(curve.evaluations))

    def y(value: float) -> float:
        return HEIGHT_PX * (top - value) / (top - bottom)

    grid: list[Markup] = []
    for value in _between(bottom, top):
        grid.append(tag("line", {"class": "grid", "x1": 0, "x2": "100%", "y1": y(value), "y2": y(value)}))
        grid.append(tag("text", {"class": "tick end", "x": -8, "y": y(value) + 4}, text(seconds(value))))
    for i, value in enumerate(ticks(float(last), at_most=6)):
        grid.append(
            tag(
                "text",
                {"class": "tick" if i % 2 == 0 else "tick odd", "x": percent(value / last), "y": HEIGHT_PX + 16},
                text(count(int(value))),
            )
        )
    levels = [
        tag(
            "line",
            {"class": "level", "x1": 0, "x2": "100%", "y1": y(level.seconds), "y2": y(level.seconds)},
            tag("title", {}, text(f"{level.name}: {seconds(level.seconds)}")),
        )
        for level in section.levels
        if math.isfinite(level.seconds)
    ]
    paths = []
    ends = [(y(level.seconds), f"{seconds(level.seconds)} {level.name}", "") for level in section.levels if math.isfinite(level.seconds)]
    for index, curve in enumerate(section.curves):
        style = f"c{index % 8}"
        paths.append(tag("path", {"class": f"mean {style}", "d": _line(curve.evaluations, curve.mean_sampled_s, last, y, steps=False)}))
        best = tag("title", {}, text(f"{curve.name}: best so far"))
        paths.append(tag("path", {"class": f"best {style}", "d": _line(curve.evaluations, curve.best_s, last, y, steps=True)}, best))
        if len(curve.best_s) and math.isfinite(curve.best_s[-1]):
            ends.append((y(float(curve.best_s[-1])), f"{seconds(float(curve.best_s[-1]))} {curve.name}", style))
    scaled = tag(
        "svg",
        {"width": "100%", "height": HEIGHT_PX, "viewBox": f"0 0 1000 {HEIGHT_PX}", "preserveAspectRatio": "none", "class": "clip"},
        *paths,
    )
    plot = tag(
        "svg",
        {"width": "100%", "height": HEIGHT_PX + 22, "role": "img", "aria-label": "best step time so far against evaluations"},
        *grid,
        *levels,
        scaled,
    )
    labels = [
        tag("div", {"class": f"level-name {style}", "style": f"top:{number(at)}px", "title": name}, text(shorten(name)))
        for at, name, style in _spread(ends)
    ]
    legend = tag(
        "ul",
        {"class": "legend"},
        tag("li", {}, tag("i", {"class": "key line"}), text("best so far")),
        tag("li", {}, tag("i", {"class": "key line thin"}), text("mean of the placements just sampled")),
        tag("li", {}, tag("i", {"class": "key line dashed"}), text("simple methods")),
    )
    return tag(
        "div",
        {},
        tag("div", {"class": "curve"}, plot, tag("div", {"class": "ends"}, *labels)),
        tag("p", {"class": "axis-name"}, text("evaluations")),
        legend,
        disclosure(
            "Table",
            *(_table(curve) for curve in section.curves),
            table(("simple method", "reaches"), [(level.name, seconds(level.seconds)) for level in section.levels]),
        ),
    )


def _between(bottom: float, top: float) -> list[float]:
    """Round values inside the range, a few."""
    steps = ticks(top - bottom, at_most=5)
    step = steps[1] if len(steps) > 1 else top - bottom
    first = math.ceil(bottom / step)
    return [step * i for i in range(first, int(top / step + 1e-9) + 1)]


def _line(evaluations: np.ndarray, values: np.ndarray, last: int, y: Callable[[float], float], *, steps: bool) -> str:
    """A path over the finite values; they hold until the next one where `steps`."""
    kept = np.flatnonzero(np.isfinite(values))
    if len(kept) > MAX_POINTS:
        kept = kept[np.unique(np.linspace(0, len(kept) - 1, MAX_POINTS).astype(np.int64))]
    path = ""
    for index in kept.tolist():
        x, height = 1000 * float(evaluations[index]) / last, y(float(values[index]))
        if not path:
            path = f"M{x:.1f} {height:.1f}"
        else:
            path += f"H{x:.1f}V{height:.1f}" if steps else f"L{x:.1f} {height:.1f}"
    return path


def _spread(ends: list[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Labels at their heights, moved apart so that none covers another."""
    placed: list[tuple[float, str, str]] = []
    at = -math.inf
    for wanted, name, style in sorted(ends):
        at = max(wanted, at + LABEL_PX)
        placed.append((at, name, style))
    overflow = placed[-1][0] - HEIGHT_PX if placed else 0.0
    limit = float(HEIGHT_PX + LABEL_PX)
    moved: list[tuple[float, str, str]] = []
    for height, name, style in reversed(placed):
        limit = min(height, limit - LABEL_PX) if overflow > 0 else height
        moved.append((limit, name, style))
    return moved[::-1]


def _table(curve: Curve) -> Markup:
    """At most twenty rows, always the last."""
    rows = np.unique(np.linspace(0, len(curve.evaluations) - 1, min(20, len(curve.evaluations))).astype(np.int64)).tolist()
    return table(
        (f"{curve.name}: evaluations", "best so far", "mean sampled"),
        [(count(int(curve.evaluations[i])), seconds(float(curve.best_s[i])), seconds(float(curve.mean_sampled_s[i]))) for i in rows],
    )
