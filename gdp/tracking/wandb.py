"""Weights & Biases, online or offline. The package is imported only when it is asked for.

W&B's own step counter is never used: a run that continues would log steps that it has seen, which W&B drops. The step is a number like the others,
and every other number is declared to be drawn against it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from gdp.errors import InputError

STEP = "step"


class WandbTracker:
    """One W&B run. `run_id` continues an online run; an offline run continues as a new segment in the same `group`."""

    def __init__(
        self,
        folder: Path,
        *,
        project: str,
        name: str,
        group: str,
        run_id: str,
        mode: Literal["online", "offline"],
        config: Mapping[str, object],
    ) -> None:
        import wandb

        folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=project,
            name=name,
            group=group,
            id=run_id if mode == "online" else None,
            resume="allow" if mode == "online" else None,
            mode=mode,
            dir=str(folder),
            config=dict(config),
            settings=wandb.Settings(silent=True, console="off", x_disable_stats=True, x_save_requirements=False),
        )
        self._run.define_metric(STEP, hidden=True)
        self._run.define_metric("*", step_metric=STEP)

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        self._run.log({**metrics, STEP: step})

    def close(self) -> None:
        self._run.finish()


def has_login() -> bool:
    """Whether W&B can be used online without asking for a key: from the environment or a former `wandb login`."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import wandb

    return bool(wandb.api.api_key)


def check_login() -> None:
    """Raises `InputError` when W&B online was asked for and there is no key."""
    if not has_login():
        raise InputError(
            "tracker=wandb needs a login and there is none: run `wandb login`, or use tracker=wandb tracker.mode=offline, or tracker=jsonl"
        )
