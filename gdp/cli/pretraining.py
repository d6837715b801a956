"""Pretraining, from a configuration to a checkpoint: the loop of `gdp.learn` with its run folder, tracker, validation and snapshots."""

import dataclasses
import math
import shlex
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console

from gdp.cli.configured_cluster import configured_cluster
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
from gdp.cluster import Cluster, preset
from gdp.hub.card import Card, Result
from gdp.hub.checkpoint import save_checkpoint
from gdp.learn.imitation import imitate
from gdp.learn.learner import Learner, new_learner
from gdp.learn.loop import learn
from gdp.learn.snapshots import restore_snapshot, save_snapshot
from gdp.learn.sources import PretrainingTasks
from gdp.learn.task import make_task, relative_reward
from gdp.learn.validation import Validated, Validation
from gdp.policy.policy import Policy
from gdp.runtime.simulator import Simulator
from gdp.tracking.choose import open_tracker, wandb_mode
from gdp.tracking.tracker import Tracker
from gdp.workloads.catalog import CATALOG, Workload, workload

CHECKPOINT = "checkpoint"
_NO_SCORE = math.inf


def pretrain(settings: TrainConfig, config: dict[str, Any], typed: Sequence[str]) -> int:
    """Runs to the end, or until it is asked to stop; `config` is the resolved configuration behind `settings`, `typed` the command line. Returns the exit code."""
    mode = wandb_mode(settings.tracker)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    folder = settings.run_dir
    continues = holds_run_of(folder, config, resume=settings.resume)
    cluster = configured_cluster(settings.cluster, settings.cluster_source, kept=folder / CLUSTER if continues else None)
    source, validation = _source(settings, cluster), _validation(settings)
    own = identity(config, program=None, cluster=None if cluster is None else cluster.sha256, policy=None)
    with stop_signal() as stop, run_folder(folder, config, own, cluster=cluster, resume=settings.resume):
        session = _Session.open(settings, config, own, typed, source=source, validation=validation)
        console.print(
            f"run folder {folder}; metrics in {folder / METRICS}" + ("" if mode != "disabled" else _no_wandb(settings)),
            markup=False,
        )
        try:
            with progress_bar(console, "pretraining", total=settings.imitation.steps + settings.learner.updates) as advance:
                asked = 0
                for _ in session.updates(advance):
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
        validation: Validation | None,
    ) -> "_Session":
        """Builds the learner, and puts it into the state of the folder's snapshot where there is one."""
        policy = Policy(settings.policy, settings.features, generator=torch.Generator().manual_seed(settings.seed))
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
            validation=validation,
            tracker=tracker,
            best_score=best_score,
        )

    def updates(self, advance: Advance) -> Iterator[None]:
        """The warm-up, then the loop; between two steps the session is whole."""
        settings, learner = self.settings, self.learner
        warm_up = imitate(
            learner,
            self.source,
            config=settings.imitation,
            gradient_norm=settings.learner.gradient_norm,
            objective=settings.reward.objective,
            seed=settings.seed,
        )
        for metrics in warm_up:
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
        save_checkpoint(
            self.settings.run_dir / CHECKPOINT,
            self.learner.policy,
            card=self._card(result),
            metrics=None if result is None else result.metrics,
            train_config=(self.settings.run_dir / "config.yaml").read_text(encoding="utf-8"),
            replace=True,
        )

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
            f"pretrained in the simulator for {self.learner.update} updates on {settings.reward.objective.replace('_', ' ')}.",
            recipe=shlex.join(without_run_dir(self.typed)),
            commit=source_commit(),
            corpus=f"{workload.num_tasks} pairs of graph and cluster, {100 * workload.synthetic_fraction:.0f} % of the graphs synthetic{named}",
            seeds=(settings.seed,),
            results=tuple(results),
            limits=f"Trained on at most {workload.max_groups} decisions a graph and on clusters of {workload.random_cluster.min_devices} to "
            f"{workload.random_cluster.max_devices} devices, in simulation alone; where one device is best, it need not say so.",
        )


def _source(settings: TrainConfig, cluster: Cluster | None) -> PretrainingTasks:
    return PretrainingTasks(
        settings.workload,
        workloads=[(entry.name, entry.build) for entry in _workloads(settings.workload.workloads, split="pretraining")]
        if settings.workload.synthetic_fraction < 1
        else [],
        clusters=[preset(name) for name in settings.workload.presets],
        fixed_cluster=cluster,
        num_threads=settings.num_threads,
        features=settings.features,
        objective=settings.reward.objective,
        seed=settings.seed,
    )


def _workloads(names: tuple[str, ...], *, split: str) -> list[Workload]:
    return [entry for entry in CATALOG if entry.split == split] if names == ("*",) else [workload(name) for name in names]


def _validation(settings: TrainConfig) -> Validation | None:
    config = settings.validation
    graphs = [(entry.name, entry.build(), entry.dispatch) for entry in _workloads(config.workloads, split="validation")]
    if config.synthetic:
        unseen = PretrainingTasks(
            dataclasses.replace(settings.workload, synthetic_fraction=1.0, num_tasks=config.synthetic, program_order_fraction=0.0),
            workloads=[],
            clusters=[],
            fixed_cluster=preset(config.presets[0]),
            num_threads=settings.num_threads,
            features=settings.features,
            objective=settings.reward.objective,
            seed=settings.seed + 1_000_003,
        )
        tasks = [unseen.task(number) for number in range(config.synthetic)]
        graphs += [(task.name, task.graph, "ready_order") for task in tasks if task is not None]
    made = [
        make_task(
            f"{name}@{cluster.name}",
            graph,
            cluster,
            runtime=Simulator(dispatch=dispatch, num_threads=settings.num_threads),
            features=settings.features,
            max_groups=settings.workload.max_groups,
            objective=settings.reward.objective,
        )
        for name, graph, dispatch in graphs
        for cluster in map(preset, config.presets)
    ]
    return Validation(made, num_samples=config.num_samples, objective=settings.reward.objective) if made else None


def _no_wandb(settings: TrainConfig) -> str:
    return "; no W&B login: `wandb login`, or tracker=wandb tracker.mode=offline" if settings.tracker.kind == "auto" else ""
