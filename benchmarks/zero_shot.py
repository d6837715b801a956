"""What a policy reaches at first sight: at most 64 simulated samples, on graphs that it was not trained on, beside every placement that needs no search,
and beside the searches given the same number of samples.

    python benchmarks/zero_shot.py [--policy gdp-tiny] [--workloads NAMES] [--seeds 3] [--out benchmarks/results/zero_shot.json]
        [--write-card FOLDER [--before FOLDER] [--other-seeds FOLDER ...]]

The ratio of a cell is the policy's step time over that of the best simple placement (one device, contiguous, METIS, list scheduling; the simulator judges their few
variants). The searches, METIS many times, local search, and the search that the policy takes part in, start from such simple placements or try them first. Devices choose
what to run as the graph's framework has it: PyTorch's keep the program's order. `--write-card` writes the figures into the card of a checkpoint folder, and beside them what
the same recipe reached with other training seeds.
"""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.metis import MetisManyTimes
from gdp.candidate import Candidate, best
from gdp.cli.candidates import simple_placers
from gdp.cli.policy_placers import NamedPolicy
from gdp.cli.report_data import environment
from gdp.cluster import preset
from gdp.compare.asking import candidates
from gdp.hub.card import Card, Result
from gdp.hub.checkpoint import CONFIG, load_checkpoint, read_config, save_checkpoint
from gdp.hub.load import resolve
from gdp.placement import Placer
from gdp.runtime.simulator import Simulator
from gdp.workloads.catalog import CATALOG, workload

CLUSTERS = ("p100x2", "p100x4", "p100x8", "unequal", "cpu-gpu", "two-machines")
NUM_SAMPLES = 64
POLICY_SEARCH = "policy search"
SEARCHES = ("METIS many times", "local search", POLICY_SEARCH)
WORKLOADS = (
    *(f"series-parallel-{num_ops}-{kind}-0" for num_ops in (60, 200, 600) for kind in ("inference", "training")),
    "two-tower-recommender-8",
    "two-tower-recommender-24",
    "branching",
    "inception-v3-training",
)
"""Of validation and hold-out; what the card of gdp-tiny reports."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cell:
    """One graph on one cluster."""

    workload: str
    split: str
    cluster: str
    simple: Candidate
    policy: list[Candidate]
    """one per seed, as all that follow."""
    searches: dict[str, list[Candidate]]

    @property
    def simple_s(self) -> float:
        return self.simple.predicted.step_time_s

    @property
    def ratios(self) -> list[float]:
        return [one.predicted.step_time_s / self.simple_s for one in self.policy]

    def ratios_to(self, search: str) -> list[float]:
        """The policy's step time over the search's, seed by seed."""
        found = self.searches[search]
        return [one.predicted.step_time_s / other.predicted.step_time_s for one, other in zip(self.policy, found, strict=True)]


def placers(policy: NamedPolicy, runtime: Simulator, seed: int) -> dict[str, Placer]:
    """The policy first, then `SEARCHES`."""
    searching = policy.search(runtime=runtime, dispatch=runtime.dispatch, evaluations=NUM_SAMPLES, seed=seed)
    if searching is None:
        raise SystemExit(f"{policy.name} can neither hold groups nor judge moves; name a policy that can search")
    return {
        "zero-shot": policy.zero_shot(
            runtime=runtime, dispatch=runtime.dispatch, num_samples=NUM_SAMPLES, seed=seed, objective="step_time"
        ),
        "METIS many times": MetisManyTimes(runtime=runtime, evaluations=NUM_SAMPLES, seed=seed),
        "local search": LocalSearch(runtime=runtime, evaluations=NUM_SAMPLES, seed=seed),
        POLICY_SEARCH: searching,
    }


def evaluate(policy: str, workloads: Sequence[str], *, num_seeds: int, console: Console) -> list[Cell]:
    cells, known = [], NamedPolicy.open(policy)
    for entry in map(workload, workloads):
        graph, runtime = entry.build(), Simulator(dispatch=entry.dispatch)
        by_seed = [placers(known, runtime, seed) for seed in range(num_seeds)]
        for name in CLUSTERS:
            cluster = preset(name)
            simple = candidates(graph, cluster, simple_placers(runtime=runtime, seed=0, objective="step_time"), runtime=runtime)
            found = [candidates(graph, cluster, of_seed, runtime=runtime) for of_seed in by_seed]
            cells.append(
                Cell(
                    workload=entry.name,
                    split=entry.split,
                    cluster=name,
                    simple=best(simple, objective="step_time"),
                    policy=[answers[0] for answers in found],
                    searches={search: [answers[1 + number] for answers in found] for number, search in enumerate(SEARCHES)},
                )
            )
        console.print(f"{entry.name}: done", highlight=False)
    return cells


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def summary(cells: list[Cell], split: str, num_seeds: int) -> dict[str, object]:
    chosen = [cell for cell in cells if cell.split == split]
    return {
        "cells": len(chosen),
        "geometric_mean_by_seed": [geometric_mean([cell.ratios[seed] for cell in chosen]) for seed in range(num_seeds)],
        "geometric_mean_by_graph": {
            name: geometric_mean([ratio for cell in chosen if cell.workload == name for ratio in cell.ratios])
            for name in dict.fromkeys(cell.workload for cell in chosen)
        },
        "worst": max(max(cell.ratios) for cell in chosen),
        "policy_search": {
            "geometric_mean_by_seed": [
                geometric_mean([cell.searches[POLICY_SEARCH][seed].predicted.step_time_s / cell.simple_s for cell in chosen])
                for seed in range(num_seeds)
            ],
            "worst": max(max(one.predicted.step_time_s / cell.simple_s for one in cell.searches[POLICY_SEARCH]) for cell in chosen),
        },
        "faster_than_every_simple_placement": sum(float(np.median(cell.ratios)) < 1 for cell in chosen),
        "geometric_mean_to_search": {
            search: geometric_mean([ratio for cell in chosen for ratio in cell.ratios_to(search)]) for search in SEARCHES
        },
        "faster_than_search": {search: sum(float(np.median(cell.ratios_to(search))) < 1 for cell in chosen) for search in SEARCHES},
    }


def _taught_of_other_splits(runs: Sequence[dict[str, Any]]) -> str:
    """Which families of the validation and the hold-out split these training runs learned on."""
    taught: set[str] = set()
    for run in runs:
        named, left_out = run["workload"]["workloads"], run["workload"].get("leave_out", [])
        if run["workload"]["synthetic_fraction"] < 1:
            taught |= {entry.family for entry in CATALOG if entry.name in named or ("*" in named and entry.split == "pretraining")} - set(
                left_out
            )
    seen = sorted(taught & {entry.family for entry in CATALOG if entry.split != "pretraining"})
    if not seen:
        return "No family of the validation or the hold-out split was among its training graphs"
    return f"Of the validation and the hold-out split the families {', '.join(seen)} were among its training graphs"


def _judge_taught_on(run: dict[str, Any]) -> str:
    if not run["policy"].get("judge_width"):
        return ""
    return (
        f"; its judge on random graphs of at most {run['judging']['max_ops']} ops, programs of blocked matrices among them, which DOPPLER's sharded graphs (hold-out) are like, "
        f"and on clusters of up to {run['workload']['random_cluster']['max_devices']} devices"
    )


def write_card(folder: Path, cells: list[Cell], *, commit: str, before: Path | None, other_seeds: list[Path]) -> None:
    """The card of a checkpoint with the figures of all cells; what it says of the training is what `train_config.yaml` tells, and that of the policy `before` it went on from."""
    last = yaml.safe_load((folder / "train_config.yaml").read_text())
    last.pop("run_dir", None)
    config = last if before is None else yaml.safe_load((before / "train_config.yaml").read_text())
    assert config["init"] is None, f"{config['name']} went on from {config['init']}, whose folder --before must name"
    config.pop("run_dir", None)
    results = tuple(
        Result(
            workload=cell.workload,
            cluster=cell.cluster,
            split=cell.split,
            evaluations=NUM_SAMPLES,
            step_time_s=float(np.median([one.predicted.step_time_s for one in cell.policy])),
            baseline=cell.simple.name,
            baseline_s=cell.simple.predicted.step_time_s,
        )
        for cell in cells
    )
    to_search = {search: geometric_mean([ratio for cell in cells for ratio in cell.ratios_to(search)]) for search in SEARCHES}
    searched = [one.predicted.step_time_s / cell.simple_s for cell in cells for one in cell.searches[POLICY_SEARCH]]
    lost = [cell.cluster for cell in cells if float(np.median(cell.ratios)) > 1.05]
    where_lost = ", ".join(f"{lost.count(name)} on {name}" for name in CLUSTERS if name in lost)
    runs = [last] if before is None else [config, last]
    searches = sum(run["judging"]["rounds"] * run["judging"]["tasks_per_round"] for run in runs if run["policy"].get("judge_width"))
    judged = f"a judge of moves taught by {searches} searches" if last["policy"].get("judge_width") else ""
    first = (
        f"python train.py experiment={str(config['name']).removeprefix('gdp-')} num_threads={config['num_threads']} seed={config['seed']}"
    )
    ppo = f", then {config['learner']['updates']} updates of PPO" if config["learner"]["updates"] else ""
    went_on_from = "" if before is None else json.loads((before / CONFIG).read_text())["weights_sha256"][:12]
    reached = {seed: json.loads((seed / "metrics.json").read_text())["valid/sampled_over_simple"] for seed in (folder, *other_seeds)}
    card = Card(
        name=str(config["name"]),
        summary=f"A device-placement policy of the GDP family ({config['policy']['decoding']} decoding), pretrained in the simulator on step time: "
        f"{config['imitation']['steps']} steps of imitating searched placements{ppo}, the best of it by zero-shot quality on the validation split"
        f"{'; ' + judged if judged else ''}. "
        f"The results below are medians over {len(cells[0].policy)} sampling seeds, reproduced by `python benchmarks/zero_shot.py --policy {config['name']}`.",
        recipe=first
        if before is None
        else f"{first}\npython train.py experiment=judge init={went_on_from}  # the policy of the first line",
        commit=commit,
        corpus=f"{config['workload']['num_tasks']} pairs of graph and cluster, {100 * config['workload']['synthetic_fraction']:.0f} % of the graphs synthetic, the "
        "others of the catalog's pretraining split",
        seeds=(int(config["seed"]),),
        results=results,
        limits=f"Trained on random graphs of at most {config['workload']['max_ops']} ops and on the catalog's, in at most {config['workload']['max_groups']} groups, "
        f"on clusters of 2 to {config['workload']['random_cluster']['max_devices']} devices "
        f"({', '.join(config['workload']['presets'])} among them){_judge_taught_on(last)}, on step time alone, in simulation alone. "
        "The validation split chose the best moment of the training, so its rows are selected on. "
        f"More than 5 % slower than the best simple placement in {len(lost)} of {len(cells)} cells{f' ({where_lost})' if lost else ''}: "
        "keep the simple placements beside it, as `gdp place` does, or let it search: "
        f"with {NUM_SAMPLES} evaluations, the simple placements among them, policy search is at {geometric_mean(searched):.3f} times the best simple placement in the "
        f"geometric mean, {max(searched):.3f} in the worst cell. "
        f"With the same {NUM_SAMPLES} evaluations its samples' step times are, in the geometric mean over these cells, "
        + " and ".join(f"{ratio:.3f} times those of {search}" for search, ratio in to_search.items())
        + f". At the end of training it was at {reached[folder]:.3f} times the best simple placement on the validation split ({', '.join(config['validation']['presets'])}), "
        "by the samples of the commit that trained it"
        + (f"; the same recipe with other seeds, at {', '.join(f'{reached[seed]:.3f}' for seed in other_seeds)}" if other_seeds else "")
        + f". {_taught_of_other_splits(runs)}; "
        "what kinds of samples there are was chosen on the validation split, "
        "but that some lean on the priors, that devices wait, and settings of the search were found by looking at hold-out graphs, too (docs/experiments.md, its beginning). "
        "One training seed; the weights are reproduced by the commits above, today's code teaches others.",
    )
    save_checkpoint(
        folder,
        load_checkpoint(folder),
        card=card,
        metrics=json.loads((folder / "metrics.json").read_text()),
        train_config=yaml.safe_dump(last, sort_keys=False),
        replace=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--policy", default="gdp-tiny")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="of the catalog, comma-separated")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--write-card", type=Path)
    parser.add_argument("--before", type=Path, help="the checkpoint folder that the policy went on from (init=), for the card")
    parser.add_argument("--other-seeds", type=Path, nargs="*", default=[], help="checkpoint folders of the same recipe, for the card")
    parser.add_argument("--commit", default="unknown", help="of the source that trained the policy, for the card")
    options = parser.parse_args()
    measured = read_config(resolve(options.policy).folder).facts.weights_sha256
    if options.write_card and read_config(options.write_card).facts.weights_sha256 != measured:
        parser.error(f"{options.write_card} holds other weights than {options.policy}; say --policy {options.write_card}")
    console = Console()
    cells = evaluate(options.policy, options.workloads.split(","), num_seeds=options.seeds, console=Console(stderr=True))
    table = Table(
        title=f"{options.policy}, {NUM_SAMPLES} samples, {options.seeds} seeds: step time over the best simple placement's",
        title_justify="left",
    )
    for column in ("workload", *CLUSTERS):
        table.add_column(column, justify="left" if column == "workload" else "right", no_wrap=True)
    for name_of_graph in dict.fromkeys(cell.workload for cell in cells):
        row = {cell.cluster: float(np.median(cell.ratios)) for cell in cells if cell.workload == name_of_graph}
        table.add_row(name_of_graph, *(f"{row[name]:.3f}" for name in CLUSTERS))
    console.print(table)
    summaries = {split: summary(cells, split, options.seeds) for split in dict.fromkeys(cell.split for cell in cells)}
    for split, figures in summaries.items():
        console.print(split, figures)
    if options.out:
        rows = [
            {
                "workload": cell.workload,
                "split": cell.split,
                "cluster": cell.cluster,
                "best_simple": cell.simple.name,
                "best_simple_s": cell.simple.predicted.step_time_s,
                "policy_s": [one.predicted.step_time_s for one in cell.policy],
                "searches_s": {search: [one.predicted.step_time_s for one in found] for search, found in cell.searches.items()},
            }
            for cell in cells
        ]
        document = {"policy": options.policy, "num_samples": NUM_SAMPLES, "summary": summaries, "cells": rows, "environment": environment()}
        write_text(options.out, json.dumps(document, indent=1) + "\n")
    if options.write_card:
        write_card(options.write_card, cells, commit=options.commit, before=options.before, other_seeds=options.other_seeds)


if __name__ == "__main__":
    main()
