import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from gdp.errors import InputError
from gdp.tracking.choose import TrackerConfig, open_tracker, wandb_mode
from gdp.tracking.jsonl import JsonlTracker
from tests.tracking.wandb_file import OfflineRun, read_offline_run, table_rows


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_numbers_become_lines_and_infinities_null(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path, resume_step=0)
    tracker.log({"train/loss": 0.5, "x": float("inf")}, step=1)
    tracker.table("t", [{"a": 1, "b": float("nan"), "c": None}], step=1)
    tracker.close()
    assert _lines(tmp_path / "tables.jsonl") == [{"step": 1, "table": "t", "rows": [{"a": 1, "b": None, "c": None}]}]
    assert _lines(tmp_path / "metrics.jsonl") == [{"step": 1, "train/loss": 0.5, "x": None}]


def test_a_run_that_continues_holds_every_step_once(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    first = JsonlTracker(tmp_path, resume_step=0)
    for step in (1, 2, 3):
        first.log({"a": float(step)}, step=step)
        first.table("t", [{"a": step}], step=step)
    first.close()
    path.write_text(path.read_text() + '{"step": 4, "a"')  # killed in the middle of a line
    second = JsonlTracker(tmp_path, resume_step=2)
    second.log({"a": 3.5}, step=3)
    second.close()
    assert _lines(path) == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}, {"step": 3, "a": 3.5}]
    assert [row["step"] for row in _lines(tmp_path / "tables.jsonl")] == [1, 2]


def test_a_pipe_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(InputError, match="not a regular file; move it away"):
        JsonlTracker(tmp_path, resume_step=0)


def test_what_is_no_line_of_a_run_is_dropped_and_a_folder_refused(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(
        b'{"step": 1, "a": 1.0}\n[1]\n{}\n3\nnull\n{"step": "x"}\n{"step": true}\n{"step": 1, "a": NaN}\n\xff\xfe\n{"step": 2, "a": 2.0}\n'
    )
    JsonlTracker(tmp_path, resume_step=2).close()
    assert _lines(path) == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}]
    path.unlink()
    path.mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        JsonlTracker(tmp_path, resume_step=2)


@pytest.mark.filterwarnings("ignore")
def test_offline_wandb_file_holds_exactly_what_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    run, checkpoint = tmp_path / "run", tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"12345")
    (tmp_path / "page.html").write_text("<p>a page</p>")
    config = TrackerConfig(kind="wandb", project="gdp", mode="offline")
    tracker = open_tracker(config, run, name="n", run_id="abc", resume_step=0, run_config={"seed": 1, "policy": {"hidden": 8}})
    tracker.uses("gdp-tiny", "model", [checkpoint / "model.safetensors"], facts={"revision": "0123"})
    tracker.table("placements", [{"name": "a", "time_s": 0.5, "gpus": None}, {"name": "b", "time_s": float("inf"), "gpus": 2}], step=1)
    for step in (1, 2):
        tracker.log({"train/loss": step / 4, "valid/best": float("nan") if step == 1 else 1.5}, step=step)
    tracker.page("report", tmp_path / "page.html", step=2)
    tracker.checkpoint("a name/with: signs", checkpoint, facts={"base_model": "gdp-tiny"})
    tracker.summarise({"best_s": 0.5, "verdict": "well"})
    tracker.close()
    told = _closed(run)
    assert [{"step": row["step"], "train/loss": row["train/loss"]} for row in told.numbers()] == [
        {"step": 1, "train/loss": 0.25},
        {"step": 2, "train/loss": 0.5},
    ]
    assert told.numbers()[1]["valid/best"] == 1.5
    assert told.config["seed"] == 1 and told.config["policy"] == {"hidden": 8}
    assert told.config["uses/model"] == {"name": "gdp-tiny", "revision": "0123"}
    assert told.axes["*"] == "step" == told.axes["valid/*"] and told.summaries["valid/*"] == "min"
    (table,) = told.media("placements")
    assert table_rows(run, table) == [{"name": "a", "time_s": 0.5, "gpus": None}, {"name": "b", "time_s": None, "gpus": 2}]
    (page,) = told.media("report")
    assert page["_type"] == "html-file"
    (artifact,) = [artifact for artifact in told.artifacts if artifact.kind == "model"]
    assert artifact.name == "a-name-with--signs" and set(artifact.aliases) == {"latest", "best"}
    assert artifact.sizes_bytes == {"model.safetensors": 5} and artifact.metadata == {"base_model": "gdp-tiny"}
    assert told.summary["best_s"] == 0.5 and told.summary["verdict"] == "well"
    assert len(_lines(run / "metrics.jsonl")) == 2
    assert _lines(run / "tables.jsonl") == [{"step": 1, "table": "placements", "rows": table_rows(run, table)}]


def _closed(folder: Path) -> OfflineRun:
    """W&B's own process writes the file, and may still be at it when the run has ended."""
    deadline = time.monotonic() + 30
    while not (told := read_offline_run(folder)).ended and time.monotonic() < deadline:
        time.sleep(0.1)
    return told


def test_wandb_online_without_a_login_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _log_out(tmp_path, monkeypatch)
    with pytest.raises(InputError, match="wandb login"):
        wandb_mode(TrackerConfig(kind="wandb", project="gdp", mode="online"))
    assert wandb_mode(TrackerConfig(kind="wandb", project="gdp", mode="offline")) == "offline"


def test_auto_falls_back_to_the_file_without_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _log_out(tmp_path, monkeypatch)
    auto = TrackerConfig(kind="auto", project="gdp", mode="online")
    assert wandb_mode(auto) == "disabled"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert wandb_mode(auto) == "offline"
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    assert wandb_mode(auto) == "online"


def _log_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("NETRC", str(folder / "netrc"))
