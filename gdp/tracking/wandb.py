"""Weights & Biases, online or offline. The package is imported only when it is asked for.

W&B's own step counter is never used: a run that continues would log steps that it has seen, which W&B drops. The step is a number like the others,
and every other number is declared to be drawn against it.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gdp.errors import InputError
from gdp.tracking.tracker import Value, finite

if TYPE_CHECKING:
    import wandb

STEP = "step"
SUMMARIES: dict[str, Literal["min", "max"]] = {
    "valid/*": "min",
    "judge/*": "min",
    "imitation/loss": "min",
    "train/best_ratio": "min",
    "train/reward_max": "max",
}
"""What W&B's table of runs shows of a number, where that is not the last one."""


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
        for name, summary in SUMMARIES.items():
            self._run.define_metric(name, step_metric=STEP, summary=summary)
        self._online = mode == "online"

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        self._run.log({**metrics, STEP: step})

    def table(self, name: str, rows: Sequence[Mapping[str, Value]], *, step: int) -> None:
        import wandb

        columns: list[str | int] = list(rows[0])
        data = [[finite(value) for value in row.values()] for row in rows]
        self._run.log({name: wandb.Table(columns=columns, data=data), STEP: step})

    def page(self, name: str, path: Path, *, step: int) -> None:
        import wandb

        self._run.log({name: wandb.Html(path.read_text(encoding="utf-8"), inject=False), STEP: step})

    def uses(self, name: str, kind: Literal["model", "dataset"], files: Sequence[Path], *, facts: Mapping[str, str]) -> None:
        """An edge of the lineage graph. W&B draws none offline; there the facts stand in the run's configuration alone."""
        self._run.config.update({f"uses/{kind}": {"name": name, **facts}}, allow_val_change=True)  # type: ignore[no-untyped-call]
        if self._online and files:
            self._run.use_artifact(_artifact(name, kind, files, facts))

    def checkpoint(self, name: str, folder: Path, *, facts: Mapping[str, str]) -> None:
        self._run.log_artifact(
            _artifact(name, "model", sorted(path for path in folder.iterdir() if path.is_file()), facts), aliases=["latest", "best"]
        )

    def summarise(self, facts: Mapping[str, Value]) -> None:
        self._run.summary.update(dict(facts))

    def close(self) -> None:
        self._run.finish()


def _artifact(name: str, kind: str, files: Sequence[Path], facts: Mapping[str, str]) -> "wandb.Artifact":
    import wandb

    artifact = wandb.Artifact(re.sub(r"[^\w.-]", "-", name)[:128], type=kind, metadata=dict(facts))
    for path in files:
        artifact.add_file(str(path))
    return artifact


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
