"""One self-contained page: HTML, inline SVG and a style sheet; no script, no request, and a policy in its head that forbids both."""

import math
from pathlib import Path

import numpy as np

from gdp.atomic_file import write_text
from gdp.candidate import Candidate
from gdp.measurement import Measurement, Status, Timeline
from gdp.report.candidates import candidates_chart, rank
from gdp.report.curve import learning_chart
from gdp.report.data import ReportData, Section, interval
from gdp.report.markup import Markup, join, shorten, tag, text
from gdp.report.memory import memory_chart
from gdp.report.modules import modules_chart
from gdp.report.quantity import count, data_size, ratio, seconds, share, work
from gdp.report.scatter import pairs, scatter_chart
from gdp.report.timeline import timeline_chart
from gdp.report.verdict import speedup

_STYLE = Path(__file__).with_name("page.css")
_NOTHING_FOREIGN = "default-src 'none'; style-src 'unsafe-inline'"


def write_report(path: Path, data: ReportData) -> None:
    """Writes the page, whole or not at all. Names of ops, devices and methods are shown as they are and never become markup."""
    write_text(path, page(data))


def page(data: ReportData) -> Markup:
    """The source of the page."""
    head = tag(
        "head",
        {},
        tag("meta", {"charset": "utf-8"}),
        tag("meta", {"http-equiv": "Content-Security-Policy", "content": _NOTHING_FOREIGN}),
        tag("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        tag("meta", {"name": "color-scheme", "content": "light dark"}),
        tag("title", {}, text(data.title)),
        tag("style", {}, Markup(_STYLE.read_text(encoding="utf-8"))),
    )
    contents = [tag("li", {}, tag("a", {"href": f"#model-{i}"}, text(section.title))) for i, section in enumerate(data.sections)]
    navigation = tag("nav", {"aria-label": "models"}, tag("ul", {}, *contents)) if len(contents) > 1 else Markup("")
    environment = [join([tag("dt", {}, text(key)), tag("dd", {}, text(value))]) for key, value in data.environment.items()]
    body = tag(
        "body",
        {},
        tag("header", {}, tag("p", {"class": "eyebrow"}, text("gdp device placement")), tag("h1", {}, text(data.title)), navigation),
        tag("main", {}, *(_section(section, i) for i, section in enumerate(data.sections))),
        tag("footer", {}, tag("h2", {}, text("Environment")), tag("dl", {}, *environment)),
    )
    return Markup(f"<!doctype html>\n{tag('html', {'lang': 'en'}, head, body)}\n")


def _section(section: Section, number: int) -> Markup:
    best, reference = section.candidate(section.best), section.candidate(section.reference)
    figures = [
        _figure("Candidates", "Each placement that was considered, the fastest first.", candidates_chart(section)),
        *_timelines(section, best, reference),
        *_modules(section, best),
    ]
    side_by_side = []
    if section.curves:
        side_by_side.append(
            _figure("Search", "Step time of the best placement found so far, by number of placements evaluated.", learning_chart(section))
        )
    points = pairs(section)
    if len(points) >= 2:
        side_by_side.append(
            _figure("Predicted against measured", "How far the simulator can be trusted on this machine.", scatter_chart(points))
        )
    if side_by_side:
        figures.append(tag("div", {"class": "pair"}, *side_by_side))
    notes = tag("ul", {"class": "notes"}, *(tag("li", {}, text(note)) for note in section.notes)) if section.notes else Markup("")
    return tag(
        "section",
        {"id": f"model-{number}", "aria-labelledby": f"title-{number}"},
        tag("h2", {"id": f"title-{number}"}, text(section.title)),
        tag("p", {"class": "facts"}, text(_facts(section))),
        tag("p", {"class": "verdict"}, text(section.verdict)),
        notes,
        _tiles(section, best, reference),
        *figures,
    )


def _facts(section: Section) -> str:
    graph, cluster = section.graph, section.cluster
    kinds = ", ".join(f"{sum(device.kind == kind for device in cluster.devices)} × {kind}" for kind in cluster.kinds)
    return (
        f"{count(graph.num_ops)} ops in {count(section.num_groups)} groups, {work(float(graph.flops.sum()))}, "
        f"{data_size(int(graph.param_bytes.sum()))} of parameters, from {shorten(graph.source)}. "
        f"Cluster {cluster.name}: {kinds}."
    )


def _tiles(section: Section, best: Candidate, reference: Candidate) -> Markup:
    """The numbers one looks for first."""
    shown = best.measured if best.measured is not None and reference.measured is not None else best.predicted
    against = reference.measured if shown is best.measured and reference.measured is not None else reference.predicted
    how = "measured" if shown is best.measured else "predicted"
    gain = None if best.name == reference.name else section.speed_up or speedup(best, reference, section.objective)
    ours, theirs = interval(shown, section.objective), interval(against, section.objective)
    name = "step time" if section.objective == "step_time" else "time per step, pipelined"
    tiles = [
        (name, seconds(ours.value) if ours else "–", f"{best.name}, {how}"),
        ("best single device", seconds(theirs.value) if theirs else "cannot run", f"{reference.name}, {how}"),
        (
            "speed-up",
            ratio(gain.value) if gain else "–",
            "too noisy for an interval"
            if gain and not math.isfinite(gain.high)
            else f"{gain.low:.2f} to {gain.high:.2f}"
            if gain and gain.low < gain.high
            else "predicted"
            if gain
            else "one device is best"
            if ours
            else "",
        ),
        ("moved per step", data_size(best.predicted.transferred_bytes), f"{count(best.predicted.num_transfers)} transfers"),
        ("fullest device", *_fullest(section, best.predicted)),
    ]
    return tag(
        "dl",
        {"class": "tiles"},
        *(
            tag("div", {}, tag("dt", {}, text(label)), tag("dd", {}, text(value)), tag("dd", {"class": "sub"}, text(shorten(sub))))
            for label, value, sub in tiles
        ),
    )


def _fullest(section: Section, measurement: Measurement) -> tuple[str, str]:
    capacity = section.cluster.memory_bytes
    fill = np.divide(measurement.peak_memory_bytes, capacity, out=np.zeros(len(capacity)), where=capacity > 0)
    number = int(np.argmax(fill))
    return share(float(fill[number])), f"{section.cluster.devices[number].name}, of {data_size(int(capacity[number]))}"


def _timelines(section: Section, best: Candidate, reference: Candidate) -> list[Markup]:
    drawn = []
    compared = _compared(section, best, reference)
    for candidate in (best,) if compared is best else (best, compared):
        for how, measurement in (("measured", candidate.measured), ("predicted", candidate.predicted)):
            if measurement is not None and measurement.status == Status.OK and measurement.timeline is not None:
                drawn.append((candidate, how, measurement, measurement.timeline))
                break
    if not drawn:
        return []
    span_s = max(_end(timeline) for _, _, _, timeline in drawn) * 1.005
    if not 0 < span_s < math.inf:
        return []
    peak_bytes = max(int(measurement.peak_memory_bytes.max()) for _, _, measurement, _ in drawn)
    figures = []
    for candidate, how, measurement, timeline in drawn:
        role = "the chosen placement" if candidate is best else "on the same scale"
        chart = timeline_chart(section.graph, section.cluster, candidate.placement.device, measurement, timeline, span_s=span_s)
        memory = memory_chart(section.cluster, measurement, timeline, span_s=span_s, peak_bytes=peak_bytes)
        lead = f"One {how} step of {shorten(candidate.name)}: {role}."
        below = [tag("h4", {}, text("Memory")), memory] if measurement.peak_memory_bytes.any() else []
        figures.append(_figure(f"Timeline: {candidate.name}", lead, join([chart, *below])))
    return figures


def _compared(section: Section, best: Candidate, reference: Candidate) -> Candidate:
    """What the chosen placement is drawn beside: the best single device, or, where that was chosen, the next best."""
    if best.name != reference.name:
        return reference
    others = [candidate for candidate in section.candidates if candidate.name != best.name]
    return min(others, key=lambda candidate: rank(candidate, section.objective), default=best)


def _modules(section: Section, best: Candidate) -> list[Markup]:
    timeline: Timeline | None = best.predicted.timeline
    if timeline is None:
        return []
    chart = modules_chart(section.graph, section.cluster, best.placement.device, timeline.op_end_s - timeline.op_start_s)
    return (
        [_figure("Where each module went", f"Time of each module's ops on the devices that {best.name} gave them.", chart)] if chart else []
    )


def _end(timeline: Timeline) -> float:
    return float(timeline.op_end_s.max())


def _figure(title: str, lead: str, chart: Markup) -> Markup:
    return tag("figure", {}, tag("figcaption", {}, tag("h3", {}, text(shorten(title))), tag("p", {}, text(lead))), chart)
