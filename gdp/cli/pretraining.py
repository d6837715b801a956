"""Pretraining, from a configuration to a checkpoint: the loop of `gdp.learn` with its run folder, tracker, validation and snapshots."""

import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from gdp.cli.configured_cluster import configured_cluster
from gdp.cli.kept_work import claim_kept_work
from gdp.cli.pretraining_card import card_of
from gdp.cli.pretraining_judge import teach_judge
from gdp.cli.pretraining_targets import open_targets, search_targets
from gdp.cli.pretraining_tasks import corpus_facts, own_graphs, pretraining_source, pretraining_validation, stored_graphs
from gdp.cli.process import stop_signal
from gdp.cli.progress import Advance, progress_bar, ratio_note
from gdp.cli.report_data import environment
from gdp.cli.run_folder import (
    CLUSTER,
    SNAPSHOT,
    Identity,
    holds_run_of,
    how_to_continue,
    identity,
    run_folder,
    run_id,
)
from gdp.cli.train_config import TrainConfig
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.hub.checkpoint import CONFIG, check_readable, files_of, read_config, save_checkpoint
from gdp.hub.load import Resolved, load, resolve
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
from gdp.tracking.jsonl import METRICS
from gdp.tracking.tracker import Tracker

CHECKPOINT = "checkpoint"
_NO_SCORE = math.inf


def pretrain(settings: TrainConfig, config: dict[str, Any], typed: Sequence[str]) -> int:
    """Runs to the end, or until it is asked to stop; `config` is the resolved configuration behind `settings`, `typed` the command line. Returns the exit code."""
    mode = wandb_mode(settings.tracker)
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda, but PyTorch sees no GPU here; device=cpu learns on the processor")
    known = None if settings.init is None else resolve(settings.init)
    origin = None if known is None else known.revision
    settings = _with_sizes_of(settings, None if known is None else known.folder)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    folder = settings.run_dir
    continues = holds_run_of(folder, config, resume=settings.resume)
    cluster = configured_cluster(settings.cluster, settings.cluster_source, kept=folder / CLUSTER if continues else None)
    source, validation = pretraining_source(settings, cluster), pretraining_validation(settings)
    targets = open_targets(settings, cluster)
    graphs = own_graphs(settings)
    own = identity(config, program=graphs, cluster=None if cluster is None else cluster.sha256, policy=origin)
    with stop_signal() as stop, run_folder(folder, config, own, cluster=cluster, resume=settings.resume):
        claim_kept_work(settings, cluster=own.cluster, init=origin, graphs=graphs)
        before = None if known is None else load(str(known.folder))
        session = _Session.open(
            settings, config, own, typed, known=known, before=before, source=source, targets=targets, validation=validation
        )
        console.print(
            f"run folder {folder}; metrics in {folder / METRICS}" + ("" if mode != "disabled" else _no_wandb(settings)),
            markup=False,
        )
        try:
            goes_on = before is not None and before.judge is not None
            session.teach_judge(cluster, goes_on=goes_on, stopped=stop, console=console)
            missing = targets.missing(session.imitation_order)
            if missing and not stop():
                with progress_bar(console, "searching placements to imitate", total=len(missing)) as advance:
                    expert = None if known is None else known.folder
                    search_targets(settings, cluster, missing, expert=expert, stopped=stop, advance=lambda done: advance(done, ""))
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
    made_from: Mapping[str, str]
    """facts of a checkpoint: the corpus, and the policy that the run went on from."""
    best_score: float
    """lowest `valid/sampled_over_simple` so far; its policy is the checkpoint."""

    @staticmethod
    def open(
        settings: TrainConfig,
        config: dict[str, Any],
        own: Identity,
        typed: Sequence[str],
        *,
        known: Resolved | None,
        before: Policy | None,
        source: PretrainingTasks,
        targets: Targets,
        validation: Validation | None,
    ) -> "_Session":
        """Builds the learner, with the weights of the policy `before` it, and puts it into the state of the folder's snapshot where there is one."""
        policy = _first_policy(settings, before).to(settings.device)
        learner = new_learner(policy, parameters=list(policy.parameters()), seed=settings.seed)
        folder, best_score = settings.run_dir, _NO_SCORE
        if (folder / SNAPSHOT).exists():
            best_score = _best_score(restore_snapshot(folder / SNAPSHOT, learner, run=own.name), folder)
        tracker = open_tracker(
            settings.tracker,
            folder,
            name=settings.name,
            run_id=run_id(folder),
            resume_step=learner.imitation_step + learner.update,
            run_config=config | {"environment": environment()},
        )
        made_from = corpus_facts(settings)
        tracker.uses("gdp-corpus", "dataset", list(stored_graphs(settings).values()), facts=made_from)
        if known is not None:
            tracker.uses(known.name, "model", files_of(known.folder), facts={"revision": known.revision})
            made_from |= {"base_model": known.name, "base_revision": known.revision}
        return _Session(
            settings=settings,
            own=own,
            typed=typed,
            learner=learner,
            source=source,
            targets=targets,
            validation=validation,
            tracker=tracker,
            made_from=made_from,
            best_score=best_score,
        )

    @property
    def imitation_order(self) -> list[int]:
        return imitation_order(self.settings.workload.num_tasks, steps=self.settings.imitation.steps, seed=self.settings.seed)

    def teach_judge(self, cluster: Cluster | None, *, goes_on: bool, stopped: Callable[[], int], console: Console) -> None:
        """Before anything else, since it depends on nothing else; it `goes_on` from the judge of another policy, or begins anew."""
        judge = self.learner.policy.judge
        if judge is not None:
            figures = teach_judge(self.settings, cluster, judge, goes_on=goes_on, stopped=stopped, console=console)
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
        note = ""
        for metrics in warm_up:
            step = learner.imitation_step
            if metrics:
                note = f"imitation loss {metrics['imitation/loss']:.3f}"
            if self.validation is not None and (step % settings.validation.every_imitation_steps == 0 or step == settings.imitation.steps):
                metrics |= self._validate(self.validation, step)
            if metrics:
                self.tracker.log(metrics, step=step)
            advance(step, note)
            self._after_step(step)
            yield
        reward = relative_reward(settings.reward)
        for update in learn(learner, self.source, reward, config=settings.learner, objective=settings.reward.objective):
            step = learner.imitation_step + update.number
            metrics = dict(update.metrics)
            if self.validation is not None and (
                update.number % settings.validation.every_updates == 0 or update.number == settings.learner.updates
            ):
                metrics |= self._validate(self.validation, step)
            self.tracker.log(metrics, step=step)
            advance(step, ratio_note(update.metrics.get("train/best_ratio")))
            self._after_step(update.number)
            yield

    def snapshot(self) -> None:
        save_snapshot(self.settings.run_dir / SNAPSHOT, self.learner, run=self.own.name, extra={"best_score": self.best_score})

    def finish(self) -> None:
        """The last snapshot, and the checkpoint where validation has not chosen one."""
        if self.best_score == _NO_SCORE and self.validation is not None:
            self._validate(self.validation, self.learner.imitation_step + self.learner.update)
        self.snapshot()
        if self.best_score == _NO_SCORE:
            self._save_checkpoint(None)
        score = None if self.best_score == _NO_SCORE else self.best_score
        self.tracker.summarise({"steps": self.learner.imitation_step, "updates": self.learner.update, "best_validation": score})

    def _after_step(self, number: int) -> None:
        if number % self.settings.snapshot_every_updates == 0:
            self.snapshot()

    def _validate(self, validation: Validation, step: int) -> dict[str, float]:
        began = time.perf_counter()
        result = validation(self.learner.policy)
        self.tracker.table("validation", validation.rows(result), step=step)
        if result.metrics["valid/sampled_over_simple"] < self.best_score:
            self.best_score = result.metrics["valid/sampled_over_simple"]
            self._save_checkpoint(result)
        return result.metrics | {"valid/best_so_far": self.best_score, "time/validation_s": time.perf_counter() - began}

    def _save_checkpoint(self, result: Validated | None) -> None:
        config = (self.settings.run_dir / "config.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
        save_checkpoint(
            self.settings.run_dir / CHECKPOINT,
            self.learner.policy,
            card=card_of(
                self.settings,
                policy=self.learner.policy,
                imitation_steps=self.learner.imitation_step,
                updates=self.learner.update,
                went_on_from=self.own.policy,
                typed=self.typed,
                validation=self.validation,
                result=result,
            ),
            metrics=None if result is None else result.metrics,
            train_config="".join(line for line in config if not line.startswith("run_dir:")),  # others need not know where
            replace=True,
        )
        self.tracker.checkpoint(self.settings.name, self.settings.run_dir / CHECKPOINT, facts=self.made_from)


def _with_sizes_of(settings: TrainConfig, before: Path | None) -> TrainConfig:
    """The settings with the sizes of the policy that the run starts from, whose folder `before` is; a judge is added where it has none."""
    policy, features, judge_width = settings.policy, settings.features, 0
    if before is not None:
        known = read_config(before)
        policy = dataclasses.replace(known.policy, judge_width=known.policy.judge_width or policy.judge_width)
        features, judge_width = known.features, known.policy.judge_width
    if settings.reward.objective != "step_time":
        policy = dataclasses.replace(policy, judge_width=0)
    if policy.judge_width and not judge_width and not settings.judging.rounds:
        raise InputError(
            "judging.rounds is 0, but there is no judge to keep; policy.judge_width=0 leaves it out, judging.rounds=3 teaches one"
        )
    check_readable(policy, features)
    return dataclasses.replace(settings, policy=policy, features=features)


def _first_policy(settings: TrainConfig, before: Policy | None) -> Policy:
    """A new policy, or the one to go on from, with a new judge where it has none."""
    policy = Policy(settings.policy, settings.features, generator=torch.Generator().manual_seed(settings.seed))
    if before is not None:
        known = {name: value for name, value in before.state_dict().items() if name in policy.state_dict()}
        policy.load_state_dict(policy.state_dict() | known)
    return policy


def _best_score(kept: Mapping[str, Any], folder: Path) -> float:
    """Of the run so far, out of its snapshot; where its checkpoint is gone, the run has none any more, and the next that is validated takes its place."""
    score = kept.get("best_score")
    if not isinstance(score, float) or not score > 0:
        raise InputError(f"the snapshot {folder / SNAPSHOT} has no best score; delete the run folder and start anew")
    return score if os.path.isfile(folder / CHECKPOINT / CONFIG) else _NO_SCORE


def _no_wandb(settings: TrainConfig) -> str:
    return "; no W&B login: `wandb login`, or tracker=wandb tracker.mode=offline" if settings.tracker.kind == "auto" else ""
