"""The page as a whole: what it says, that it is safe, light and complete."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from gdp.candidate import Candidate
from gdp.cluster import preset
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Status
from gdp.placement import Origin, Placement
from gdp.report import ReportData, Section, write_report
from gdp.report.curve import learning_chart
from gdp.report.page import page
from gdp.report.scatter import pairs, rank_correlation
from gdp.report.verdict import speedup
from gdp.workloads.synthetic import layered
from tests.report.example_page import example, predict
from tests.report.test_markup import Events

HOSTILE = '</title></svg><script>alert(1)</script><img src=x onerror="alert(2)">\u202e\x00'


@pytest.fixture(scope="module")
def data() -> ReportData:
    return example()


def with_names(section: Section, graph: Graph) -> Section:
    return dataclasses.replace(section, graph=graph)


def test_the_page_shows_every_chart_and_asks_for_nothing_from_outside(data: ReportData, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(path, data)
    source = path.read_text(encoding="utf-8")
    for heading in ("Candidates", "Timeline: ", "Memory", "Where each module went", "Search", "Predicted against measured", "Environment"):
        assert f">{heading}" in source
    assert "http" not in re.sub(r'http-equiv="Content-Security-Policy"', "", source)
    assert "default-src &#x27;none&#x27;" in source
    events = Events()
    events.feed(source)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in events.tags}
    assert all(
        value is not None and value.startswith("#")
        for _, attributes in events.tags
        for key, value in attributes.items()
        if key in ("href", "src")
    )
    assert "url(" not in source and "@import" not in source


def test_predicted_and_measured_stand_side_by_side(data: ReportData) -> None:
    source = page(data)
    candidate = data.sections[0].candidate(data.sections[0].best)
    assert candidate.measured is not None
    assert f"{1e3 * candidate.predicted.step_time_s:.1f} ms" in source
    low, high = 1e3 * candidate.measured.step_time_low_s, 1e3 * candidate.measured.step_time_high_s
    assert f"{1e3 * candidate.measured.step_time_s:.1f} [{low:.1f}, {high:.1f}] ms" in source


def test_hostile_names_stay_text(data: ReportData) -> None:
    section = data.sections[0]
    graph = section.graph
    evil = dataclasses.replace(
        graph,
        name=tuple(f"{HOSTILE}{i}" for i in range(graph.num_ops)),
        op_type=(HOSTILE,) * graph.num_ops,
        module_path=tuple(f"{HOSTILE}{i % 3}" for i in range(graph.num_ops)),
        source=HOSTILE,
    )
    cluster = dataclasses.replace(
        section.cluster,
        devices=tuple(dataclasses.replace(device, name=f"{HOSTILE}{i}") for i, device in enumerate(section.cluster.devices)),
        channel_name=(HOSTILE,) * section.cluster.num_channels,
    )
    candidates = tuple(dataclasses.replace(c, name=c.name + HOSTILE) for c in section.candidates)
    evil_section = dataclasses.replace(
        section, title=HOSTILE, graph=evil, cluster=cluster, candidates=candidates, best=section.best + HOSTILE, reference=section.reference + HOSTILE,
        verdict=HOSTILE, notes=(HOSTILE,),
    )  # fmt: skip
    source = page(ReportData(title=HOSTILE, sections=(evil_section,), environment={HOSTILE: HOSTILE}))
    events = Events()
    events.feed(source)
    assert not {"script", "img"} & {tag for tag, _ in events.tags}
    assert not any(key.startswith("on") for _, attributes in events.tags for key in attributes)
    assert "\u202e" not in source and "\x00" not in source
    plain = page(ReportData(title="t", sections=(section,), environment={"k": "v"}))
    calm = Events()
    calm.feed(plain)
    without_modules = [{"figure", "figcaption", "nav", "main", "footer", "details"} & {tag for tag, _ in e.tags} for e in (events, calm)]
    assert without_modules[0] == without_modules[1]


def test_ten_thousand_ops_stay_light() -> None:
    generator = np.random.default_rng(3)
    graph, cluster = layered(generator, num_ops=10_000), preset("p100x8")
    device = (np.arange(graph.num_ops) % 8).astype(np.int32)
    for group in np.unique(graph.colocation_group[graph.colocation_group >= 0]):
        device[graph.colocation_group == group] = 0
    candidates = [
        Candidate(name=name, placement=Placement(device=where, origin=Origin(placer="test")), predicted=predict(graph, cluster, where))
        for name, where in (("spread", device), ("one", np.zeros_like(device)))
    ]
    assert all(candidate.predicted.status == Status.OK for candidate in candidates)
    section = Section(
        title="large", graph=graph, cluster=cluster, num_groups=graph.num_ops, objective="step_time", candidates=tuple(candidates),
        best="spread", reference="one", verdict="spread",
    )  # fmt: skip
    source = page(ReportData(title="large", sections=(section,), environment={}))
    assert len(source.encode()) < 1_000_000
    assert source.count("<rect") > 1000


def test_the_verdict_says_no_more_than_the_numbers(data: ReportData) -> None:
    section = data.sections[0]
    best, reference = section.candidate(section.best), section.candidate(section.reference)
    assert best.measured is not None and reference.measured is not None
    gain = speedup(best, reference, "step_time")
    assert gain is not None
    assert gain.low == reference.measured.step_time_low_s / best.measured.step_time_high_s
    assert gain.high == reference.measured.step_time_high_s / best.measured.step_time_low_s
    assert gain.value == reference.measured.step_time_s / best.measured.step_time_s
    only_predicted = dataclasses.replace(best, measured=None)
    predicted = speedup(only_predicted, reference, "step_time")
    assert predicted is not None and predicted.low == predicted.value == predicted.high
    assert predicted.value == reference.predicted.step_time_s / best.predicted.step_time_s


def test_candidates_that_cannot_run_say_why(data: ReportData) -> None:
    section = data.sections[0]
    graph = section.graph
    cluster = dataclasses.replace(
        section.cluster, devices=tuple(dataclasses.replace(d, memory_bytes=1000) for d in section.cluster.devices)
    )
    predicted = predict(graph, cluster, np.zeros(graph.num_ops, np.int32))
    assert predicted.status == Status.OUT_OF_MEMORY
    alone = Candidate(name="one", placement=section.candidates[0].placement, predicted=predicted)
    failed = dataclasses.replace(
        section, cluster=cluster, candidates=(alone,), best="one", reference="one", curves=(), levels=(), probes=()
    )
    source = page(ReportData(title="t", sections=(failed,), environment={}))
    assert predicted.detail.split("'")[0] in source
    assert "out of memory" in source


def test_rank_correlation_is_spearmans(data: ReportData) -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(a, a**3) == pytest.approx(1.0)
    assert rank_correlation(a, -a) == pytest.approx(-1.0)
    assert rank_correlation(a, np.array([1.0, 3.0, 2.0, 4.0])) == pytest.approx(0.8)
    assert np.isnan(rank_correlation(a, np.ones(4)))
    assert len(pairs(data.sections[0])) == len(data.sections[0].candidates) + len(data.sections[0].probes)


def test_a_section_names_candidates_that_it_has(data: ReportData) -> None:
    with pytest.raises(InputError, match="the best of the report section"):
        dataclasses.replace(data.sections[0], best="nobody")


def test_a_search_whose_steps_take_no_time_has_a_chart(data: ReportData) -> None:
    section = next(section for section in data.sections if section.curves)
    still = tuple(dataclasses.replace(curve, best_s=0 * curve.best_s, mean_sampled_s=0 * curve.mean_sampled_s) for curve in section.curves)
    levels = tuple(dataclasses.replace(level, seconds=0.0) for level in section.levels)
    assert "nan" not in str(learning_chart(dataclasses.replace(section, curves=still, levels=levels)))
