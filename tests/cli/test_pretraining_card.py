"""What a card says of a training, against the configuration that it is of."""

from pathlib import Path

import pytest
import torch

from gdp.cli.fill import fill
from gdp.cli.hydra_config import composed, resolved
from gdp.cli.pretraining_card import card_of
from gdp.cli.train_config import TrainConfig
from gdp.hub.card import Card
from gdp.policy.policy import Policy


def card(tmp_path: Path, *overrides: str, imitation_steps: int = 0, updates: int = 0, went_on_from: str | None = None) -> Card:
    typed = ["train.py", *overrides, f"run_dir={tmp_path}"]
    settings = fill(TrainConfig, resolved(composed("train", typed[1:])), where="")
    return card_of(
        settings,
        policy=Policy(settings.policy, settings.features, generator=torch.Generator().manual_seed(0)),
        imitation_steps=imitation_steps,
        updates=updates,
        went_on_from=went_on_from,
        typed=typed,
        validation=None,
        result=None,
    )


@pytest.mark.parametrize(
    ("overrides", "steps", "updates", "told"),
    [
        (("experiment=tiny",), 7, 0, ": a judge of moves taught by 480 searches, 7 steps of imitation of searched placements."),
        (("experiment=tiny", "judging.rounds=0"), 7, 3, ": 7 steps of imitation of searched placements, 3 updates of PPO."),
        (("experiment=gdp_batch",), 0, 5, ": 5 updates of PPO."),
        (("experiment=gdp_batch",), 0, 0, ": not taught anything."),
    ],
)
def test_what_was_not_done_is_not_named(tmp_path: Path, overrides: tuple[str, ...], steps: int, updates: int, told: str) -> None:
    assert card(tmp_path, *overrides, imitation_steps=steps, updates=updates).summary.endswith(told)


def test_a_policy_that_went_on_from_another_says_from_which(tmp_path: Path) -> None:
    again = card(tmp_path, "experiment=again", "init=gdp-tiny", imitation_steps=9, went_on_from="ab" * 32)
    assert "from gdp-tiny" in again.summary and "searches" not in again.summary


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (("experiment=gdp_batch",), "on clusters p100x2, p100x4, p100x8, in simulation alone"),
        (("experiment=tiny",), "two-machines and random ones of 2 to 16 devices, in"),
        (("experiment=tiny", "cluster=p100x4"), "on the cluster p100x4 alone, in"),
        (("experiment=tiny", "workload.preset_fraction=0"), "on random ones of 2 to 16 devices, in"),
    ],
)
def test_the_clusters_are_those_that_tasks_are_drawn_on(tmp_path: Path, overrides: tuple[str, ...], told: str) -> None:
    assert told in card(tmp_path, *overrides).limits


def test_families_left_out_are_told_and_where_it_ran_is_not(tmp_path: Path) -> None:
    left_out = card(tmp_path, "experiment=gdp_batch", "workload.leave_out=[gnmt]")
    assert left_out.corpus.endswith("without gnmt") and str(tmp_path) not in left_out.recipe
