"""Fine-tuning, from a configuration to a placement file: `gdp.learn.finetune` with its run folder, tracker and snapshots."""

import dataclasses
import json
import math
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import gdp
from gdp.atomic_file import write_text
from gdp.cli.candidates import refuse_impossible_memory
from gdp.cli.configured_cluster import configured_cluster
from gdp.cli.fill import fill
from gdp.cli.finetune_config import FinetuneSettings, PyTorchConfig
from gdp.cli.model import resolve_model
from gdp.cli.progress import progress_bar, ratio_note
from gdp.cli.run_folder import SNAPSHOT, begin, how_to_continue, identity, run_id, stop_signal
from gdp.cli.runtimes import Judges, open_judges
from gdp.cli.table import measured_text, milliseconds
from gdp.cli.train_config import SimulatorConfig
from gdp.hub.load import load, resolve
from gdp.learn.finetune import Candidate, FinetuneResult, finetune, simple_candidates, simple_placers
from gdp.learn.learner import new_learner
from gdp.learn.loop import Update
from gdp.learn.snapshots import lock_folder, restore_snapshot, save_snapshot
from gdp.learn.task import Task, make_task, relative_reward
from gdp.measurement import Objective, Status
from gdp.placement import Origin, write_placement
from gdp.policy.policy import Policy
from gdp.tracking.choose import open_tracker, wandb_mode


class _Stopped(Exception):
    """The run was asked to stop, and its snapshot is written."""


def finetune_configured(settings: FinetuneSettings, config: dict[str, Any]) -> int:
    """Runs to the end, or until it is asked to stop; `config` is the resolved configuration behind `settings`. Returns the exit code."""
    wandb_mode(settings.tracker)
    runtime_config = _runtime_config(settings)
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    folder, objective = settings.run_dir, settings.reward.objective
    with lock_folder(folder), stop_signal() as stop, ExitStack() as stack:
        begin(folder, config, resume=settings.resume)
        source = "local" if settings.cluster is None and settings.cluster_source is None else settings.cluster_source
        cluster = configured_cluster(settings.cluster, source, folder=folder)
        assert cluster is not None
        model = resolve_model(settings.workload.name)
        refuse_impossible_memory(model.graph, cluster)
        console.print(
            f"{model.graph.num_ops} ops from {model.graph.source}; {cluster.num_devices} devices in cluster {cluster.name}", markup=False
        )
        judges = stack.enter_context(open_judges(runtime_config, model, cluster, objective=objective, folder=folder))
        policy, origin = _policy(settings)
        task = make_task(
            settings.workload.name,
            judges.graph,
            cluster,
            runtime=judges.predictor,
            features=policy.features,
            max_groups=settings.finetune.max_groups,
            objective=objective,
        )
        candidates = _candidates(settings, task, judges)
        task = dataclasses.replace(task, reference_s=min(candidate.measurement.objective_s(objective) for candidate in candidates))
        parameters = list(policy.parameters()) if settings.finetune.parameters == "all" else policy.conditioning_and_heads()
        learner = new_learner(policy, parameters=parameters, seed=settings.seed)
        run = identity(config)
        if (folder / SNAPSHOT).exists():
            extra = restore_snapshot(folder / SNAPSHOT, learner, run=run)
            if judges.screened is not None:
                judges.screened.restore(extra["screened"])
        updates = max(1, settings.finetune.evaluations // settings.learner.samples_per_update)
        learn_config = dataclasses.replace(settings.learner, updates=min(settings.learner.updates, updates))
        tracker = open_tracker(
            settings.tracker, folder, name=settings.workload.name, run_id=run_id(folder), resume_step=learner.update, run_config=config
        )
        stack.callback(tracker.close)
        advance = stack.enter_context(progress_bar(console, "fine-tuning", total=learn_config.updates))

        def watch(update: Update) -> None:
            metrics = dict(update.metrics)
            if judges.screened is not None:
                metrics["finetune/measured"] = float(judges.screened.num_measured)
                metrics["finetune/correction"] = judges.screened.correction
            tracker.log(metrics, step=update.number)
            advance(update.number, ratio_note(update.metrics.get("train/best_ratio")))
            if stop() or update.number % settings.snapshot_every_updates == 0:
                snapshot()
            if stop():
                raise _Stopped

        def snapshot() -> None:
            state = None if judges.screened is None else judges.screened.state()
            save_snapshot(folder / SNAPSHOT, learner, run=run, extra={"screened": state})

        try:
            result = finetune(
                learner,
                task,
                candidates,
                runtime=judges.proposed,
                compare=judges.compare,
                reward=relative_reward(settings.reward),
                config=learn_config,
                objective=objective,
                origin=origin,
                watch=watch,
            )
        except _Stopped:
            stack.close()
            console.print(f"stopped after update {learner.update}; continue with\n  {how_to_continue('finetune.py', folder)}", markup=False)
            return 128 + stop()
        snapshot()
        _write(folder, settings, task, result, judges)
        stack.close()
    Console(soft_wrap=True, highlight=False).print(_table(settings.workload.name, result, objective))
    Console(soft_wrap=True, highlight=False).print(f"{result.verdict}; wrote {folder / 'placement.json'}", markup=False)
    return 0


def _runtime_config(settings: FinetuneSettings) -> SimulatorConfig | PyTorchConfig:
    kind = settings.runtime.get("kind")
    if kind == "pytorch":
        return fill(PyTorchConfig, settings.runtime, where="runtime")
    return fill(SimulatorConfig, settings.runtime, where="runtime")


def _policy(settings: FinetuneSettings) -> tuple[Policy, Origin]:
    if settings.init is None:
        policy = Policy(settings.policy, settings.features, generator=torch.Generator().manual_seed(settings.seed))
        return policy, Origin(placer="gdp", seed=settings.seed)
    resolved = resolve(settings.init)
    return load(str(resolved.folder)), Origin(placer="gdp", policy=resolved.name, revision=resolved.revision, seed=settings.seed)


def _candidates(settings: FinetuneSettings, task: Task, judges: Judges) -> list[Candidate]:
    objective = settings.reward.objective
    placers = simple_placers(
        predictor=judges.predictor, search_evaluations=settings.finetune.search_evaluations, seed=settings.seed, objective=objective
    )
    return simple_candidates(task.graph, task.cluster, placers, judge=judges.judge)


def _write(folder: Path, settings: FinetuneSettings, task: Task, result: FinetuneResult, judges: Judges) -> None:
    best = result.best
    predicted = judges.predictor(task.graph, task.cluster, best.placement)
    figures = {candidate.name: {"status": candidate.measurement.status.name.lower()} | _times(candidate) for candidate in result.candidates}
    write_placement(
        folder / "placement.json",
        best.placement,
        task.graph,
        task.cluster,
        gdp_version=gdp.__version__,
        predicted={
            "step_time_s": predicted.step_time_s,
            "bottleneck_s": predicted.bottleneck_s,
            "peak_memory_bytes": predicted.peak_memory_bytes.tolist(),
        }
        if predicted.status == Status.OK
        else {},
        measured=_times(best) | {"num_runs": best.measurement.num_runs} if judges.compare is not None else {},
        baselines=figures,
    )
    document = {
        "verdict": result.verdict,
        "best": best.name,
        "objective": settings.reward.objective,
        "candidates": figures,
        "curve": {
            "evaluations": result.evaluations.tolist(),
            "best_s": [value if math.isfinite(value) else None for value in result.best_s.tolist()],
            "mean_sampled_s": [value if math.isfinite(value) else None for value in result.mean_sampled_s.tolist()],
        },
    }
    write_text(folder / "result.json", json.dumps(document, indent=1, allow_nan=False) + "\n")


def _times(candidate: Candidate) -> dict[str, float]:
    measurement = candidate.measurement
    if measurement.status != Status.OK:
        return {}
    return {
        "step_time_s": measurement.step_time_s,
        "step_time_low_s": measurement.step_time_low_s,
        "step_time_high_s": measurement.step_time_high_s,
        "bottleneck_s": measurement.bottleneck_s,
    }


def _table(name: str, result: FinetuneResult, objective: Objective) -> Table:
    table = Table(title=name, title_justify="left", title_style="bold")
    table.add_column("candidate", no_wrap=True)
    table.add_column("step time ms", justify="right", no_wrap=True)
    table.add_column("bottleneck ms", justify="right")
    table.add_column("devices", justify="right")
    for candidate in result.candidates:
        chosen = candidate is result.best
        table.add_row(
            candidate.name + (" *" if chosen else ""),
            measured_text(candidate.measurement),
            milliseconds(candidate.measurement.bottleneck_s),
            str(len(set(candidate.placement.device.tolist()))),
            style="bold" if chosen else None,
        )
    return table
