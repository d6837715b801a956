"""`train.py` end to end, in processes of its own: it runs, stops, continues to the same bits, and says what it logs."""

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = (
    "experiment=smoke",
    "workload.max_ops=40",
    "learner.updates=8",
    "imitation.steps=3",
    "validation.every_updates=4",
    "snapshot_every_updates=1",
)


def _start(folder: Path, *overrides: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(ROOT / "train.py"), *SMALL, f"run_dir={folder}", *overrides]
    return subprocess.Popen(
        command, cwd=folder.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def _metrics(folder: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _result(folder: Path) -> tuple[str, list[dict[str, float | None]]]:
    untimed = [{name: value for name, value in row.items() if not name.startswith("time/")} for row in _metrics(folder)]
    return hashlib.sha256((folder / "checkpoint" / "model.safetensors").read_bytes()).hexdigest(), untimed


def _wait_for_lines(folder: Path, count: int, child: "subprocess.Popen[str]") -> None:
    while child.poll() is None and (
        not (folder / "metrics.jsonl").exists() or len((folder / "metrics.jsonl").read_text().splitlines()) < count
    ):
        time.sleep(0.02)


@pytest.mark.slow
def test_a_run_that_was_interrupted_and_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    child = _start(whole)
    _, errors = child.communicate()
    assert child.returncode == 0, errors
    steps = [row["step"] for row in _metrics(whole)]
    assert steps == sorted(set(steps)) and steps[-8:] == list(
        range(4, 12)
    )  # nothing runs in one of the four tasks: its step has no figures

    child = _start(broken)
    _wait_for_lines(broken, 2, child)
    child.send_signal(signal.SIGKILL)
    child.communicate()

    child = _start(broken)
    _wait_for_lines(broken, len(_metrics(broken)) + 2, child)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate()
    assert child.returncode == 130, errors
    assert "continue with" in errors and "run_dir=" in errors

    child = _start(broken)
    _, errors = child.communicate()
    assert child.returncode == 0, errors
    assert _result(broken) == _result(whole)

    shutil.rmtree(broken / "checkpoint")
    child = _start(broken)
    _, errors = child.communicate()
    assert child.returncode == 0 and (broken / "checkpoint" / "model.safetensors").exists(), errors

    child = _start(broken, "seed=1")
    _, errors = child.communicate()
    assert child.returncode == 2 and "another configuration" in errors
    glossary = set(re.findall(r"^\| `([a-z]+/[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text(), flags=re.MULTILINE))
    logged = {name for row in _metrics(whole) for name in row} - {"step"}
    assert logged <= glossary
    assert {name for name in glossary if not name.startswith(("finetune/", "explore/"))} == logged


@pytest.mark.slow
def test_going_on_from_a_policy_keeps_it_gives_it_a_judge_and_teaches_it_by_what_it_finds(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    nothing = ("imitation.steps=0", "learner.updates=0", "validation.synthetic=1")
    child = _start(first, *nothing, "policy.judge_width=0", "seed=3")
    _, errors = child.communicate()
    assert child.returncode == 0 and "judge" not in errors, errors
    assert not (first / "judge").exists()

    child = _start(second, *nothing, f"init={first / 'checkpoint'}", "policy=base", "policy.judge_width=8")
    _, errors = child.communicate()
    assert child.returncode == 0, errors
    before, after = (load_file(folder / "checkpoint" / "model.safetensors") for folder in (first, second))
    added = after.keys() - before.keys()
    assert added and all(name.startswith("judge.") for name in added) and after["judge.first.weight"].shape[0] == 8
    assert all(after[name].equal(value) for name, value in before.items())
    assert after["judge.deviation"].min() > 0 and after["judge.mean"].any()
    assert "judge/improves_loss" in _metrics(second)[0]
    summary = (second / "checkpoint" / "README.md").read_text().partition("## Training")[0]
    assert "from another policy on, a judge of moves taught by 3 searches" in summary and str(tmp_path) not in summary

    again = tmp_path / "again"
    child = _start(again, *nothing, "imitation.steps=4", f"init={second / 'checkpoint'}", "judging.rounds=0")
    _, errors = child.communicate()
    assert child.returncode == 0 and (again / "targets").is_dir() and not (again / "judge").exists(), errors
    iterated = load_file(again / "checkpoint" / "model.safetensors")
    assert all(iterated[name].equal(value) for name, value in after.items() if name.startswith("judge."))
    assert any(not iterated[name].equal(value) for name, value in after.items())

    on = tmp_path / "on"
    child = _start(on, *nothing, f"init={second / 'checkpoint'}")
    _, errors = child.communicate()
    assert child.returncode == 0, errors
    assert not (second / "judge" / "round-0.safetensors").exists(), "its first searches had no judge to ask"
    asked = load_file(on / "judge" / "round-0.safetensors")
    assert asked and all(after[f"judge.{name}"].equal(value) for name, value in asked.items())

    child = _start(tmp_path / "unjudged", *nothing, "policy.judge_width=8", "judging.rounds=0")
    _, errors = child.communicate()
    assert child.returncode == 2 and "no judge to keep" in errors
    child = _start(tmp_path / "third", *nothing, "init=gdp-tinny")
    _, errors = child.communicate()
    assert child.returncode == 2 and "did you mean 'gdp-tiny'" in errors


def test_the_glossary_holds_the_names_in_the_code_and_no_others() -> None:
    glossary = set(re.findall(r"^\| `([a-z]+/[a-z_]+)`", (ROOT / "docs" / "metrics.md").read_text(), flags=re.MULTILINE))
    sources = [*(ROOT / "gdp" / "learn").glob("*.py"), *(ROOT / "gdp" / "cli").glob("*.py")]
    logged = {
        name
        for path in sources
        for name in re.findall(r'"((?:train|valid|judge|imitation|finetune|explore|time)/[a-z_]+)"', path.read_text())
    }
    assert logged == glossary
