import json
import os
import struct
import time
from pathlib import Path

import pytest

from gdp.errors import InputError
from gdp.tracking.choose import TrackerConfig, open_tracker, wandb_mode
from gdp.tracking.jsonl import JsonlTracker


def _lines(path: Path) -> list[dict[str, float | None]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_numbers_become_lines_and_infinities_null(tmp_path: Path) -> None:
    tracker = JsonlTracker(tmp_path / "m.jsonl", resume_step=0)
    tracker.log({"train/loss": 0.5, "x": float("inf")}, step=1)
    tracker.close()
    assert _lines(tmp_path / "m.jsonl") == [{"step": 1, "train/loss": 0.5, "x": None}]


def test_a_run_that_continues_holds_every_step_once(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    first = JsonlTracker(path, resume_step=0)
    for step in (1, 2, 3):
        first.log({"a": float(step)}, step=step)
    first.close()
    path.write_text(path.read_text() + '{"step": 4, "a"')  # killed in the middle of a line
    second = JsonlTracker(path, resume_step=2)
    second.log({"a": 3.5}, step=3)
    second.close()
    assert _lines(path) == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}, {"step": 3, "a": 3.5}]


def test_a_pipe_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.jsonl")
    with pytest.raises(InputError, match="not a regular file; move it away"):
        JsonlTracker(tmp_path / "m.jsonl", resume_step=0)


def test_what_is_no_line_of_a_run_is_dropped_and_a_folder_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes(
        b'{"step": 1, "a": 1.0}\n[1]\n{}\n3\nnull\n{"step": "x"}\n{"step": true}\n{"step": 1, "a": NaN}\n\xff\xfe\n{"step": 2, "a": 2.0}\n'
    )
    JsonlTracker(path, resume_step=2).close()
    assert _lines(path) == [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}]
    with pytest.raises(InputError, match="not a regular file"):
        JsonlTracker(tmp_path, resume_step=2)


def _wandb_records(path: Path) -> list[object]:
    """The records of an offline file: a LevelDB log (32 KiB blocks; crc, length, type before each piece) of protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    data, position, whole, records = path.read_bytes(), 7, b"", []
    while position + 7 <= len(data):
        if 32768 - position % 32768 < 7:
            position += 32768 - position % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        whole += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, last
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            records.append(record)
            whole = b""
    return records


@pytest.mark.filterwarnings("ignore")
def test_offline_wandb_file_holds_what_was_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    config = TrackerConfig(kind="wandb", project="gdp", mode="offline")
    tracker = open_tracker(config, tmp_path, name="n", run_id="abc", resume_step=0, run_config={"seed": 1})
    for step in (1, 2):
        tracker.log({"train/loss": step / 4}, step=step)
    tracker.close()
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    deadline = time.monotonic() + 30  # W&B's own process writes the file, and may still be at it
    while len(records := _wandb_records(file)) < 4 and time.monotonic() < deadline:
        time.sleep(0.1)
    history = [
        {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.WhichOneof("record_type") == "history"
    ]
    assert [(row["step"], row["train/loss"]) for row in history] == [(1, 0.25), (2, 0.5)]
    metrics = [record.metric for record in records if record.WhichOneof("record_type") == "metric"]
    assert any(metric.glob_name == "*" and metric.step_metric == "step" for metric in metrics)
    assert len(_lines(tmp_path / "metrics.jsonl")) == 2


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
