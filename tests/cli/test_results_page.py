"""The page of a comparison: names that others chose stay text."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gdp.cli.results_page import write_page
from gdp.compare.results import Cell, Results, Row, Settings
from gdp.compare.standings import Standings

HOSTILE = "a|b<script>x</script>\n# [link](javascript:1) **bold** `code` &amp; \x1b[31m"
SHOWN = (
    r"a\|b\<script\>x\</script\>\N{REPLACEMENT CHARACTER}# \[link\](javascript:1) \*\*bold\*\* \`code\` \&amp; ".replace(
        r"\N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}"
    )
    + "\N{REPLACEMENT CHARACTER}\\[31m"
)


def test_a_name_is_no_markup(tmp_path: Path) -> None:
    cells = [(HOSTILE, "p100x2"), ("other", HOSTILE)]
    results = Results(
        settings=Settings(policy=HOSTILE, samples=1, budget=1, objective="step_time", dispatch=None),
        environment={"command": HOSTILE},
        cells=[_cell(*cell) for cell in cells],
        rows=[_row(*cell, placer) for cell in cells for placer in ("single-device", "local-search")],
    )
    page = tmp_path / "page.md"
    written = write_page(page, results, Standings(results, cells, ["single-device", "local-search"], seeds=1), seeds=1)
    lines = page.read_text().splitlines()
    assert sum(SHOWN in line for line in lines) == 8, "the policy, twice each in three kinds of tables, the environment"
    assert not any(mark in line.replace(SHOWN, "") for line in lines for mark in ("<", "javascript", "\x1b"))
    for drawing in written[1:]:
        assert "<script" not in drawing.read_text()


def test_means_stand_apart_for_what_policies_were_taught_on(tmp_path: Path) -> None:
    cells = [("vgg-16-training", "p100x2"), ("inception-v3-training", "p100x2"), ("gnmt-2-training", "p100x2"), ("mine.py:f", "p100x2")]
    seconds = {"heft": (3.0, 1.0, 1.0, 1.0), "m-etf": (1.0, 2.0, 8.0, 1.0)}
    rows = [
        _row(*cell, placer).model_copy(update={"seconds": time, "improved_at": [], "best_s": []})
        for placer, times in seconds.items()
        for cell, time in zip(cells, times, strict=True)
    ]
    settings = Settings(policy="none", samples=1, budget=1, objective="step_time", dispatch=None)
    results = Results(settings=settings, environment={}, cells=[_cell(*cell) for cell in cells], rows=rows)
    page = tmp_path / "page.md"
    write_page(page, results, Standings(results, cells, list(seconds), seeds=1), seeds=1)
    part = page.read_text().partition("## By split")[2]
    assert (
        "| pretraining | 3.000 | **1.000** |" in part
        and "| hold-out | **1.000** | 4.000 |" in part
        and "| not of the catalog | **1.000**" in part
    )


def test_steps_and_bounds_of_no_time_have_no_ratio(tmp_path: Path) -> None:
    settings = Settings(policy="none", samples=1, budget=1, objective="step_time", dispatch=None)
    nothing = _row("a", "p100x2", "single-device").model_copy(update={"seconds": 0.0})
    cell = _cell("a", "p100x2").model_copy(update={"bound_s": 0.0})
    results = Results(settings=settings, environment={}, cells=[cell], rows=[nothing])
    page = tmp_path / "page.md"
    write_page(page, results, Standings(results, [cell.key], ["single-device"], seeds=1), seeds=1)
    text = page.read_text()
    assert "| a | p100x2 | 0 | **0** |" in text and "| single-device | - | - | - | - | - |" in text
    assert "Of 0 cells" in text, "where nothing takes time nothing is separated"


@pytest.mark.parametrize(
    "change",
    [
        {"improved_at": [0]},
        {"improved_at": [2, 1], "best_s": [2.0, 1.0]},
        {"improved_at": [1, 2], "best_s": [1.0, 2.0]},
        {"improved_at": [1, 99], "best_s": [2.0, 1.0]},
        {"seconds": None},
    ],
    ids=["from 0", "back", "up", "after the last", "ok without seconds"],
)
def test_a_row_that_no_comparison_writes_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="improved_at|the status is ok"):
        Row.model_validate({**_row("a", "p100x2", "heft").model_dump(), **change})


def _cell(workload: str, cluster: str) -> Cell:
    return Cell(
        workload=workload,
        cluster=cluster,
        graph_sha256="0" * 64,
        cluster_sha256="0" * 64,
        num_ops=1,
        bound_s=1.0,
        bound="work",
        serial_s=1.0,
        longest_path_s=1.0,
    )


def _row(workload: str, cluster: str, placer: str) -> Row:
    return Row(
        workload=workload,
        cluster=cluster,
        placer=placer,
        seed=0,
        status="ok",
        detail="",
        seconds=1.0,
        evaluations=1,
        wall_s=0.0,
        devices_used=1,
        transfers=0,
        transferred_bytes=0,
        busy_share=0.5,
        improved_at=[1],
        best_s=[1.0],
    )
