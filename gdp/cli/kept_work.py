"""What the judge's searches and the placements to imitate of a run folder were made with, so that a run of other settings does not take them for its own."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from gdp.atomic_file import write_text
from gdp.bounded_file import is_absent, read_bounded
from gdp.cli.run_folder import JUDGE, TARGETS
from gdp.cli.train_config import TrainConfig
from gdp.errors import InputError
from gdp.plain_json import parse_json

MADE_WITH = "made_with.json"
_MAX_FILE_BYTES = 2**20


def claim_kept_work(settings: TrainConfig, *, cluster: str | None, init: str | None, graphs: str | None) -> None:
    """Writes into `judge/` and `targets/` of the run folder what they are made with; one without such a file, as somebody may have put it there, is taken as it is.

    `cluster`, `init` and `graphs` are the hashes of the fixed cluster, of the policy that the run goes on from and of graphs that are none of the catalog.
    Raises `InputError` where they were made with anything else.
    """
    workload = dataclasses.asdict(settings.workload)
    for name in ("max_groups", "cached_tasks"):
        del workload[name]
    tasks = {"workload": workload, "seed": settings.seed, "cluster": cluster, "init": init}
    if graphs is not None:
        tasks["graphs"] = graphs
    judge = {**tasks, "judging": dataclasses.asdict(settings.judging), "policy.judge_width": settings.policy.judge_width}
    searched = {"imitation.search_evaluations": settings.imitation.search_evaluations, "reward.objective": settings.reward.objective}
    if settings.policy.judge_width and settings.judging.rounds:
        _claim(settings.run_dir / JUDGE, judge)
    if settings.imitation.steps:
        _claim(settings.run_dir / TARGETS, {**judge, **searched})


def _claim(folder: Path, own: dict[str, Any]) -> None:
    own = json.loads(json.dumps(own))
    path = folder / MADE_WITH
    if is_absent(path):
        write_text(path, json.dumps(own, indent=1) + "\n")
        return
    data = read_bounded(path, what="the file", advice="delete the folder it is in", max_bytes=_MAX_FILE_BYTES)
    try:
        kept = parse_json(data)
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}; name another run_dir, or delete {folder}") from error
    if kept != own:
        if not isinstance(kept, dict):
            raise InputError(f"{path} must hold a JSON object; name another run_dir, or delete {folder}")
        other = sorted(name for name in own if kept.get(name) != own[name])
        raise InputError(
            f"{folder} holds what a run with another {other[0] if other else 'configuration'} made; name another run_dir, or delete {folder} "
            f"({MADE_WITH} alone to use it all the same)"
        )
