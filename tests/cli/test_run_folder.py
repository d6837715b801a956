"""Whose a run folder is, and what may continue in it."""

import os
from pathlib import Path
from typing import Any

import pytest

from gdp.cli.run_folder import CLUSTER, SNAPSHOT, Identity, holds_run_of, how_to_continue, identity, run_folder
from gdp.cluster import preset, read_cluster
from gdp.errors import InputError

CONFIG: dict[str, Any] = {
    "seed": 0,
    "run_dir": "r",
    "learner": {"updates": 8, "learning_rate": 1e-3, "final_learning_rate": 1e-3},
}


def own(config: dict[str, Any] = CONFIG, *, program: str = "p", cluster: str = "c", policy: str = "v") -> Identity:
    return identity(config, program=program, cluster=cluster, policy=policy)


def begin(folder: Path, name: Identity, config: dict[str, Any] = CONFIG) -> None:
    with run_folder(folder, config, name, cluster=preset("p100x2"), resume="auto"):
        pass


def test_files_that_no_run_wrote_are_left_alone(tmp_path: Path) -> None:
    theirs = {"cluster.yaml": "mine", "config.yaml": "mine", "metrics.jsonl": "mine"}
    for name, text in theirs.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match="no run wrote"):
        holds_run_of(tmp_path, CONFIG, resume="auto")
    with pytest.raises(InputError, match="no run wrote"):
        begin(tmp_path, own())
    assert {name: (tmp_path / name).read_text() for name in theirs} == theirs
    with pytest.raises(InputError, match="is a file"):
        holds_run_of(tmp_path / "cluster.yaml", CONFIG, resume="auto")


def test_a_run_may_be_given_what_another_has_searched(tmp_path: Path) -> None:
    for name in ("targets", "judge"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_text("found")
    begin(tmp_path, own())
    assert holds_run_of(tmp_path, CONFIG, resume="auto")
    assert all((tmp_path / name / "0").read_text() == "found" for name in ("targets", "judge"))


def test_identity_leaves_out_what_does_not_touch_an_update() -> None:
    assert own(CONFIG | {"run_dir": "elsewhere", "resume": "never", "tracker": {"kind": "jsonl"}}) == own()
    assert own(CONFIG | {"workload": {"num_tasks": 9, "cached_tasks": 2}}) == own(
        CONFIG | {"workload": {"num_tasks": 9, "cached_tasks": 3}}
    )
    assert own(CONFIG | {"workload": {"num_tasks": 9, "cached_tasks": 2}}) != own(
        CONFIG | {"workload": {"num_tasks": 8, "cached_tasks": 2}}
    )
    assert own(CONFIG | {"seed": 1}) != own()
    assert own(CONFIG | {"learner": {**CONFIG["learner"], "updates": 16}}) == own()
    falling = CONFIG | {"learner": {**CONFIG["learner"], "final_learning_rate": 1e-4}}
    assert own(falling) != own(falling | {"learner": {**falling["learner"], "updates": 16}})


@pytest.mark.parametrize("part", ["program", "cluster", "policy"])
def test_a_run_of_something_else_is_not_continued(tmp_path: Path, part: str) -> None:
    begin(tmp_path, own())
    (tmp_path / SNAPSHOT).write_bytes(b"kept")
    begin(tmp_path, own())
    with pytest.raises(InputError, match=f"the {part} changed since the run"):
        begin(tmp_path, own(**{part: "other"}))
    with pytest.raises(InputError, match="another configuration"):
        holds_run_of(tmp_path, CONFIG | {"seed": 1}, resume="auto")
    with pytest.raises(InputError, match="resume=auto"):
        holds_run_of(tmp_path, CONFIG, resume="never")
    (tmp_path / "identity.json").write_bytes(b"[\xff")
    with pytest.raises(InputError, match="missing or damaged"):
        begin(tmp_path, own())
    assert (tmp_path / SNAPSHOT).read_bytes() == b"kept"


def test_before_the_first_snapshot_a_run_keeps_what_it_measured_and_another_one_starts_anew(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not holds_run_of(folder, CONFIG, resume="auto")
    begin(folder, own())
    (folder / "journal.jsonl").write_text("measured")
    assert holds_run_of(folder, CONFIG, resume="auto")
    begin(folder, own())
    assert (folder / "journal.jsonl").read_text() == "measured"
    assert read_cluster(folder / CLUSTER).sha256 == preset("p100x2").sha256
    begin(folder, own(program="other"))
    assert not (folder / "journal.jsonl").exists()


def test_a_pipe_in_the_place_of_the_identity_does_not_hold_anybody_up(tmp_path: Path) -> None:
    begin(tmp_path, own())
    (tmp_path / "identity.json").unlink()
    os.mkfifo(tmp_path / "identity.json")
    assert not holds_run_of(tmp_path, CONFIG, resume="auto")
    begin(tmp_path, own())
    assert holds_run_of(tmp_path, CONFIG, resume="auto")
    (tmp_path / SNAPSHOT).touch()
    (tmp_path / "identity.json").unlink()
    os.mkfifo(tmp_path / "identity.json")
    with pytest.raises(InputError, match="identity.json is missing or damaged"):
        begin(tmp_path, own())


def test_a_folder_in_the_place_of_a_file_is_told(tmp_path: Path) -> None:
    begin(tmp_path, own())
    (tmp_path / "identity.json").unlink()
    (tmp_path / "identity.json").mkdir()
    with pytest.raises(InputError, match="cannot write .*identity.json"):
        begin(tmp_path, own())


def test_a_huge_run_id_is_refused_unread(tmp_path: Path) -> None:
    begin(tmp_path, own())
    with open(tmp_path / "run_id", "r+b") as file:
        file.truncate(2**40)
    with pytest.raises(InputError, match="run_id has .* at most 100"):
        begin(tmp_path, own())


def test_a_refused_run_leaves_nothing_unless_it_has_logged(tmp_path: Path) -> None:
    for logged in (False, True):
        with (
            pytest.raises(InputError, match="no good"),
            run_folder(tmp_path / "run", CONFIG, own(), cluster=preset("p100x2"), resume="auto"),
        ):
            if logged:
                (tmp_path / "run" / "metrics.jsonl").write_text("{}\n")
            raise InputError("no good")
        assert (tmp_path / "run").exists() == logged


def test_the_command_that_continues_names_the_folder_once() -> None:
    typed = ["gdp-finetune", "workload=a b.py:f", "run_dir=x"]
    assert how_to_continue(typed, Path("my run")) == "gdp-finetune 'workload=a b.py:f' 'run_dir=my run'"
