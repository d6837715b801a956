"""What lies in a run folder is taken by runs of the settings that made it, and by no others."""

import dataclasses
from pathlib import Path

import pytest

from gdp.cli.fill import fill
from gdp.cli.hydra_config import composed, resolved
from gdp.cli.kept_work import MADE_WITH, claim_kept_work
from gdp.cli.train_config import TrainConfig
from gdp.errors import InputError


def _settings(folder: Path, *overrides: str) -> TrainConfig:
    return fill(TrainConfig, resolved(composed("train", ["experiment=tiny", f"run_dir={folder}", *overrides])), where="")


def test_what_was_made_is_taken_again_by_the_same_settings_and_by_what_does_not_touch_it(tmp_path: Path) -> None:
    claim_kept_work(_settings(tmp_path), cluster=None, init="a", graphs=None)
    assert (tmp_path / "judge" / MADE_WITH).exists() and (tmp_path / "targets" / MADE_WITH).exists()
    claim_kept_work(
        _settings(tmp_path, "num_threads=1", "imitation.steps=7", "workload.max_groups=64", "workload.cached_tasks=3"),
        cluster=None,
        init="a",
        graphs=None,
    )
    with pytest.raises(InputError, match="another graphs"):
        claim_kept_work(_settings(tmp_path), cluster=None, init="a", graphs="0123")


@pytest.mark.parametrize(
    ("overrides", "cluster", "init", "what"),
    [
        ((), None, "b", "judge holds what a run with another init"),
        ((), "c", "a", "judge holds what a run with another cluster"),
        (("seed=1",), None, "a", "judge holds what a run with another seed"),
        (("judging.rounds=9",), None, "a", "judge holds what a run with another judging"),
        (("imitation.search_evaluations=9",), None, "a", "targets holds what a run with another imitation.search_evaluations"),
    ],
)
def test_what_others_made_is_refused(tmp_path: Path, overrides: tuple[str, ...], cluster: str | None, init: str, what: str) -> None:
    claim_kept_work(_settings(tmp_path), cluster=None, init="a", graphs=None)
    with pytest.raises(InputError, match=what):
        claim_kept_work(_settings(tmp_path, *overrides), cluster=cluster, init=init, graphs=None)


def test_what_was_put_there_is_taken_and_what_is_not_needed_is_not_claimed(tmp_path: Path) -> None:
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "0.safetensors").touch()
    without = _settings(tmp_path)
    without = dataclasses.replace(without, imitation=dataclasses.replace(without.imitation, steps=0))
    claim_kept_work(without, cluster=None, init=None, graphs=None)
    assert (tmp_path / "judge" / MADE_WITH).exists() and not (tmp_path / "targets").exists()


def test_what_is_no_folder_or_no_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "judge").touch()
    with pytest.raises(InputError, match="judge.*Not a directory|cannot write .*judge"):
        claim_kept_work(_settings(tmp_path), cluster=None, init=None, graphs=None)
    (tmp_path / "judge").unlink()
    (tmp_path / "judge" / MADE_WITH).mkdir(parents=True)
    with pytest.raises(InputError, match="^the file .* is not a regular file; delete the folder it is in$"):
        claim_kept_work(_settings(tmp_path), cluster=None, init=None, graphs=None)
    (tmp_path / "judge" / MADE_WITH).rmdir()
    (tmp_path / "judge" / MADE_WITH).write_text("[]")
    with pytest.raises(InputError, match="must hold a JSON object"):
        claim_kept_work(_settings(tmp_path), cluster=None, init=None, graphs=None)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    claim_kept_work(_settings(tmp_path), cluster=None, init=None, graphs=None)
    (tmp_path / "judge" / MADE_WITH).write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        claim_kept_work(_settings(tmp_path), cluster=None, init=None, graphs=None)
