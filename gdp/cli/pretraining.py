"""Pretraining, from a configuration to a checkpoint: the loop of `gdp.learn` with its run folder, tracker, validation and snapshots."""

import dataclasses
import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console

from gdp.cli.configured_cluster import configured_cluster
from gdp.cli.pretraining_judge import teach_judge
from gdp.cli.pretraining_targets import open_targets, search_targets
from gdp.cli.pretraining_tasks import pretraining_source, pretraining_validation
from gdp.cli.process import stop_signal
from gdp.cli.progress import Advance, progress_bar, ratio_note
from gdp.cli.run_folder import (
    CLUSTER,
    METRICS,
    SNAPSHOT,
    Identity,
    holds_run_of,
    how_to_continue,
    identity,
    run_folder,
    run_id,
    source_commit,
    without_run_dir,
)
from gdp.cli.train_config import TrainConfig
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.hub.card import Card, Result, base_model_of
from gdp.hub.checkpoint import check_readable, read_config, save_checkpoint
from gdp.hub.load import load, resolve
from gdp.learn.imitation import imitate
from gdp.learn.learner import Learner, new_learner
from gdp.learn.loop import learn
from gdp.learn.snapshots import restore_snapshot, save_snapshot
from gdp.learn.sources import PretrainingTasks
from gdp.learn.targets import Targets, imitation_order
from gdp.learn.task import relative_reward
from gdp.learn.validation import Validated, Validation
from gdp.policy.policy import Policy
from gdp.tracking.choose import open_tracker, wandb_mode
from gdp.tracking.tracker import Tracker

CHECKPOINT = "checkpoint"
_NO_SCORE = math.inf


def pretrain(settings: TrainConfig, config: dict[str, Any], typed: Sequence[str]) -> int:
    """Runs to the end, or until it is asked to stop; `config` is the resolved configuration behind `settings`, `typed` the command line. Returns the exit code."""
    mode = wandb_mode(settings.tracker)
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda, but PyTorch sees no GPU here; device=cpu learns on the processor")
    settings, origin = _from_where(settings)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    folder = settings.run_dir
    continues = holds_run_of(folder, config, resume=settings.resume)
    cluster = configured_cluster(settings.cluster, settings.cluster_source, kept=folder / CLUSTER if continues else None)
    source, validation = pretraining_source(settings, cluster), pretraining_validation(settings)
    targets = open_targets(settings, cluster)
    own = identity(config, program=None, cluster=None if cluster is None else cluster.sha256, policy=origin)
    with stop_signal() as stop, run_folder(folder, config, own, cluster=cluster, resume=settings.resume):
        session = _Session.open(settings, config, own, typed, source=source, targets=targets, validation=validation)
        console.print(
            f"run folder {folder}; metrics in {folder / METRICS}" + ("" if mode != "disabled" else _no_wandb(settings)),
            markup=False,
        )
        try:
            session.teach_judge(cluster, stopped=stop, console=console)
            missing = targets.missing(session.imitation_order)
            if missing and not stop():
                with progress_bar(console, "searching placements to imitate", total=len(missing)) as advance:
                    search_targets(settings, cluster, missing, stopped=stop, advance=lambda done: advance(done, ""))
            asked = stop()
            with progress_bar(console, "pretraining", total=settings.imitation.steps + settings.learner.updates) as advance:
                for _ in session.updates(advance) if not asked else ():
                    asked = stop()
                    if asked:
                        session.snapshot()
                        break
            if asked:
                console.print(
                    f"stopped after update {session.learner.update}; continue with\n  {how_to_continue(typed, folder)}", markup=False
                )
                return 128 + asked
            session.finish()
        finally:
            session.tracker.close()
    console.print(f"checkpoint in {folder / CHECKPOINT}", markup=False)
    return 0


@dataclasses.dataclass(kw_only=True, eq=False)
class _Session:
    """What one process of a run holds."""

    settings: TrainConfig
    own: Identity
    typed: Sequence[str]
    """the command line."""
    learner: Learner
    source: PretrainingTasks
    targets: Targets
    validation: Validation | None
    tracker: Tracker
    best_score: float
    """lowest `valid/sampled_over_simple` so far; its policy is the checkpoint."""

    @staticmethod
    def open(
        settings: TrainConfig,
        config: dict[str, Any],
        own: Identity,
        typed: Sequence[str],
        *,
        source: PretrainingTasks,
        targets: Targets,
        validation: Validation | None,
    ) -> "_Session":
        """Builds the learner, and puts it into the state of the folder's snapshot where there is one."""
        policy = _first_policy(settings).to(settings.device)
        learner = new_learner(policy, parameters=list(policy.parameters()), seed=settings.seed)
        folder, best_score = settings.run_dir, _NO_SCORE
        if (folder / SNAPSHOT).exists():
            best_score = float(restore_snapshot(folder / SNAPSHOT, learner, run=own.name)["best_score"])
        tracker = open_tracker(
            settings.tracker,
            folder,
            name=settings.name,
            run_id=run_id(folder),
            resume_step=learner.imitation_step + learner.update,
            run_config=config,
        )
        return _Session(
            settings=settings,
            own=own,
            typed=typed,
            learner=learner,
            source=source,
            targets=targets,
            validation=validation,
            tracker=tracker,
            best_score=best_score,
        )

    @property
    def imitation_order(self) -> list[int]:
        return imitation_order(self.settings.workload.num_tasks, steps=self.settings.imitation.steps, seed=self.settings.seed)

    def teach_judge(self, cluster: Cluster | None, *, stopped: Callable[[], int], console: Console) -> None:
        """Before anything else, since nothing else depends on it."""
        if self.learner.policy.judge is not None:
            figures = teach_judge(self.settings, cluster, self.learner.policy.judge, stopped=stopped, console=console)
            if figures is not None:
                self.tracker.log(figures, step=0)

    def updates(self, advance: Advance) -> Iterator[None]:
        """The warm-up, then the loop; between two steps the session is whole."""
        settings, learner = self.settings, self.learner
        warm_up = imitate(
            learner,
            self.imitation_order,
            self.targets,
            config=settings.imitation,
            gradient_norm=settings.learner.gradient_norm,
            objective=settings.reward.objective,
        )
        validated = learner.imitation_step // settings.validation.every_imitation_steps
        for metrics in warm_up:
            due = learner.imitation_step // settings.validation.every_imitation_steps  # a task that cannot run has no step of its own
            if self.validation is not None and (due > validated or learner.imitation_step == settings.imitation.steps):
                metrics |= self._validate(self.validation)
            validated = due
            self.tracker.log(metrics, step=learner.imitation_step)
            advance(learner.imitation_step, f"imitation loss {metrics['imitation/loss']:.3f}")
            self._after_step(learner.imitation_step)
            yield
        reward = relative_reward(settings.reward)
        for update in learn(learner, self.source, reward, config=settings.learner, objective=settings.reward.objective):
            step = learner.imitation_step + update.number
            metrics = dict(update.metrics)
            if self.validation is not None and (
                update.number % settings.validation.every_updates == 0 or update.number == settings.learner.updates
            ):
                metrics |= self._validate(self.validation)
            self.tracker.log(metrics, step=step)
            advance(step, ratio_note(update.metrics.get("train/best_ratio")))
            self._after_step(update.number)
            yield

    def snapshot(self) -> None:
        save_snapshot(self.settings.run_dir / SNAPSHOT, self.learner, run=self.own.name, extra={"best_score": self.best_score})

    def finish(self) -> None:
        """The last snapshot, and the checkpoint where validation has not chosen one."""
        if self.best_score == _NO_SCORE and self.validation is not None:
            self._validate(self.validation)
        self.snapshot()
        if self.best_score == _NO_SCORE:
            self._save_checkpoint(None)

    def _after_step(self, number: int) -> None:
        if number % self.settings.snapshot_every_updates == 0:
            self.snapshot()

    def _validate(self, validation: Validation) -> dict[str, float]:
        began = time.perf_counter()
        result = validation(self.learner.policy)
        if result.metrics["valid/sampled_over_simple"] < self.best_score:
            self.best_score = result.metrics["valid/sampled_over_simple"]
            self._save_checkpoint(result)
        return result.metrics | {"valid/best_so_far": self.best_score, "time/validation_s": time.perf_counter() - began}

    def _save_checkpoint(self, result: Validated | None) -> None:
        config = (self.settings.run_dir / "config.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
        save_checkpoint(
            self.settings.run_dir / CHECKPOINT,
            self.learner.policy,
            card=self._card(result),
            metrics=None if result is None else result.metrics,
            train_config="".join(line for line in config if not line.startswith("run_dir:")),  # others need not know where
            replace=True,
        )

    def _taught(self) -> list[str]:
        """What the policy has been through."""
        judging, learner, base = self.settings.judging, self.learner, self.own.policy
        parts = [] if base is None else [f"from {base_model_of(self.settings.init, base[:12]) or 'another policy'} on"]
        if learner.policy.judge is not None:
            parts.append(f"a judge of moves taught by {judging.rounds * judging.tasks_per_round} searches")
        if learner.imitation_step:
            parts.append(f"{learner.imitation_step} steps of imitation of searched placements")
        return [*parts, f"{learner.update} updates of PPO"]

    def _card(self, result: Validated | None) -> Card:
        settings, workload = self.settings, self.settings.workload
        results: list[Result] = []
        if result is not None and self.validation is not None:
            results = [
                Result(
                    workload=task.name.rpartition("@")[0],
                    cluster=task.cluster.name,
                    split="validation",
                    evaluations=self.validation.num_samples + 1,
                    step_time_s=float(best_s),
                    baseline="one device, contiguous, METIS or list scheduling",
                    baseline_s=task.reference_s,
                )
                for task, best_s in zip(self.validation.tasks, result.best_s, strict=True)
                if np.isfinite(best_s)
            ]
        named = f"; workloads {', '.join(workload.workloads)} of the catalog" if workload.synthetic_fraction < 1 else ""
        return Card(
            name=settings.name,
            summary=f"A device-placement policy of the GDP family ({settings.policy.decoding} decoding, {settings.policy.passes} passes), "
            f"pretrained in the simulator on {settings.reward.objective.replace('_', ' ')}: {', '.join(self._taught())}.",
            recipe=shlex.join(without_run_dir(self.typed)),
            commit=source_commit(),
            corpus=f"{workload.num_tasks} pairs of graph and cluster, {100 * workload.synthetic_fraction:.0f} % of the graphs synthetic{named}",
            seeds=(settings.seed,),
            base_model=None if settings.init == settings.name else base_model_of(settings.init, self.own.policy),
            results=tuple(results),
            limits=f"Trained on at most {workload.max_groups} decisions a graph and on clusters of {workload.random_cluster.min_devices} to "
            f"{workload.random_cluster.max_devices} devices, in simulation alone; where one device is best, it need not say so.",
        )


def _from_where(settings: TrainConfig) -> tuple[TrainConfig, str | None]:
    """The settings with the sizes of the policy that the run starts from, and that policy's revision."""
    policy, features, revision, judge_width = settings.policy, settings.features, None, 0
    if settings.init is not None:
        resolved = resolve(settings.init)
        known = read_config(resolved.folder)
        policy = dataclasses.replace(known.policy, judge_width=known.policy.judge_width or policy.judge_width)
        features, revision, judge_width = known.features, resolved.revision, known.policy.judge_width
    if settings.reward.objective != "step_time":
        policy = dataclasses.replace(policy, judge_width=0)
    if policy.judge_width and not judge_width and not settings.judging.rounds:
        raise InputError(
            "judging.rounds is 0, but there is no judge to keep; policy.judge_width=0 leaves it out, judging.rounds=3 teaches one"
        )
    check_readable(policy, features)
    return dataclasses.replace(settings, policy=policy, features=features), revision


def _first_policy(settings: TrainConfig) -> Policy:
    """A new policy, or the one to go on from, with a new judge where it has none."""
    policy = Policy(settings.policy, settings.features, generator=torch.Generator().manual_seed(settings.seed))
    if settings.init is not None:
        known = {name: value for name, value in load(settings.init).state_dict().items() if name in policy.state_dict()}
        policy.load_state_dict(policy.state_dict() | known)
    return policy


def _no_wandb(settings: TrainConfig) -> str:
    return "; no W&B login: `wandb login`, or tracker=wandb tracker.mode=offline" if settings.tracker.kind == "auto" else ""
