"""What a run leaves behind when the machine was too noisy to say how long anything takes."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gdp.candidate import Candidate
from gdp.cli.finetune_files import against_all_cores, finetune_section, write_result
from gdp.cli.report_data import write_page
from gdp.cli.runtimes import Judges
from gdp.cli.table import candidates_table
from gdp.features.config import FeatureConfig
from gdp.learn.finalists import judge, verdict
from gdp.learn.finetune import FinetuneResult
from gdp.learn.task import make_task
from gdp.placement import Origin, Placement, read_placement
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import Comparison, compare_times
from gdp.workloads.known_optimum import fork_join


def test_an_unknown_interval_is_written_and_shown_as_such(tmp_path: Path) -> None:
    problem = fork_join(num_branches=2, transfer_s=0.5)
    graph, cluster = problem.graph, problem.cluster
    simulator = Simulator()
    task = make_task("fork", graph, cluster, runtime=simulator, features=FeatureConfig(), max_groups=64, objective="step_time")

    def candidate(name: str, device: np.ndarray) -> Candidate:
        placement = Placement(device=device.astype(np.int32), origin=Origin(placer="gdp" if name == "fine-tuned" else "simple"))
        predicted = simulator(graph, cluster, placement)
        return Candidate(name=name, placement=placement, predicted=predicted, measured=predicted)

    alone = candidate("one device: d0", np.zeros(graph.num_ops))
    spread = candidate("fine-tuned", np.arange(graph.num_ops) % 2)
    drifting = [0.9 + 0.001 * step for step in range(48)]  # every pair is like the one before it: worth less than six
    judgement = judge(
        [alone, spread],
        learned=("gdp",),
        compare=lambda first, second, *, occasion: compare_times(drifting, [1.0] * 48),
        objective="step_time",
    )
    assert judgement.best.name == alone.name and judgement.candidates[1].judged.step_time_high_s == np.inf
    result = FinetuneResult(
        judgement=judgement,
        verdict=verdict(judgement, cluster, objective="step_time"),
        evaluations=np.array([8]),
        best_s=np.array([1.0]),
        mean_sampled_s=np.array([np.inf]),
    )
    write_result(tmp_path, task, result, objective="step_time")
    figures = json.loads((tmp_path / "result.json").read_text())
    assert figures["candidates"]["fine-tuned"]["step_time_high_s"] is None
    assert np.array_equal(read_placement(tmp_path / "placement.json", graph, cluster).device, alone.placement.device)
    section = finetune_section("noise", task, result, measured=[], objective="step_time", dispatch="ready_order")
    write_page(tmp_path / "report.html", "noise", [section])
    page = (tmp_path / "report.html").read_text()
    assert "too noisy for an interval" in page and "inf%" not in page and ">inf" not in page
    table = candidates_table("noise", judgement.candidates, best=alone.name, objective="step_time")
    assert any("[noisy]" in str(cell) for cell in table.columns[2].cells)


def fork_result(*, device: list[int]) -> FinetuneResult:
    problem = fork_join(num_branches=2, transfer_s=0.5)
    placement = Placement(device=np.array(device, np.int32), origin=Origin(placer="gdp"))
    predicted = Simulator()(problem.graph, problem.cluster, placement)
    best = Candidate(name="one device: d0", placement=placement, predicted=predicted, measured=predicted)
    judgement = judge([best], learned=("gdp",), compare=None, objective="step_time")
    return FinetuneResult(
        judgement=judgement,
        verdict=verdict(judgement, problem.cluster, objective="step_time"),
        evaluations=np.array([8]),
        best_s=np.array([1.0]),
        mean_sampled_s=np.array([1.0]),
    )


def judges(compare_all_cores: Callable[[Placement], Comparison | None] | None) -> Judges:
    simulator, problem = Simulator(), fork_join(num_branches=2, transfer_s=0.5)
    return Judges(
        graph=problem.graph,
        cluster=problem.cluster,
        predictor=simulator,
        proposed=simulator,
        judge=simulator,
        screened=None,
        compare=None,
        compare_all_cores=compare_all_cores,
    )


@pytest.mark.parametrize(
    ("best_s", "noise", "ending"),
    [
        (1.0, 0.001, "it takes only 0.50 times as long (0.50 to 0.50, timed in turn)"),
        (0.25, 0.001, "it takes 2.00 times as long (2.00 to 2.00, timed in turn)"),
        (0.5, 0.001, "it takes the same time: 1.00 times as long (1.00 to 1.00, timed in turn)"),
        (0.5, 0.5, "it takes perhaps 0.93 times as long (0.87 to 1.12, timed in turn)"),
    ],
)
@pytest.mark.parametrize("device", [[0, 0, 0, 0], [0, 0, 1, 0]])
def test_the_verdict_names_what_the_program_takes_without_any_placement(
    tmp_path: Path, device: list[int], best_s: float, noise: float, ending: str
) -> None:
    """Also where one device wins: all cores together may be faster than that one."""
    result = fork_result(device=device)
    generator = np.random.default_rng(0)
    times = best_s * (1 + noise * generator.uniform(-1, 1, 49))
    asked: list[list[int]] = []

    def compare(placement: Placement) -> Comparison:
        asked.append(placement.device.tolist())
        return compare_times(times.tolist(), [0.5] * len(times))

    ended = against_all_cores(result, judges(compare))
    assert asked == [device]
    assert ended.verdict.startswith(f"{result.verdict}; without any placement, on all CPU cores, {ending}")
    problem = fork_join(num_branches=2, transfer_s=0.5)
    task = make_task(
        "fork", problem.graph, problem.cluster, runtime=Simulator(), features=FeatureConfig(), max_groups=64, objective="step_time"
    )
    write_result(tmp_path, task, ended, objective="step_time")
    written = json.loads((tmp_path / "result.json").read_text())
    assert written["verdict"] == ended.verdict
    assert written["against_all_cores_unplaced"]["ratio"] == pytest.approx(best_s / 0.5, rel=0.2)


def test_without_measured_times_or_two_cpu_devices_nothing_is_said_of_all_cores() -> None:
    result = fork_result(device=[0, 0, 0, 0])
    assert against_all_cores(result, judges(None)) is result
    assert against_all_cores(result, judges(lambda placement: None)) is result
