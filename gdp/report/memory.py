"""Memory in use over one step, per device, against its capacity."""

import numpy as np
from jaxtyping import Float64, Int64

from gdp.cluster import Cluster
from gdp.measurement import Measurement, Timeline
from gdp.report.markup import Markup, shorten, tag, text
from gdp.report.quantity import data_size, share
from gdp.report.timeline import device_class

COLUMNS = 400
HEIGHT_PX = 44
FULL_SCALE_FROM = 0.4
"""Below this share of the capacity the picture would be empty: the scale then ends above the peak, and the labels alone speak of the capacity."""


def memory_chart(cluster: Cluster, measurement: Measurement, timeline: Timeline | None, *, span_s: float, peak_bytes: int) -> Markup:
    """A row per device in use: bytes over time where the timeline has them, else a bar of the peak. `peak_bytes`, the highest of the charts compared, sets the scale."""
    peaks = measurement.peak_memory_bytes.astype(np.float64)
    capacity = cluster.memory_bytes.astype(np.float64)
    to_capacity = bool((peak_bytes >= FULL_SCALE_FROM * capacity).any())
    top_of_all = max(peak_bytes * 1.15, 1.0)
    rows = []
    for number, where in enumerate(cluster.devices):
        if not peaks[number]:
            continue
        top = max(float(capacity[number]), float(peaks[number]), 1.0) if to_capacity else top_of_all
        shape = (
            _area(timeline, number, top, span_s)
            if timeline is not None and len(timeline.memory_time_s[number])
            else _bar(float(peaks[number]) / top)
        )
        peak, room = data_size(float(peaks[number])), data_size(float(capacity[number]))
        in_short = f"{peak} of {room}" if capacity[number] else peak
        title = f"{where.name}: peak {in_short}"
        if capacity[number]:
            title += f", {share(float(peaks[number] / capacity[number]))}"
        over = peaks[number] > capacity[number]
        drawing = tag(
            "svg",
            {
                "width": "100%",
                "height": HEIGHT_PX,
                "viewBox": f"0 0 1000 {HEIGHT_PX}",
                "preserveAspectRatio": "none",
                "role": "img",
                "aria-label": title,
            },
            tag("path", {"class": f"area {device_class(number)}", "d": shape}, tag("title", {}, text(title))),
            tag("line", {"class": "capacity" if to_capacity else "grid", "x1": 0, "x2": 1000, "y1": 0.5, "y2": 0.5}),
        )
        label = tag(
            "div",
            {"class": "lane-label"},
            tag("b", {}, text(shorten(where.name))),
            tag("span", {"class": "bad"} if over else {}, text(in_short)),
        )
        rows.append(tag("div", {"class": "lane memory"}, label, drawing))
    scale = (
        "The line on top is the capacity." if to_capacity else f"All use is far below capacity: the line on top is {data_size(top_of_all)}."
    )
    return tag("div", {}, tag("div", {"class": "lanes"}, *rows), tag("p", {"class": "hint"}, text(scale)))


def _bar(fraction: float) -> str:
    width = 1000 * min(fraction, 1.0)
    return f"M0 {HEIGHT_PX}V{HEIGHT_PX // 3}H{width:.1f}V{HEIGHT_PX}Z"


def _area(timeline: Timeline, device: int, top: float, span_s: float) -> str:
    """A step line of the highest use within each of `COLUMNS` equal parts of the step."""
    time, use = timeline.memory_time_s[device], timeline.memory_bytes[device]
    end = min(float(timeline.op_end_s.max()), span_s)
    heights = _highest(time, use, np.linspace(0.0, end, COLUMNS + 1)) / top
    x = 1000 * np.linspace(0.0, end, COLUMNS + 1) / span_s
    path = [f"M0 {HEIGHT_PX}"]
    previous = -1.0
    for column, height in enumerate(heights.tolist()):
        y = HEIGHT_PX * (1 - min(height, 1.0))
        if y != previous:
            path.append(f"H{x[column]:.1f}V{y:.1f}")
            previous = y
    path.append(f"H{x[-1]:.1f}V{HEIGHT_PX}Z")
    return "".join(path)


def _highest(time: Float64[np.ndarray, " moments"], use: Int64[np.ndarray, " moments"], edges: Float64[np.ndarray, " edges"]) -> np.ndarray:
    """The highest use between each two neighbouring edges; `use[i]` holds from `time[i]` until the next moment."""
    highest = use[np.maximum(np.searchsorted(time, edges[:-1], side="right") - 1, 0)].astype(np.float64)
    inside = np.clip(np.searchsorted(edges, time, side="right") - 1, 0, len(highest) - 1)
    np.maximum.at(highest, inside, use.astype(np.float64))
    return highest
