"""`train.py`, and `finetune.py` of what it made, told to W&B offline and read back: names, counts, artifacts, and what came of what."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gdp.capture.parquet import write_graphs
from gdp.workloads.synthetic import layered
from tests.tracking.wandb_file import Artifact, OfflineRun, read_offline_run, table_rows

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import numpy as np
from gdp.workloads.synthetic import layered
def build():
    return layered(np.random.default_rng(5), num_ops=60)
"""
OFFLINE = ("tracker=wandb", "tracker.mode=offline")


def _run(script: str, folder: Path, *overrides: str) -> OfflineRun:
    command = [sys.executable, str(ROOT / script), *overrides, *OFFLINE, f"run_dir={folder}"]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "WANDB_DATA_DIR": str(folder.parent)}
    done = subprocess.run(command, cwd=folder.parent, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    told = read_offline_run(folder)
    assert told.ended
    return told


def _write_graph(path: Path, *, seed: int) -> None:
    write_graphs(path, [layered(np.random.default_rng(seed), num_ops=40)])


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _assert_the_same_numbers(told: OfflineRun, folder: Path) -> None:
    """What W&B was told is what `metrics.jsonl` holds: every name, every value, line by line."""
    lines = _json_lines(folder / "metrics.jsonl")
    assert len(lines) == len(told.numbers()) > 0
    for line, row in zip(lines, told.numbers(), strict=True):
        assert row.keys() == line.keys()
        assert {name: value for name, value in row.items() if line[name] is not None} == {n: v for n, v in line.items() if v is not None}


def _assert_the_same_tables(told: OfflineRun, folder: Path, name: str) -> None:
    tables = [line["rows"] for line in _json_lines(folder / "tables.jsonl") if line["table"] == name]
    assert [table_rows(folder, table) for table in told.media(name)] == tables and tables


def _models(told: OfflineRun) -> list[Artifact]:
    return [artifact for artifact in told.artifacts if artifact.kind == "model"]


@pytest.mark.slow
def test_two_runs_hold_what_they_logged_and_say_what_came_of_what(tmp_path: Path) -> None:
    trained, adapted = tmp_path / "trained", tmp_path / "adapted"
    small = ("imitation.steps=2", "learner.updates=4", "validation.every_updates=2", "workload.max_ops=40", "judging.rounds=0")
    learned = ("workload.synthetic_fraction=0.5", "workload.workloads=[rnnlm-2-training,mine.parquet]", "workload.max_groups=32")
    _write_graph(tmp_path / "mine.parquet", seed=1)
    told = _run("train.py", trained, "experiment=smoke", *small, *learned, "policy.judge_width=0")
    _assert_the_same_numbers(told, trained)
    _assert_the_same_tables(told, trained, "validation")
    assert told.config["name"] == "smoke" and told.config["environment"]["gdp"]
    assert told.config["uses/dataset"]["stored_graphs"] == "mine, rnnlm-2-training"
    best = _models(told)[-1]
    assert best.name == "smoke" and best.metadata == {name: told.config["uses/dataset"][name] for name in best.metadata}
    files = {path.name: path.stat().st_size for path in (trained / "checkpoint").iterdir()}
    assert best.sizes_bytes == files
    assert told.summary["updates"] == 4 and told.summary["best_validation"] == min(
        line["valid/sampled_over_simple"] for line in _json_lines(trained / "metrics.jsonl") if "valid/sampled_over_simple" in line
    )

    _write_graph(tmp_path / "mine.parquet", seed=2)
    with pytest.raises(AssertionError, match="name another run_dir"):
        _run("train.py", trained, "experiment=smoke", *small, *learned, "policy.judge_width=0")

    (tmp_path / "program.py").write_text(PROGRAM)
    evaluations = ("finetune.evaluations=200", "finetune.search_evaluations=40")
    told = _run("finetune.py", adapted, "workload=program.py:build", "cluster=p100x2", f"init={trained / 'checkpoint'}", *evaluations)
    _assert_the_same_numbers(told, adapted)
    _assert_the_same_tables(told, adapted, "placements")
    result = json.loads((adapted / "result.json").read_text())
    (rows,) = [line["rows"] for line in _json_lines(adapted / "tables.jsonl")]
    assert {row["candidate"]: row["predicted_s"] for row in rows} == {
        name: figures["step_time_s"] for name, figures in result["candidates"].items()
    }
    (page,) = told.media("report")
    assert page["size"] == (adapted / "report.html").stat().st_size
    (model,) = _models(told)
    assert model.name == "checkpoint-finetuned"
    assert model.metadata["base_revision"] == told.config["uses/model"]["revision"]
    assert told.summary["best"] == result["best"] and told.summary["verdict"] == result["verdict"]
