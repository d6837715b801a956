"""What a run leaves behind when the machine was too noisy to say how long anything takes."""

import json
from pathlib import Path

import numpy as np

from gdp.candidate import Candidate
from gdp.cli.finetune_files import finetune_section, write_result
from gdp.cli.report_data import write_page
from gdp.cli.table import candidates_table
from gdp.features.config import FeatureConfig
from gdp.learn.finalists import judge, verdict
from gdp.learn.finetune import FinetuneResult
from gdp.learn.task import make_task
from gdp.placement import Origin, Placement, read_placement
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import compare_times
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
        learned="gdp",
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
