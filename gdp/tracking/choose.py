"""The trackers of a run, from its configuration."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gdp.errors import InputError
from gdp.tracking.jsonl import JsonlTracker
from gdp.tracking.tracker import Several, Tracker
from gdp.tracking.wandb import WandbTracker, check_login, has_login


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrackerConfig:
    """Where numbers go besides `metrics.jsonl`, which is always written."""

    kind: Literal["auto", "jsonl", "wandb"]
    """`auto` is W&B where there is a login or `WANDB_MODE` is set, else JSONL alone."""
    project: str
    """the W&B project."""
    mode: Literal["online", "offline", "disabled"]
    """of W&B; `offline` writes into the run folder, for `wandb sync` later."""

    def __post_init__(self) -> None:
        if self.kind not in ("auto", "jsonl", "wandb"):
            raise InputError(f"tracker.kind is {self.kind!r}; it must be auto, jsonl or wandb")
        if self.mode not in ("online", "offline", "disabled"):
            raise InputError(f"tracker.mode is {self.mode!r}; it must be online, offline or disabled")


def wandb_mode(config: TrackerConfig) -> Literal["online", "offline", "disabled"]:
    """How W&B is used in this run. Looks for a login where it matters.

    Raises `InputError` when W&B online is asked for in so many words and there is no login: call this before anything is allocated.
    """
    if config.kind == "jsonl" or config.mode == "disabled":
        return "disabled"
    if config.kind == "auto":
        wanted = os.environ.get("WANDB_MODE")
        if wanted in ("offline", "disabled"):
            return "offline" if wanted == "offline" else "disabled"
        return config.mode if has_login() else "disabled"
    if config.mode == "online":
        check_login()
    return config.mode


def open_tracker(
    config: TrackerConfig, folder: Path, *, name: str, run_id: str, resume_step: int, run_config: Mapping[str, object]
) -> Tracker:
    """Opens `metrics.jsonl` and `tables.jsonl` in the run folder, and W&B beside them where `wandb_mode` says so."""
    jsonl = JsonlTracker(folder, resume_step=resume_step)
    mode = wandb_mode(config)
    if mode == "disabled":
        return jsonl
    wandb = WandbTracker(folder, project=config.project, name=name, group=run_id, run_id=run_id, mode=mode, config=run_config)
    return Several([jsonl, wandb])
