"""Fine-tuning, from a configuration to a placement file: `gdp.learn.finetune` with its run folder, tracker and snapshots."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from gdp.candidate import Candidate
from gdp.cli.candidates import ZERO_SHOT, refuse_impossible_memory, refuse_unknown_times, refuse_when_nothing_runs
from gdp.cli.configured_cluster import configured_cluster
from gdp.cli.fill import fill
from gdp.cli.finetune_config import FinetuneSettings, MeasuredConfig, SimulatorConfig
from gdp.cli.finetune_files import against_all_cores, beside_the_bound, finetune_section, track_outcome, write_checkpoint, write_result
from gdp.cli.finetune_under_way import FineTuningUnderWay
from gdp.cli.measured import refuse_other_programs
from gdp.cli.model import Model, resolve_model
from gdp.cli.process import stop_signal
from gdp.cli.progress import progress_bar, ratio_note
from gdp.cli.report_data import environment, write_page
from gdp.cli.run_folder import CLUSTER, SNAPSHOT, holds_run_of, how_to_continue, identity, run_folder, run_id
from gdp.cli.runtimes import Judges, open_judges
from gdp.cli.table import candidates_table
from gdp.errors import InputError, printable
from gdp.hub.checkpoint import check_readable, files_of
from gdp.hub.load import Resolved, load, resolve
from gdp.learn.finalists import Occasion
from gdp.learn.finetune import finetune, placers_to_beat, simple_candidates
from gdp.learn.loop import Update
from gdp.learn.task import relative_reward
from gdp.placement import Origin, Placement
from gdp.policy.placer import PolicyPlacer
from gdp.policy.policy import Policy
from gdp.report import Section
from gdp.runtime.timing import Comparison
from gdp.tracking.choose import open_tracker, wandb_mode


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Finished:
    """A fine-tuning that ran to its end; its files are in the run folder."""

    verdict: str
    table: Table
    section: Section


class _Stopped(Exception):
    """The run was asked to stop, and its snapshot is written."""


def finetune_configured(settings: FinetuneSettings, config: dict[str, Any], typed: Sequence[str]) -> int:
    """Runs to the end, or until it is asked to stop; `config` is the resolved configuration behind `settings`, `typed` the command line. Returns the exit code."""
    wandb_mode(settings.tracker)
    outcome = run(settings, config, None, title=settings.workload.name, typed=typed)
    if isinstance(outcome, int):
        return outcome
    console = Console(soft_wrap=True, highlight=False)
    console.print(outcome.table)
    console.print(f"{outcome.verdict}; wrote {settings.run_dir / 'placement.json'} and {settings.run_dir / 'report.html'}", markup=False)
    return 0


def run(
    settings: FinetuneSettings, config: dict[str, Any], model: Model | None, *, title: str, typed: Sequence[str] | None = None
) -> Finished | int:
    """Fine-tunes on `model`, or on the workload that the settings name, and writes the run folder; the exit code instead when the run was asked to stop.

    `typed` is the command line, for telling how a stopped run continues; `None` where the command would start it anew. Everything that may be refused is
    resolved before the folder is touched.
    """
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    folder, objective = settings.run_dir, settings.reward.objective
    runtime_config = _runtime_config(settings)
    continues = holds_run_of(folder, config, resume=settings.resume)
    known = None if settings.init is None else resolve(settings.init)
    policy, origin = _policy(settings, known)
    source = "local" if settings.cluster is None and settings.cluster_source is None else settings.cluster_source
    cluster = configured_cluster(settings.cluster, source, kept=folder / CLUSTER if continues else None)
    assert cluster is not None
    model = model or resolve_model(settings.workload.name)
    if isinstance(runtime_config, MeasuredConfig):
        refuse_other_programs(model, runtime_config.kind)
    refuse_unknown_times(model.graph, cluster)
    refuse_impossible_memory(model.graph, cluster)
    own = identity(config, program=model.graph.sha256, cluster=cluster.sha256, policy=origin.revision)
    with stop_signal() as stop, run_folder(folder, config, own, cluster=cluster, resume=settings.resume), ExitStack() as stack:
        console.print(
            f"{model.graph.num_ops} ops from {printable(model.graph.source)}; {cluster.num_devices} devices in cluster {printable(cluster.name)}",
            markup=False,
        )
        with console.status("timing ops and hand-overs" if isinstance(runtime_config, MeasuredConfig) else "preparing"):
            judges = stack.enter_context(open_judges(runtime_config, model, cluster, objective=objective, folder=folder))
        candidates = _candidates(settings, judges, policy, origin)
        refuse_when_nothing_runs(candidates, judges.cluster)
        under_way = FineTuningUnderWay.begin(settings, judges, policy, candidates, origin=origin)
        learner, task = under_way.learner, under_way.task
        if (folder / SNAPSHOT).exists():
            under_way.restore(folder / SNAPSHOT, run=own.name)
        tracker = open_tracker(
            settings.tracker,
            folder,
            name=settings.workload.name,
            run_id=run_id(folder),
            resume_step=learner.update,
            run_config=config | {"environment": environment()},
        )
        stack.callback(tracker.close)
        if known is not None:
            tracker.uses(known.name, "model", files_of(known.folder), facts={"revision": known.revision})
        advance = stack.enter_context(progress_bar(console, "fine-tuning", total=under_way.learn_config.updates))

        def watch(update: Update) -> None:
            metrics = dict(update.metrics)
            if judges.screened is not None:
                metrics["finetune/measured"] = float(judges.screened.num_measured)
                metrics["finetune/correction"] = judges.screened.correction
            tracker.log(metrics, step=update.number)
            advance(update.number, ratio_note(update.metrics.get("train/best_ratio")))
            asked = stop()
            if asked or update.number % settings.snapshot_every_updates == 0:
                snapshot()
            if asked:
                raise _Stopped

        def compare(candidate: Placement, incumbent: Placement, *, occasion: Occasion) -> Comparison | None:
            if stop():
                snapshot()
                raise _Stopped
            assert judges.compare is not None
            return judges.compare(candidate, incumbent, occasion=occasion)

        def snapshot() -> None:
            under_way.save(folder / SNAPSHOT, run=own.name)

        try:
            result = finetune(
                learner,
                task,
                candidates,
                exploration=under_way.exploration,
                predictor=judges.predictor,
                compare=None if judges.compare is None else compare,
                reward=relative_reward(settings.reward),
                config=under_way.learn_config,
                objective=objective,
                origin=origin,
                watch=watch,
            )
        except _Stopped:
            stack.close()
            again = "" if typed is None else f"; continue with\n  {how_to_continue(typed, folder)}"
            console.print(f"stopped after update {learner.update}{again}", markup=False)
            return 128 + stop()
        snapshot()
        early = under_way.why_it_ended_early()
        if early is not None:
            console.print(f"ended after {learner.evaluations} placements: {early}", markup=False)
        result = beside_the_bound(against_all_cores(result, judges), under_way.bound_s, objective=objective)
        measured = [] if judges.screened is None else judges.screened.measured
        section = finetune_section(title, task, result, measured=measured, objective=objective, dispatch=judges.predictor.dispatch)
        write_result(folder, task, result, objective=objective)
        write_checkpoint(folder / "checkpoint", policy, task, result, origin=origin, typed=typed or ("gdp", "demo"))
        write_page(folder / "report.html", title, [section])
        track_outcome(tracker, folder, task, result, origin=origin, step=learner.update)
        table = candidates_table(title, result.judgement.candidates, best=result.judgement.best.name, objective=objective)
        return Finished(verdict=result.verdict, table=table, section=section)


def _runtime_config(settings: FinetuneSettings) -> SimulatorConfig | MeasuredConfig:
    kind = settings.runtime.get("kind")
    if kind in ("pytorch", "tensorflow"):
        return fill(MeasuredConfig, settings.runtime, where="runtime")
    if kind != "simulator":
        raise InputError(f"runtime.kind is {kind!r}; it must be simulator, pytorch or tensorflow")
    return fill(SimulatorConfig, settings.runtime, where="runtime")


def _policy(settings: FinetuneSettings, known: Resolved | None) -> tuple[Policy, Origin]:
    if known is None:
        check_readable(settings.policy, settings.features)
        policy = Policy(settings.policy, settings.features, generator=torch.Generator().manual_seed(settings.seed))
        return policy, Origin(placer="gdp", seed=settings.seed)
    return load(str(known.folder)), Origin(placer="gdp", policy=known.name, revision=known.revision, seed=settings.seed)


def _candidates(settings: FinetuneSettings, judges: Judges, policy: Policy, origin: Origin) -> list[Candidate]:
    """One device, the simple placements, and what the policy says before it learns."""
    objective, predictor = settings.reward.objective, judges.predictor
    placers = placers_to_beat(
        predictor=predictor, search_evaluations=settings.finetune.search_evaluations, seed=settings.seed, objective=objective
    )
    placers[ZERO_SHOT] = PolicyPlacer(
        policy,
        runtime=predictor,
        num_samples=settings.finetune.zero_shot_samples,
        seed=settings.seed,
        objective=objective,
        dispatch=predictor.dispatch,
        name=origin.policy or "untrained",
        revision=origin.revision,
    )
    return simple_candidates(
        judges.graph, judges.cluster, placers, predictor=predictor, judge=None if judges.screened is None else judges.judge
    )
