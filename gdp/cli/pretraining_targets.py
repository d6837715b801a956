"""The search for what imitation imitates, in processes of its own: every core searches, and what was found stays when the run is killed."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from gdp.cli.pretraining_judge import taught_judge
from gdp.cli.pretraining_tasks import pretraining_source
from gdp.cli.run_folder import TARGETS
from gdp.cli.search_processes import search_in_processes
from gdp.cli.train_config import TrainConfig
from gdp.cluster import Cluster
from gdp.hub.load import load
from gdp.learn.targets import Targets
from gdp.policy.judge import JudgeNetwork
from gdp.policy.policy import Policy

_own: tuple[Targets, JudgeNetwork | None, Policy | None] | None = None
"""Of a worker process."""


def open_targets(settings: TrainConfig, cluster: Cluster | None) -> Targets:
    """The targets of a run, in its folder."""
    return Targets(
        settings.run_dir / TARGETS,
        pretraining_source(settings, cluster),
        evaluations=settings.imitation.search_evaluations,
        objective=settings.reward.objective,
        seed=settings.seed,
    )


def search_targets(
    settings: TrainConfig,
    cluster: Cluster | None,
    missing: Sequence[int],
    *,
    expert: Path | None,
    stopped: Callable[[], int],
    advance: Callable[[int], None],
) -> None:
    """Searches the tasks of these numbers, with the run's judge where it has one, and the policy that it goes on from, whose folder `expert` is.

    `advance` hears how many are done. Ends early, with what is in hand finished, when `stopped`.
    """
    search_in_processes(
        _search,
        missing,
        num_processes=settings.num_threads,
        prepare=_open,
        prepared_with=(settings, cluster, expert),
        stopped=stopped,
        advance=advance,
    )


def _open(settings: TrainConfig, cluster: Cluster | None, folder: Path | None) -> None:
    global _own
    judge, expert = taught_judge(settings), None if folder is None else load(str(folder))
    if expert is not None and judge is not None:
        expert.judge = judge
    _own = open_targets(dataclasses.replace(settings, num_threads=1), cluster), judge, expert


def _search(number: int) -> None:
    assert _own is not None
    targets, judge, expert = _own
    targets.search(number, judge=judge, expert=expert)
