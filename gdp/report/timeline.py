"""One step as a chart: a lane per device, a lane per link, and under them the chain of events that sets the step time."""

import dataclasses

import numpy as np
from jaxtyping import Int32

from gdp.cluster import Cluster
from gdp.graph import Graph, Phase
from gdp.measurement import Measurement, Timeline
from gdp.report.chain import Chain, chain
from gdp.report.lanes import Lane, device_lanes, link_lanes
from gdp.report.marks import Mark, merge
from gdp.report.markup import Markup, disclosure, join, percent, shorten, table, tag, text
from gdp.report.quantity import count, data_size, seconds, share, ticks, work

MAX_MARKS = 3000
"""Drawn per timeline at most, so that a page of many ops stays light."""
LANE_PX, LINK_PX, CHAIN_PX = 30, 14, 3


def device_class(device: int) -> str:
    """The style class that carries a device's colour; the colours repeat after eight devices, the labels do not."""
    return f"d{device % 8}"


def timeline_chart(
    graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " ops"], measurement: Measurement, timeline: Timeline, *, span_s: float
) -> Markup:
    """The chart of one placement; `span_s` is the time at its right edge, shared by the charts that are to be compared."""
    critical = chain(graph, cluster, device, timeline)
    links, left_out = link_lanes(graph, cluster, timeline, critical)
    lanes = device_lanes(cluster, device, timeline, critical) + links
    step_s = float(timeline.op_end_s.max())
    pixel_s = span_s / 1200
    while True:
        merged = [merge(lane.event, lane.start_s, lane.end_s, pixel_s=pixel_s) for lane in lanes]
        chained = [_joined(lane, pixel_s) for lane in lanes]
        if sum(map(len, merged)) + sum(map(len, chained)) <= MAX_MARKS:
            break
        pixel_s *= 2
    rows = []
    for lane, marks, links_of_chain in zip(lanes, merged, chained, strict=True):
        if lane.is_link:
            drawn = [_transfer_mark(graph, cluster, timeline, mark, span_s) for mark in marks]
        else:
            drawn = [_op_mark(graph, device, mark, span_s) for mark in marks]
        rows.append(_row(lane, drawn, links_of_chain, step_s, span_s))
    idle = [
        where.name for number, where in enumerate(cluster.devices) if not (timeline.op_end_s > timeline.op_start_s)[device == number].any()
    ]
    notes = [f"Idle: {', '.join(map(shorten, idle))}."] if idle else []
    if left_out:
        notes.append(f"{len(left_out)} quieter links are not drawn: {seconds(sum(left_out))} of transfers in all.")
    return join(
        [
            tag("div", {"class": "lanes"}, *rows, _axis(step_s, span_s)),
            *(tag("p", {"class": "hint"}, text(note)) for note in notes),
            _legend(graph, critical),
            _tables(graph, cluster, device, measurement, timeline, critical),
        ]
    )


def _row(lane: Lane, drawn: list[Markup], chained: list[Mark], step_s: float, span_s: float) -> Markup:
    height = LINK_PX if lane.is_link else LANE_PX
    grid = [
        tag("line", {"class": "grid", "x1": percent(t / span_s), "x2": percent(t / span_s), "y1": 0, "y2": height + CHAIN_PX + 2})
        for t in ticks(span_s, at_most=8)
    ]
    underline = [
        tag(
            "rect",
            {
                "class": "chain",
                "x": percent(m.start_s / span_s),
                "width": percent((m.end_s - m.start_s) / span_s),
                "y": height + 1,
                "height": CHAIN_PX,
            },
        )
        for m in chained
    ]
    drawing = tag(
        "svg",
        {
            "width": "100%",
            "height": height + CHAIN_PX + 2,
            "role": "img",
            "aria-label": f"{lane.label}: {len(lane.event)} events, {lane.detail}",
        },
        *grid,
        tag(
            "line",
            {"class": "step-end", "x1": percent(step_s / span_s), "x2": percent(step_s / span_s), "y1": 0, "y2": height + CHAIN_PX + 2},
        ),
        tag("g", {"class": "marks"}, *drawn),
        *underline,
    )
    label = tag("div", {"class": "lane-label"}, tag("b", {}, text(shorten(lane.label))), tag("span", {}, text(lane.detail)))
    return tag("div", {"class": "lane link" if lane.is_link else "lane"}, label, drawing)


def _joined(lane: Lane, pixel_s: float) -> list[Mark]:
    """The lane's part of the chain, with touching events as one."""
    of_lane = np.isin(lane.event, lane.on_chain)
    spans = np.stack([lane.start_s[of_lane], lane.end_s[of_lane]], axis=1)
    marks: list[Mark] = []
    for start, end in sorted(spans.tolist()):
        if end <= start:
            continue
        if marks and start - marks[-1].end_s < pixel_s:
            marks[-1] = dataclasses.replace(marks[-1], end_s=max(end, marks[-1].end_s))
        else:
            marks.append(Mark(start_s=start, end_s=end, busy_s=end - start, first=0, last=0, num_events=1))
    return marks


def _op_mark(graph: Graph, device: Int32[np.ndarray, " ops"], mark: Mark, span_s: float) -> Markup:
    phase = Phase(int(graph.phase[mark.first])).name.lower()
    name = shorten(graph.name[mark.first])
    if mark.num_events == 1:
        title = f"{name} ({shorten(graph.op_type[mark.first])}): {seconds(mark.busy_s)} from {seconds(mark.start_s)}, {phase}"
    else:
        title = f"{count(mark.num_events)} short ops, {name} … {shorten(graph.name[mark.last])}: {seconds(mark.busy_s)} from {seconds(mark.start_s)}"
    return _rect(mark, f"{device_class(int(device[mark.first]))} {phase}", title, span_s, LANE_PX)


def _transfer_mark(graph: Graph, cluster: Cluster, timeline: Timeline, mark: Mark, span_s: float) -> Markup:
    source = int(timeline.transfer_source[mark.first])
    tensor = int(timeline.transfer_tensor[mark.first])
    if mark.num_events == 1:
        route = f"{cluster.devices[source].name} → {cluster.devices[int(timeline.transfer_destination[mark.first])].name}"
        size = data_size(int(graph.tensor_bytes[tensor]))
        title = f"output of {shorten(graph.name[int(graph.tensor_producer[tensor])])}, {size}, {route}: {seconds(mark.busy_s)} from {seconds(mark.start_s)}"
    else:
        title = f"{count(mark.num_events)} short transfers: {seconds(mark.busy_s)} from {seconds(mark.start_s)}"
    return _rect(mark, device_class(source), title, span_s, LINK_PX)


def _rect(mark: Mark, style: str, title: str, span_s: float, height: int) -> Markup:
    fraction = (mark.end_s - mark.start_s) / span_s
    wide = " w" if fraction > 1 / 150 else ""
    place: dict[str, str | float | int] = {"x": percent(mark.start_s / span_s), "width": percent(max(fraction, 1 / 2400)), "height": height}
    return tag("rect", {"class": style + wide, **place}, tag("title", {}, text(title)))


def _axis(step_s: float, span_s: float) -> Markup:
    labels = [_tick(step_s, span_s, "tick strong")]
    labels += [
        _tick(moment, span_s, "tick" if i % 2 == 0 and abs(moment - step_s) > 0.2 * span_s else "tick odd")
        for i, moment in enumerate(ticks(span_s, at_most=8))
        if abs(moment - step_s) > 0.09 * span_s
    ]
    return tag(
        "div",
        {"class": "lane axis"},
        tag("div", {"class": "lane-label"}),
        tag("svg", {"width": "100%", "height": 16, "aria-hidden": "true"}, *labels),
    )


def _tick(moment: float, span_s: float, style: str) -> Markup:
    at = moment / span_s
    side = " start" if at < 0.04 else " end" if at > 0.94 else ""
    return tag("text", {"x": percent(at), "y": 12, "class": style + side}, text(seconds(moment)))


def _legend(graph: Graph, critical: Chain) -> Markup:
    total = critical.compute_s + critical.transfer_s + critical.idle_s
    phases = [phase for phase in Phase if (graph.phase[graph.works] == phase).any()]
    keys = (
        [tag("li", {}, tag("i", {"class": f"key d0 {phase.name.lower()}"}), text(phase.name.lower())) for phase in phases]
        if len(phases) > 1
        else []
    )
    keys.append(tag("li", {}, tag("i", {"class": "key chain"}), text("the chain that sets the step time")))
    parts = [f"{share(critical.compute_s / total)} computing", f"{share(critical.transfer_s / total)} moving tensors"] if total else []
    if total and critical.idle_s / total >= 0.005:
        parts.append(f"{share(critical.idle_s / total)} waiting")
    sentence = tag("p", {"class": "hint"}, text(f"On that chain: {', '.join(parts)}.")) if parts else Markup("")
    return join([tag("ul", {"class": "legend"}, *keys), sentence])


def _tables(
    graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " ops"], measurement: Measurement, timeline: Timeline, critical: Chain
) -> Markup:
    per_device = []
    for number, where in enumerate(cluster.devices):
        ops = device == number
        per_device.append(
            (
                where.name,
                count(int((ops & graph.works).sum())),
                work(float(graph.flops[ops].sum())),
                data_size(int(graph.param_bytes[ops].sum())),
                seconds(float((timeline.op_end_s - timeline.op_start_s)[ops].sum())),
                data_size(int(measurement.peak_memory_bytes[number])),
            )
        )
    duration = timeline.op_end_s - timeline.op_start_s
    chained = set(critical.ops.tolist())
    longest = [
        (
            graph.name[op],
            shorten(graph.op_type[op]),
            cluster.devices[int(device[op])].name,
            seconds(float(timeline.op_start_s[op])),
            seconds(float(duration[op])),
            "yes" if op in chained else "",
        )
        for op in np.argsort(-duration, kind="stable")[:15].tolist()
        if duration[op] > 0
    ]
    return disclosure(
        "Per device, and the longest ops",
        table(("device", "working ops", "work", "parameters", "busy", "peak memory"), per_device),
        table(("op", "type", "device", "from", "takes", "on the chain"), longest),
    )
