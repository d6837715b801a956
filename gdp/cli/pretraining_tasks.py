"""What a pretraining run learns on and is validated on, from its configuration."""

import dataclasses
import hashlib
import json
from pathlib import Path

from gdp.cli.named_graphs import NamedGraph, named_graphs, own_graphs_sha256
from gdp.cli.train_config import TrainConfig
from gdp.cluster import Cluster, preset
from gdp.errors import InputError, nearest_name_hint
from gdp.graph import Graph
from gdp.learn.sources import PretrainingConfig, PretrainingTasks
from gdp.learn.task import NothingRuns, make_task
from gdp.learn.validation import Validation
from gdp.runtime.simulator import Simulator
from gdp.runtime.verdict import Dispatch
from gdp.workloads.catalog import CATALOG


def pretraining_source(settings: TrainConfig, cluster: Cluster | None) -> PretrainingTasks:
    """The tasks that are drawn; on `cluster` alone where there is one. Raises `InputError` for a family to leave out that there is none of, or that leaves nothing."""
    learned = [(graph.name, graph.build) for graph in _learned(settings.workload)]
    return PretrainingTasks(
        settings.workload,
        workloads=learned,
        clusters=[preset(name) for name in settings.workload.presets],
        fixed_cluster=cluster,
        num_threads=settings.num_threads,
        features=settings.features,
        objective=settings.reward.objective,
        seed=settings.seed,
    )


def _learned(config: PretrainingConfig) -> list[NamedGraph]:
    """Those graphs with a name that are learned on."""
    named = named_graphs(config.workloads, split="pretraining") if config.synthetic_fraction < 1 else []
    families = {entry.family for entry in CATALOG} | {graph.family for graph in named}
    for family in config.leave_out:
        if family not in families:
            hint = nearest_name_hint(family, families)
            raise InputError(
                f"workload.leave_out names {family!r}, but no workload is of that family; {hint}known are {', '.join(sorted(families))}"
            )
    learned = [graph for graph in named if graph.family not in config.leave_out]
    if named and not learned:
        raise InputError("workload.leave_out leaves none of workload.workloads; leave out less")
    return learned


def stored_graphs(settings: TrainConfig) -> dict[str, Path]:
    """The files of those graphs that the run learns on and that are stored, by name."""
    files = {graph.name: graph.file for graph in _learned(settings.workload)}
    return {name: path for name, path in sorted(files.items()) if path is not None}


def own_graphs(settings: TrainConfig) -> str | None:
    """One hash over the files of those graphs, learned on or validated on, that are none of the catalog; `None` where there is none."""
    return own_graphs_sha256([*_learned(settings.workload), *named_graphs(settings.validation.workloads, split="validation")])


def corpus_facts(settings: TrainConfig) -> dict[str, str]:
    """What a checkpoint was taught on, for whoever has only that: the share of random graphs, and the names and hashes of the stored files."""
    hashes = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in stored_graphs(settings).items()}
    return {
        "synthetic_fraction": str(settings.workload.synthetic_fraction),
        "stored_graphs": ", ".join(hashes),
        "stored_graphs_sha256": hashlib.sha256(json.dumps(hashes).encode()).hexdigest(),
    }


def pretraining_validation(settings: TrainConfig) -> Validation | None:
    """The validation split on the presets of the configuration; `None` when it names no graphs."""
    config = settings.validation
    named = [(graph.name, graph.build(), graph.dispatch) for graph in named_graphs(config.workloads, split="validation")]
    pairs = [(*each, cluster) for each in (*named, *_drawn(settings)) for cluster in map(preset, config.presets)]
    made = []
    for number, (name, graph, dispatch, cluster) in enumerate(pairs):
        try:
            made.append(
                make_task(
                    f"{name}@{cluster.name}",
                    graph,
                    cluster,
                    runtime=Simulator(dispatch=dispatch, num_threads=settings.num_threads),
                    features=settings.features,
                    max_groups=settings.workload.max_groups,
                    objective=settings.reward.objective,
                )
            )
        except NothingRuns:
            if number < len(named) * len(config.presets):
                raise
    return Validation(made, num_samples=config.num_samples, objective=settings.reward.objective) if made else None


def _drawn(settings: TrainConfig) -> list[tuple[str, Graph, Dispatch]]:
    """Random graphs of validation's own; a pair of one with a cluster on which nothing runs is left out."""
    if not settings.validation.synthetic:
        return []
    unseen = PretrainingTasks(
        dataclasses.replace(settings.workload, synthetic_fraction=1.0, num_tasks=settings.validation.synthetic),
        workloads=[],
        clusters=[],
        fixed_cluster=preset(settings.validation.presets[0]),
        num_threads=settings.num_threads,
        features=settings.features,
        objective=settings.reward.objective,
        seed=settings.seed + 1_000_003,
    )
    drawn = map(unseen.graph, range(settings.validation.synthetic))
    return [(f"{name}-{number}", graph, "ready_order") for number, (name, graph) in enumerate(drawn)]
