"""What the card of a pretrained policy says, all of it from the run's configuration and from what was done."""

import shlex
from collections.abc import Sequence

import numpy as np

from gdp.cli.run_folder import source_commit, without_run_dir
from gdp.cli.train_config import TrainConfig
from gdp.hub.card import Card, Result, base_model_of
from gdp.learn.validation import Validated, Validation
from gdp.policy.policy import Policy


def card_of(
    settings: TrainConfig,
    *,
    policy: Policy,
    imitation_steps: int,
    updates: int,
    went_on_from: str | None,
    typed: Sequence[str],
    validation: Validation | None,
    result: Validated | None,
) -> Card:
    """The card of `policy` after so many steps and updates; `went_on_from` is the revision of the policy before, `typed` the command line, `result` of the `validation`."""
    workload = settings.workload
    taught = _taught(settings, judged=policy.judge is not None, imitation_steps=imitation_steps, updates=updates, went_on_from=went_on_from)
    named = f"; workloads {', '.join(workload.workloads)} of the catalog" if workload.synthetic_fraction < 1 else ""
    left_out = f", without {', '.join(workload.leave_out)}" if workload.leave_out else ""
    return Card(
        name=settings.name,
        summary=f"A device-placement policy of the GDP family ({policy.config.decoding} decoding, {policy.config.passes} passes), "
        f"pretrained in the simulator on {settings.reward.objective.replace('_', ' ')}: {', '.join(taught)}.",
        recipe=shlex.join(without_run_dir(typed)),
        commit=source_commit(),
        corpus=f"{workload.num_tasks} pairs of graph and cluster, {100 * workload.synthetic_fraction:.0f} % of the graphs synthetic{named}{left_out}",
        seeds=(settings.seed,),
        base_model=None if settings.init == settings.name else base_model_of(settings.init, went_on_from),
        results=() if validation is None or result is None else _results(validation, result),
        limits=f"Trained on at most {workload.max_groups} decisions a graph and on {_clusters(settings)}, in simulation alone; "
        "where one device is best, it need not say so.",
    )


def _taught(settings: TrainConfig, *, judged: bool, imitation_steps: int, updates: int, went_on_from: str | None) -> list[str]:
    """What the policy has been through."""
    judging = settings.judging
    parts = [] if went_on_from is None else [f"from {base_model_of(settings.init, went_on_from[:12]) or 'another policy'} on"]
    if judged and judging.rounds:
        parts.append(f"a judge of moves taught by {judging.rounds * judging.tasks_per_round} searches")
    if imitation_steps:
        parts.append(f"{imitation_steps} steps of imitation of searched placements")
    if updates:
        parts.append(f"{updates} updates of PPO")
    return parts or ["not taught anything"]


def _clusters(settings: TrainConfig) -> str:
    """Those that it was trained on, in words."""
    workload = settings.workload
    if settings.cluster is not None:
        return f"the cluster {settings.cluster['name']} alone"
    if settings.cluster_source is not None:
        return "one cluster alone"
    presets = [f"clusters {', '.join(workload.presets)}"] if workload.preset_fraction > 0 else []
    sizes = workload.random_cluster
    drawn = [f"random ones of {sizes.min_devices} to {sizes.max_devices} devices"] if workload.preset_fraction < 1 else []
    return " and ".join(presets + drawn)


def _results(validation: Validation, result: Validated) -> tuple[Result, ...]:
    return tuple(
        Result(
            workload=task.name.rpartition("@")[0],
            cluster=task.cluster.name,
            split="validation",
            evaluations=validation.num_samples + 1,
            step_time_s=float(best_s),
            baseline="one device, contiguous, METIS or list scheduling",
            baseline_s=task.reference_s,
        )
        for task, best_s in zip(validation.tasks, result.best_s, strict=True)
        if np.isfinite(best_s)
    )
