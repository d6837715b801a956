"""Every placement that was considered: predicted and measured side by side, as a table whose cells hold bars with intervals."""

import math

import numpy as np

from gdp.candidate import Candidate
from gdp.measurement import Measurement, Objective, Status
from gdp.report.data import Interval, Section, interval
from gdp.report.markup import Markup, percent, shorten, tag, text
from gdp.report.quantity import count, data_size, ratio, seconds

_STATUS = {
    Status.OUT_OF_MEMORY: "out of memory",
    Status.INVALID: "not valid",
    Status.FAILED: "failed",
    Status.TIMED_OUT: "timed out",
}


def candidates_chart(section: Section) -> Markup:
    """One row per candidate, the fastest first, those that cannot run last."""
    measured = any(candidate.measured is not None for candidate in section.candidates)
    rows = sorted(section.candidates, key=lambda candidate: rank(candidate, section.objective))
    reference = section.candidate(section.reference)
    highs = [
        bounds.high
        for candidate in rows
        for bounds in (interval(candidate.predicted, section.objective), interval(candidate.measured, section.objective))
        if bounds is not None and math.isfinite(bounds.high)
    ]
    top = (max(highs, default=1.0) or 1.0) * 1.02
    head = ["placement", "step time" if section.objective == "step_time" else "time per pipelined step", "predicted"]
    head += ["measured [95 %]"] if measured else []
    head += ["vs one device", "transfers", "peak memory", "evaluations"]
    cells = [_row(candidate, section, reference, top, measured) for candidate in rows]
    header = tag("tr", {}, *(tag("th", {"scope": "col", "class": "chart" if i == 1 else ""}, text(name)) for i, name in enumerate(head)))
    legend = [tag("li", {}, tag("i", {"class": "key predicted"}), text("predicted by the simulator"))]
    if measured:
        legend.append(tag("li", {}, tag("i", {"class": "key measured"}), text("measured on the devices, with 95 % interval")))
    return tag(
        "div",
        {},
        tag("table", {"class": "candidates"}, tag("thead", {}, header), tag("tbody", {}, *cells)),
        tag("ul", {"class": "legend"}, *legend),
    )


def rank(candidate: Candidate, objective: Objective) -> tuple[bool, float]:
    """The order of candidates. Measured ones are ordered by what was measured; a failed measurement overrules a good prediction."""
    decisive = candidate.measured if candidate.measured is not None else candidate.predicted
    return decisive.status != Status.OK, decisive.objective_s(objective)


def _row(candidate: Candidate, section: Section, reference: Candidate, top: float, with_measured: bool) -> Markup:
    predicted, measured = interval(candidate.predicted, section.objective), interval(candidate.measured, section.objective)
    chosen = candidate.name == section.best
    badge = tag("span", {"class": "badge"}, text("chosen")) if chosen else Markup("")
    name = tag("th", {"scope": "row"}, tag("span", {"title": candidate.name}, text(shorten(candidate.name))), badge)
    cells = [tag("td", {"class": "chart"}, _bars(candidate, predicted, measured, top, with_measured))]
    cells.append(_cell("predicted", seconds(predicted.value) if predicted else _STATUS[candidate.predicted.status]))
    if with_measured:
        cells.append(_cell("measured [95 %]", _with_bounds(candidate.measured, measured)))
    cells.append(_cell("vs one device", _gain(candidate, reference, section)))
    cells.append(
        _cell(
            "transfers",
            f"{count(candidate.predicted.num_transfers)} · {data_size(candidate.predicted.transferred_bytes)}" if predicted else "–",
        )
    )
    shown = candidate.measured if measured and candidate.measured and candidate.measured.peak_memory_bytes.any() else candidate.predicted
    cells.append(_cell("peak memory", data_size(int(np.max(shown.peak_memory_bytes))) if predicted else "–"))
    evaluations = candidate.placement.origin.evaluations
    cells.append(_cell("evaluations", count(evaluations) if evaluations else "–"))
    return tag("tr", {"class": "chosen" if chosen else ""}, name, *cells)


def _cell(label: str, value: str) -> Markup:
    return tag("td", {"data-label": label}, tag("span", {}, text(value)))


def _with_bounds(measurement: Measurement | None, bounds: Interval | None) -> str:
    if measurement is None:
        return "–"
    if bounds is None:
        return _STATUS[measurement.status]
    if bounds.low == bounds.high:
        return seconds(bounds.value)
    if not math.isfinite(bounds.high):
        return f"{seconds(bounds.value)}, too noisy for an interval"
    value, unit = seconds(bounds.value).rsplit(" ", 1)
    scale = bounds.value / float(value.replace(",", ""))
    digits = len(value.partition(".")[2])
    return f"{value} [{bounds.low / scale:.{digits}f}, {bounds.high / scale:.{digits}f}] {unit}"


def _gain(candidate: Candidate, reference: Candidate, section: Section) -> str:
    """Predicted is compared with predicted, measured with measured."""
    both_measured = candidate.measured is not None and reference.measured is not None
    ours = interval(candidate.measured if both_measured else candidate.predicted, section.objective)
    theirs = interval(reference.measured if both_measured else reference.predicted, section.objective)
    return ratio(theirs.value / ours.value) if ours and theirs and ours.value > 0 else "–"


def _bars(candidate: Candidate, predicted: Interval | None, measured: Interval | None, top: float, with_measured: bool) -> Markup:
    failed = next((m for m in (candidate.measured, candidate.predicted) if m is not None and m.status != Status.OK), None)
    if failed is not None and predicted is None and measured is None:
        return tag("span", {"class": "bad"}, text(failed.detail or _STATUS[failed.status]))
    marks = []
    if predicted is not None:
        marks.append(
            _bar(
                "predicted",
                f"predicted {seconds(predicted.value)}",
                2 if with_measured else 5,
                7 if with_measured else 12,
                predicted.value / top,
            )
        )
    if measured is not None:
        low, high = measured.low / top, min(measured.high / top, 1.0)
        marks.append(
            _bar(
                "measured",
                f"measured {seconds(measured.value)} [{seconds(measured.low)}, {seconds(measured.high)}]",
                11,
                9,
                measured.value / top,
            )
        )
        marks.append(tag("line", {"class": "whisker", "x1": percent(low), "x2": percent(high), "y1": 15.5, "y2": 15.5}))
        marks += [tag("line", {"class": "whisker", "x1": percent(end), "x2": percent(end), "y1": 12.5, "y2": 18.5}) for end in (low, high)]
    elif failed is not None:
        marks.append(tag("text", {"class": "bad", "x": 2, "y": 20}, text(f"measured: {_STATUS[failed.status]}")))
    label = f"{shorten(candidate.name)}: {seconds(measured.value if measured else predicted.value if predicted else math.inf)}"
    return tag("svg", {"width": "100%", "height": 22, "role": "img", "aria-label": label}, *marks)


def _bar(style: str, title: str, y: int, height: int, fraction: float) -> Markup:
    return tag(
        "rect", {"class": style, "x": 0, "y": y, "width": percent(fraction), "height": height, "rx": 1.5}, tag("title", {}, text(title))
    )
