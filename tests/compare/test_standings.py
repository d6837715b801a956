"""Medians, ratios, means and verdicts of a comparison, against figures worked out by hand."""

from pathlib import Path

import numpy as np
import pytest

from gdp.compare.results import Cell, Results, Row, Settings, read_results, write_results
from gdp.compare.separation import separation
from gdp.compare.standings import Standings, best_after, geometric_mean_ratio, means_by
from gdp.errors import InputError

SETTINGS = Settings(policy="p", samples=10, budget=10, objective="step_time", dispatch=None)
CELLS = [("net", "two"), ("net", "four")]


def row(placer: str, cluster: str, seconds: float | None, *, seed: int = 0, improved_at: tuple[int, ...] = ()) -> Row:
    best_s = [seconds * (len(improved_at) - i) for i in range(len(improved_at))] if seconds is not None else []
    return Row(
        workload="net",
        cluster=cluster,
        placer=placer,
        seed=seed,
        status="ok" if seconds is not None else "out_of_memory",
        detail="",
        seconds=seconds,
        evaluations=max(improved_at, default=0),
        wall_s=0.5,
        devices_used=2,
        transfers=0,
        transferred_bytes=0,
        busy_share=0.5,
        improved_at=list(improved_at),
        best_s=best_s,
    )


def cell(cluster: str, bound_s: float | None) -> Cell:
    return Cell(
        workload="net",
        cluster=cluster,
        graph_sha256="0" * 64,
        cluster_sha256="0" * 64,
        num_ops=9,
        bound_s=bound_s,
        bound="work",
        serial_s=8.0,
        longest_path_s=2.0,
    )


ROWS = [
    row("single-device", "two", 8.0),
    row("single-device", "four", 8.0),
    row("metis", "two", 4.0),
    row("metis", "four", None),
    *(row("local-search", "two", seconds, seed=seed, improved_at=(1, 5)) for seed, seconds in enumerate((2.0, 4.0, 3.0))),
    *(row("local-search", "four", seconds, seed=seed, improved_at=(2,)) for seed, seconds in enumerate((1.0, 1.0, 2.0))),
]
RESULTS = Results(settings=SETTINGS, environment={"machine": "m"}, cells=[cell("two", 1.5), cell("four", None)], rows=ROWS)


def standings(*, seeds: int = 3) -> Standings:
    return Standings(RESULTS, CELLS, ["single-device", "metis", "local-search"], seeds=seeds)


def test_medians_are_over_seeds_and_ratios_over_the_cells_in_which_both_run() -> None:
    assert standings().seconds["local-search", ("net", "two")] == 3.0
    assert standings(seeds=1).seconds["local-search", ("net", "two")] == 2.0
    search, metis = standings().standing("local-search"), standings().standing("metis")
    assert search.over_single == pytest.approx(np.sqrt(3 / 8 * 1 / 8)) and search.over_best == 1.0 and search.best_in == 2
    assert search.over_bound == pytest.approx(2.0) and search.over_expert is None and search.evaluations == 5
    assert search.spread == pytest.approx(2.0)
    assert metis.runs_in == 1 and metis.over_best == pytest.approx(4 / 3) and metis.worst_over_best == pytest.approx(4 / 3)


def test_a_placer_that_was_not_asked_runs_nowhere() -> None:
    lacking = Standings(RESULTS, CELLS, ["heft"], seeds=1).standing("heft")
    assert lacking.runs_in == 0 and lacking.over_best is None and lacking.wall_s == 0.0


def test_curves_hold_until_the_next_improvement() -> None:
    assert best_after([2, 5], [4.0, 1.0], [1, 2, 4, 5, 9]).tolist() == [np.inf, 4.0, 4.0, 1.0, 1.0]
    curve = standings().best_so_far("local-search", [1, 4, 5])
    assert curve is not None and np.isinf(curve.mean[0])
    two, four = np.exp(np.mean(np.log([4 / 3, 8 / 3, 2]))), np.exp(np.mean(np.log([1, 1, 2])))
    assert curve.mean[1] == pytest.approx(np.sqrt(two * four))
    assert curve.low[2] == pytest.approx(np.sqrt(2 / 3)) and curve.high[2] == pytest.approx(np.sqrt(4 / 3 * 2))


@pytest.mark.parametrize("seconds", [None, 0.0], ids=["nothing runs", "nothing takes time"])
def test_a_cell_without_a_time_to_compare_with_is_left_out_of_ratios_and_curves(seconds: float | None) -> None:
    rows = [*(each for each in ROWS if each.cluster == "two"), *(row(placer, "four", seconds) for placer in ("single-device", "metis"))]
    rows.append(row("local-search", "four", seconds, improved_at=() if seconds is None else (2,)))
    results = Results(settings=SETTINGS, environment={}, cells=[cell("two", 1.5), cell("four", seconds)], rows=rows)
    both, one = (Standings(results, cells, ["single-device", "metis", "local-search"], seeds=3) for cells in (CELLS, CELLS[:1]))
    assert both.timed == CELLS[:1]
    of_both, of_one = (found.standing("local-search") for found in (both, one))
    assert (of_both.over_best, of_both.worst_over_best, of_both.over_bound) == (of_one.over_best, of_one.worst_over_best, of_one.over_bound)
    curves = [found.best_so_far("local-search", [1, 5]) for found in (both, one)]
    assert curves[0] is not None and curves[1] is not None and curves[0].mean.tolist() == curves[1].mean.tolist()


def test_a_bound_of_zero_has_no_ratio() -> None:
    results = Results(settings=SETTINGS, environment={}, cells=[cell("two", 0.0)], rows=ROWS)
    found = Standings(results, CELLS[:1], ["single-device", "local-search"], seeds=3)
    assert np.isnan(separation(found, CELLS[0], searches=("local-search",)).over_bound)


def test_a_cell_rewards_what_it_takes_to_be_near_the_best() -> None:
    found = separation(standings(), ("net", "two"), searches=("local-search",))
    assert (found.over_single, found.over_metis, found.over_rules) == pytest.approx((8 / 3, 4 / 3, 4 / 3))
    assert found.verdict == "search" and found.best == "local-search" and found.parallelism == 4.0 and found.over_bound == 2.0
    without = Standings(RESULTS, CELLS, ["single-device", "metis"], seeds=1)
    assert separation(without, ("net", "two"), searches=()).verdict == "cut"
    assert separation(without, ("net", "four"), searches=()).verdict == "nothing"
    with_rule = Results(settings=SETTINGS, environment={}, cells=RESULTS.cells, rows=[*ROWS, row("heft", "two", 3.05)])
    both = Standings(with_rule, CELLS, ["single-device", "metis", "heft", "local-search"], seeds=3)
    assert separation(both, ("net", "two"), searches=("local-search",)).verdict == "rule"


def test_groups_of_cells_have_their_own_means() -> None:
    means = means_by(standings(), {cell: cell[1] for cell in CELLS}, ["single-device", "metis"])
    assert means == {
        "two": {"single-device": pytest.approx(8 / 3), "metis": pytest.approx(4 / 3)},
        "four": {"single-device": pytest.approx(8), "metis": None},
    }


def test_the_mean_is_over_the_cells_in_which_both_run() -> None:
    assert geometric_mean_ratio([2.0, 8.0], [1.0, 1.0]) == pytest.approx(4.0)
    assert geometric_mean_ratio([2.0, np.inf, 3.0, 0.0], [1.0, 1.0, np.nan, 1.0]) == pytest.approx(2.0)
    assert geometric_mean_ratio([np.inf], [1.0]) is None


def test_results_are_read_back_as_written_and_refused_when_changed(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_results(path, RESULTS)
    assert read_results(path) == RESULTS
    text = path.read_text()
    for old, new in (
        ('"seconds": 8.0', '"seconds": "8"'),
        ('"seed": 0', '"seed": -1'),
        ('"bound_s": 1.5', '"bound_s": 7.9'),
        ('"format": 3', '"format": 2'),
        ('"cells"', '"cels"'),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(InputError, match="no file of `gdp compare`"):
            read_results(path)
    path.write_text(text[:-20])
    with pytest.raises(InputError, match="no file of `gdp compare`"):
        read_results(path)
