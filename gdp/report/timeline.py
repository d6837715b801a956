"""One step as a chart: a lane per device, a lane per link, and under them the chain of events that sets the step time."""

import dataclasses

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph, Phase
from gdp.measurement import Measurement, Timeline
from gdp.report.chain import Chain, chain, channel_of
from gdp.report.marks import Mark, merge
from gdp.report.markup import Markup, disclosure, join, percent, shorten, table, tag, text
from gdp.report.quantity import count, data_size, seconds, share, ticks, work

MAX_MARKS = 3000
"""Drawn per timeline at most, so that a page of many ops stays light."""
MAX_LINK_LANES = 8
LANE_PX, LINK_PX, CHAIN_PX = 30, 14, 3


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Lane:
    """Events that share a row."""

    label: str
    detail: str
    event: Int64[np.ndarray, " events"]
    start_s: Float64[np.ndarray, " events"]
    end_s: Float64[np.ndarray, " events"]
    on_chain: Int64[np.ndarray, " _"]
    is_link: bool


def device_class(device: int) -> str:
    """The style class that carries a device's colour; the colours repeat after eight devices, the labels do not."""
    return f"d{device % 8}"


def timeline_chart(
    graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " ops"], measurement: Measurement, timeline: Timeline, *, span_s: float
) -> Markup:
    """The chart of one placement; `span_s` is the time at its right edge, shared by the charts that are to be compared."""
    critical = chain(graph, cluster, device, timeline)
    device_lanes = _device_lanes(cluster, device, timeline, critical)
    link_lanes, left_out = _link_lanes(graph, cluster, timeline, critical)
    pixel_s = span_s / 1200
    while True:
        merged = [merge(lane.event, lane.start_s, lane.end_s, pixel_s=pixel_s) for lane in device_lanes + link_lanes]
        if sum(len(marks) for marks in merged) <= MAX_MARKS:
            break
        pixel_s *= 2
    rows = []
    for lane, marks in zip(device_lanes + link_lanes, merged, strict=True):
        if lane.is_link:
            drawn = [_transfer_mark(graph, cluster, timeline, mark, span_s) for mark in marks]
        else:
            drawn = [_op_mark(graph, device, mark, span_s) for mark in marks]
        rows.append(_row(lane, drawn, span_s, pixel_s))
    note = (
        tag("p", {"class": "hint"}, text(f"{len(left_out)} quieter links are not drawn: {seconds(sum(left_out))} of transfers in all."))
        if left_out
        else Markup("")
    )
    return join(
        [
            tag("div", {"class": "lanes"}, *rows, _axis(span_s)),
            note,
            _legend(graph, critical),
            _tables(graph, cluster, device, measurement, timeline, critical),
        ]
    )


def _device_lanes(cluster: Cluster, device: Int32[np.ndarray, " ops"], timeline: Timeline, critical: Chain) -> list[_Lane]:
    lanes = []
    length = float(timeline.op_end_s.max())
    for number, where in enumerate(cluster.devices):
        ops = np.flatnonzero(device == number)
        busy = float((timeline.op_end_s[ops] - timeline.op_start_s[ops]).sum())
        lanes.append(
            _Lane(
                label=where.name,
                detail=f"busy {share(busy / length)}" if length else "idle",
                event=ops,
                start_s=timeline.op_start_s[ops],
                end_s=timeline.op_end_s[ops],
                on_chain=critical.ops[device[critical.ops] == number],
                is_link=False,
            )
        )
    return lanes


def _link_lanes(graph: Graph, cluster: Cluster, timeline: Timeline, critical: Chain) -> tuple[list[_Lane], list[float]]:
    """The busiest links, busiest first, and the seconds of those left out."""
    carrier = channel_of(cluster, timeline)
    seconds_of = timeline.transfer_end_s - timeline.transfer_start_s
    used = sorted({int(c) for c in carrier}, key=lambda c: (-float(seconds_of[carrier == c].sum()), c))
    lanes = []
    for link in used[:MAX_LINK_LANES]:
        transfers = np.flatnonzero(carrier == link)
        if link < cluster.num_channels:
            label = cluster.channel_name[link]
        else:
            source, destination = divmod(link - cluster.num_channels, cluster.num_devices)
            label = f"{cluster.devices[source].name} → {cluster.devices[destination].name}"
        carried = int(graph.tensor_bytes[timeline.transfer_tensor[transfers]].sum())
        lanes.append(
            _Lane(
                label=label,
                detail=data_size(carried),
                event=transfers,
                start_s=timeline.transfer_start_s[transfers],
                end_s=timeline.transfer_end_s[transfers],
                on_chain=critical.transfers[carrier[critical.transfers] == link],
                is_link=True,
            )
        )
    return lanes, [float(seconds_of[carrier == link].sum()) for link in used[MAX_LINK_LANES:]]


def _row(lane: _Lane, drawn: list[Markup], span_s: float, pixel_s: float) -> Markup:
    height = LINK_PX if lane.is_link else LANE_PX
    grid = [
        tag("line", {"class": "grid", "x1": percent(t / span_s), "x2": percent(t / span_s), "y1": 0, "y2": height + CHAIN_PX + 2})
        for t in ticks(span_s, at_most=8)
    ]
    starts = {int(e): (float(s), float(t)) for e, s, t in zip(lane.event, lane.start_s, lane.end_s, strict=True)}
    spans = np.array([starts[int(event)] for event in lane.on_chain], np.float64).reshape(-1, 2)
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
        for m in _joined(spans, pixel_s)
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
        tag("g", {"class": "marks"}, *drawn),
        *underline,
    )
    label = tag("div", {"class": "lane-label"}, tag("b", {}, text(shorten(lane.label))), tag("span", {}, text(lane.detail)))
    return tag("div", {"class": "lane link" if lane.is_link else "lane"}, label, drawing)


def _joined(spans: Float64[np.ndarray, "spans 2"], pixel_s: float) -> list[Mark]:
    """Touching spans as one."""
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
    place: dict[str, str | float] = {"x": percent(mark.start_s / span_s), "width": percent(max(fraction, 1 / 2400)), "height": height}
    return tag("rect", {"class": style + wide, **place}, tag("title", {}, text(title)))


def _axis(span_s: float) -> Markup:
    marked = ticks(span_s, at_most=8)
    labels = [
        tag("text", {"x": percent(t / span_s), "y": 12, "class": "tick" if i % 2 == 0 else "tick odd"}, text(seconds(t)))
        for i, t in enumerate(marked)
    ]
    return tag(
        "div",
        {"class": "lane axis"},
        tag("div", {"class": "lane-label"}),
        tag("svg", {"width": "100%", "height": 16, "aria-hidden": "true"}, *labels),
    )


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
