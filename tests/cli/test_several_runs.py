"""Several runs of one command, a run again by its own configuration, and the sweep that W&B shares out."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from gdp.bundled import bundled
from gdp.cli.fill import fill
from gdp.cli.hydra_config import check_overrides, composed, resolved
from gdp.cli.launch import launch
from gdp.cli.multirun import several
from gdp.cli.quoted import quoted
from gdp.cli.saved_config import saved, saved_run
from gdp.cli.train_config import TrainConfig
from gdp.errors import InputError

NAME = f"name={quoted('it is not 1=2, is it?')}"
ROOT = Path(__file__).resolve().parent.parent.parent
SMALL = (
    "experiment=smoke",
    "workload.max_ops=40",
    "learner.updates=2",
    "imitation.steps=0",
    "policy.judge_width=0",
    "validation.synthetic=1",
)


def _config(*overrides: str) -> dict[str, Any]:
    return resolved(composed("train", ["run_dir=r", *overrides]))


def _keep(folder: Path, config: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))


def test_every_combination_is_a_run_and_has_a_folder_that_says_what_is_special() -> None:
    jobs = several("train", ["seed=0,1", "name=a", "policy=tiny,base"], composes=True)
    assert [(job.name, job.overrides) for job in jobs] == [
        (f"seed-{seed}+policy-{policy}", (f"seed={seed}", "name=a", f"policy={policy}")) for seed in (0, 1) for policy in ("tiny", "base")
    ]
    assert [job.name for job in several("train", ["seed=3"], composes=True)] == ["only"]
    assert [job.overrides[0] for job in several("train", ["seed=range(0,3)"], composes=True)] == ["seed=0", "seed=1", "seed=2"]


def test_an_experiment_may_ask_for_several_runs_and_the_command_line_has_the_last_word() -> None:
    jobs = several("train", ["experiment=three_seeds"], composes=True)
    assert [job.overrides for job in jobs] == [("experiment=three_seeds", f"seed={seed}") for seed in (0, 1, 2)]
    assert [job.overrides for job in several("train", ["experiment=three_seeds", "seed=7"], composes=True)] == [
        ("experiment=three_seeds", "seed=7")
    ]
    assert _config("experiment=three_seeds") == _config("experiment=tiny")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["seed=1,1"], "share the folder seed-1"),
        (["learner.clip=interval(0,1)"], "no single values"),
        (["seed=[1"], "cannot be read"),
        (["seed=range(0,100)", "name=" + ",".join(f"a{n}" for n in range(101))], "over 10000 runs"),
    ],
)
def test_what_makes_no_runs_is_refused(overrides: Sequence[str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        several("train", overrides, composes=True)


def test_one_run_that_cannot_be_configured_is_told_before_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch("train", lambda config, typed: 0, ["-m", "seed=0,1", "polcy=base", f"run_dir={tmp_path / 'all'}"]) == 2
    assert "did you mean 'policy'" in capsys.readouterr().err
    assert launch("train", lambda config, typed: 0, ["-m", "seed=0,1", "--cfg", "job"]) == 2
    assert "--cfg is an option of a single run" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_kept_configuration_is_that_of_the_run_with_values_and_groups_changed(tmp_path: Path) -> None:
    whole = _config("experiment=smoke", NAME)
    _keep(tmp_path, whole)
    assert saved("train", tmp_path, ["run_dir=r"]) == whole
    changed = saved("train", tmp_path, ["run_dir=r", "seed=7", "policy=base", "workload.presets=[p100x8]", "policy.hidden=32", "init=null"])
    assert changed == _config("experiment=smoke", NAME, "seed=7", "policy=base", "workload.presets=[p100x8]", "policy.hidden=32")
    assert str(saved("train", tmp_path, [])["run_dir"]).startswith("runs/train/")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("learner.udpates=3", "did you mean 'learner.updates'"),
        ("policy=tny", "did you mean 'tiny'"),
        ("experiment=tiny", "composed anew"),
        ("+seed=1", "adds or removes"),
        ("~seed", "adds or removes"),
        ("seed=1,2", "add -m"),
    ],
)
def test_a_mistake_beside_a_kept_configuration_is_told(tmp_path: Path, override: str, told: str) -> None:
    _keep(tmp_path, _config("experiment=smoke"))
    with pytest.raises(InputError, match=told):
        saved("train", tmp_path, [override])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"[1, 2]", "must hold keys and values"),
        (b"1: 2", "must hold keys and values"),
        (b"seed: 1\nseed: 2", "twice"),
        (b"\xff", "no YAML"),
        (b"[" * 10_000, "no YAML"),
        (b"x: !!python/object/apply:os.system [ls]", "no YAML"),
        (b"x: " + b"a" * 2**20, "at most"),
    ],
)
def test_a_hostile_configuration_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    (tmp_path / "config.yaml").write_bytes(data)
    with pytest.raises(InputError, match=told):
        saved("train", tmp_path, [])


def test_nothing_in_a_kept_configuration_is_looked_up_or_instantiated(tmp_path: Path) -> None:
    _keep(tmp_path, _config("experiment=smoke") | {"name": "${oc.env:HOME}"})
    assert saved("train", tmp_path, [])["name"] == "${oc.env:HOME}"
    _keep(tmp_path, _config("experiment=smoke") | {"policy": {"_target_": "os.system", "command": "ls"}})
    with pytest.raises(InputError, match="policy has no key '_target_'"):
        fill(TrainConfig, saved("train", tmp_path, ["run_dir=r"]), where="")


def test_config_path_names_a_run_or_a_folder_of_configurations(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "train.yaml").touch()
    _keep(tmp_path / "run", {})
    for flag in (["--config-path", str(tmp_path / "run")], [f"--config-path={tmp_path / 'run'}"], ["-cp", str(tmp_path / "run")]):
        assert saved_run("train", ["seed=1", *flag, "name=a"]) == (tmp_path / "run", ["seed=1", "name=a"])
    own = ["--config-path", str(tmp_path / "own")]
    assert saved_run("train", own) == (None, own)
    for arguments in (["--config-path"], ["--config-path", str(tmp_path)]):
        with pytest.raises(InputError, match="the folder of a run"):
            saved_run("train", arguments)


def test_the_sweep_of_wandb_makes_commands_that_configure_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B's own code makes the agent's command from the file; every value at the ends of its range must fill the configuration."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    monkeypatch.setenv("WANDB_RUN_ID", "abc")
    sweep = yaml.safe_load((bundled("conf") / "wandb_sweep.yaml").read_text())
    assert (ROOT / sweep["program"]).is_file() and f"`{sweep['metric']['name']}`" in (ROOT / "docs" / "metrics.md").read_text()
    for end in (0, -1):
        drawn = {name: {"value": (each.get("values") or [each["min"], each["max"]])[end]} for name, each in sweep["parameters"].items()}
        made = create_sweep_command_args({"args": drawn})
        parts = {"${env}": [], "${interpreter}": [], "${program}": [], "${args_no_hyphens}": made["args_no_hyphens"]}
        command = [word for part in create_sweep_command(list(sweep["command"])) for word in parts.get(part, [part])]
        check_overrides("train", command)
        settings = fill(TrainConfig, resolved(composed("train", command)), where="")
        assert str(settings.run_dir) == "runs/sweep/abc" and settings.tracker.kind == "wandb"
        assert settings.seed == drawn["seed"]["value"] and settings.policy.hidden == drawn["policy.hidden"]["value"]


@pytest.mark.slow
def test_two_runs_then_one_of_them_again_by_its_configuration(tmp_path: Path) -> None:
    def start(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, str(ROOT / "train.py"), *arguments]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env, check=False)

    done = start("-m", *SMALL, "seed=0,1", "learner.samples_per_update=8", "run_dir=all")
    assert done.returncode == 0, done.stderr
    assert "run 2 of 2: " in done.stderr and "2 runs in all" in done.stdout
    runs = [tmp_path / "all" / f"seed-{seed}" for seed in (0, 1)]
    weights = [(run / "checkpoint" / "model.safetensors").read_bytes() for run in runs]
    assert weights[0] != weights[1]
    for run in runs:
        last = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
        assert f"{last['valid/best_so_far']:.4g}" in done.stdout

    done = start("--config-path", "all/seed-1", "run_dir=again")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "checkpoint" / "model.safetensors").read_bytes() == weights[1]
    kept, again = (yaml.safe_load((folder / "config.yaml").read_text()) for folder in (runs[1], tmp_path / "again"))
    assert again == kept | {"run_dir": "again"}

    done = start("-m", "--config-path=all/seed-1", "learner.clip=0.1,9", "run_dir=third")
    assert done.returncode == 2 and "between 0 and 1" in done.stderr, done.stderr
    assert (tmp_path / "third" / "learner.clip-0.1" / "checkpoint").is_dir() and not (tmp_path / "third" / "learner.clip-9").exists()
    assert shlex.quote("learner.clip-9") in done.stdout
