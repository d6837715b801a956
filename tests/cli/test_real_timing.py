"""The main job with step times measured on this machine: fine-tuned, repeated in the same folder, and timed once more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CORES = sorted(os.sched_getaffinity(0))
PROGRAM = """
import torch

class Branches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one = torch.nn.Sequential(*[torch.nn.Linear(192, 192) for _ in range(4)])
        self.other = torch.nn.Sequential(*[torch.nn.Linear(192, 192) for _ in range(4)])

    def forward(self, x):
        return self.one(x) + self.other(x)

def build():
    return Branches().eval(), (torch.ones(256, 192),)
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")]


def _run(folder: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_a_finished_run_repeats_its_result_and_its_placement_can_be_timed(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    cores = [f"--cores=cpu:{core}" for core in CORES[:2]]
    _run(tmp_path, "-m", "gdp.cli.main", "devices", *cores, "--out", "machine.yaml")
    command = [
        str(ROOT / "finetune.py"),
        "workload=program.py:build",
        "cluster=machine.yaml",
        "runtime=pytorch",
        "init=null",
        "policy=tiny",
    ]
    command += ["finetune.evaluations=24", "finetune.zero_shot_samples=8", "finetune.search_evaluations=20", "learner.samples_per_update=8"]
    command += ["runtime.measured_per_update=1", "runtime.max_time_s=0.2", "run_dir=run"]
    _run(tmp_path, *command)
    first = json.loads((tmp_path / "run" / "result.json").read_text())
    measured = (tmp_path / "run" / "journal.jsonl").read_text()
    ran = [figures for figures in first["candidates"].values() if figures["status"] == "ok"]
    assert len(ran) >= 6 and all(figures["step_time_s"] > 0 and figures["predicted_step_time_s"] > 0 for figures in ran)
    best = first["candidates"][first["best"]]
    single_s = min(figures["step_time_s"] for name, figures in first["candidates"].items() if name.startswith("one device"))
    assert best["step_time_s"] <= single_s
    one_device = "one device is best" in first["verdict"]
    assert one_device == (first["against_one_device"] is None)
    assert one_device or first["against_one_device"]["verdict"] == "faster"
    assert first["against_all_cores_unplaced"]["num_pairs"] == 48
    assert "; without any placement, on all CPU cores, it takes" in first["verdict"]

    _run(tmp_path, *command)
    assert json.loads((tmp_path / "run" / "result.json").read_text()) == first
    assert (tmp_path / "run" / "journal.jsonl").read_text() == measured

    timed = _run(
        tmp_path, "-m", "gdp.cli.main", "bench", "run/placement.json", "program.py:build", "--cluster", "machine.yaml", "--pairs", "8"
    )
    assert "alone" in timed.stdout and "paired steps" in timed.stdout
