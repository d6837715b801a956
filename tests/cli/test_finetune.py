"""`finetune.py` end to end on a graph from a file, in the simulator."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from gdp.cluster import preset
from gdp.hub import load
from gdp.placement import read_placement
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import numpy as np
from gdp.workloads.synthetic import layered
def build():
    return layered(np.random.default_rng(5), num_ops=60)
"""

CHAIN = """
import torch
from gdp.capture.torch import capture
def chain():
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
    return capture(torch.nn.Sequential(*layers), (torch.zeros(32, 256),)).graph
"""


@pytest.mark.slow
def test_the_result_is_the_best_candidate_and_the_file_can_be_read_back(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run = tmp_path / "run"
    command = [sys.executable, str(ROOT / "finetune.py"), "workload=program.py:build", "cluster=p100x2", "init=null", "policy=tiny"]
    command += ["finetune.evaluations=320", "finetune.search_evaluations=50", "finetune.parameters=all", f"run_dir={run}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((run / "result.json").read_text())
    times = {name: figures["step_time_s"] for name, figures in result["candidates"].items() if figures["status"] == "ok"}
    assert {"one device: gpu0", "contiguous", "metis", "list scheduling", "local search", "zero-shot"} <= set(times)
    graph, cluster = layered(np.random.default_rng(5), num_ops=60), preset("p100x2")
    placement = read_placement(run / "placement.json", graph, cluster)
    step_time_s = Simulator()(graph, cluster, placement).step_time_s
    assert step_time_s == min(times.values()) == times[result["best"]]
    spent = result["curve"]["evaluations"]
    starting_points = spent[0] - 32 - 16  # zero-shot's 16 samples count, and where the search starts
    assert 16 <= starting_points < 40
    assert np.diff(spent)[:-1].tolist() == [32] * (len(spent) - 2) and spent[-1] == 320
    assert result["curve"]["best_s"] == sorted(result["curve"]["best_s"], reverse=True)
    assert result["curve"]["best_s"][-1] == times["fine-tuned"] <= times["zero-shot"]
    adapted = load(run / "checkpoint")
    assert adapted.config.hidden == 48
    one_device = len(set(placement.device.tolist())) == 1
    assert result["verdict"].startswith("one device is best") == one_device


@pytest.mark.slow
def test_it_ends_when_nothing_can_be_faster(tmp_path: Path) -> None:
    """A chain takes no less than all of it on one device, so the starting points are enough."""
    (tmp_path / "program.py").write_text(PROGRAM.replace("layered(np.random.default_rng(5), num_ops=60)", "chain()") + CHAIN)
    code, err = _run(tmp_path)
    assert code == 0 and "ended after" in err and "nothing can be faster" in err
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert len(result["curve"]["evaluations"]) == 1 and result["curve"]["evaluations"][0] < 60
    assert result["lower_bound_s"] == pytest.approx(result["candidates"][result["best"]]["step_time_s"], rel=1e-6)
    assert result["verdict"].startswith("one device is best") and "no placement can be more than 1.00 times as fast" in result["verdict"]
    assert (tmp_path / "run" / "checkpoint").is_dir()


def _run(folder: Path, *, lines: int | None = None) -> tuple[int, str]:
    """Runs in `folder / "run"`; killed once `lines` metrics are logged, where that is given."""
    command = [sys.executable, str(ROOT / "finetune.py"), "workload=program.py:build", "cluster=p100x2", "init=null", "policy=tiny"]
    command += ["finetune.evaluations=480", "finetune.search_evaluations=50", "snapshot_every_updates=3", "run_dir=run"]
    child = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    metrics = folder / "run" / "metrics.jsonl"
    while lines is not None and child.poll() is None and (not metrics.exists() or metrics.read_text().count("\n") < lines):
        time.sleep(0.005)
    if lines is not None:
        child.kill()
    _, err = child.communicate()
    return child.returncode, err


def _files(folder: Path) -> list[object]:
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    untimed = [{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows]
    return [json.loads((folder / "run" / name).read_text()) for name in ("result.json", "placement.json")] + [untimed]


@pytest.mark.slow
def test_a_run_that_was_killed_before_and_after_its_first_snapshot_ends_with_the_same_result(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    for folder in (whole, broken):
        folder.mkdir()
        (folder / "program.py").write_text(PROGRAM)
    assert _run(whole)[0] == 0
    assert _run(broken, lines=1)[0] == -9 and not (broken / "run" / "snapshot.pt").exists()
    assert _run(broken, lines=4)[0] == -9 and (broken / "run" / "snapshot.pt").exists()
    assert _run(broken)[0] == 0
    assert _files(broken) == _files(whole)
    (broken / "program.py").write_text(PROGRAM.replace("num_ops=60", "num_ops=61"))
    code, err = _run(broken)
    assert code == 2 and "the program changed since the run" in err
