"""What each part of the policy is worth at first sight: gdp-tiny's network and others, alike but for one part, are taught the same placements and held against unseen graphs.

    python train.py experiment=tiny run_dir=RUN          # finds the placements; may be stopped once imitation begins
    python benchmarks/ablations.py --run RUN [--steps 2500] [--seeds 3] [--variants NAMES] [--out FILE]

The last eighth of the run's tasks is taught to nobody: *nats* is the cross-entropy of a decision there, of whole placements and, for policies that can hold groups, of regions
whose surroundings are held. *Best guess* and *64 samples* are step times over those of the best simple placement, geometric means over the validation split on the clusters of
`conf/experiment/tiny.yaml`. What the judge and the regions are worth in search is `benchmarks/policy.py`'s. A row that is in the file already is kept, so what was killed goes on.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.cli.fill import fill
from gdp.cli.hydra_config import composed, resolved
from gdp.cli.pretraining_targets import open_targets
from gdp.cli.pretraining_tasks import pretraining_validation
from gdp.cli.report_data import environment
from gdp.cli.train_config import TrainConfig
from gdp.learn.imitation import imitate, imitation_loss, region_loss
from gdp.learn.learner import new_learner
from gdp.learn.regions import random_regions
from gdp.learn.targets import Targets, imitation_order
from gdp.learn.validation import Validation
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Policy

HELD_OUT = 8
"""One task in so many is taught to nobody."""
UNTRAINED = "untrained"
VARIANTS: dict[str, Callable[[PolicyConfig], PolicyConfig]] = {
    "whole policy": lambda config: config,
    "two layers of attention": lambda config: dataclasses.replace(config, attention_layers=2),
    "two layers of messages": lambda config: dataclasses.replace(config, sage_layers=2),
    "without message passing": lambda config: dataclasses.replace(config, sage_layers=0),
    "without superposition": lambda config: dataclasses.replace(config, superposition=False),
    "without priors": lambda config: dataclasses.replace(config, finish_prior=0.0, transfer_prior=0.0),
    "whole placements alone": lambda config: config,
    "all groups at once": lambda config: dataclasses.replace(config, decoding="independent", finish_prior=0.0, transfer_prior=0.0),
    UNTRAINED: lambda config: config,
}
WITHOUT_REGIONS = ("whole placements alone", "all groups at once")


def held_out_nats(policy: Policy, targets: Targets, numbers: range) -> tuple[float, float | None]:
    """Cross-entropy of a decision in the targets of these tasks: of whole placements, and of regions."""
    generator, torch_generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    whole, regions = [], []
    with torch.no_grad():
        for number in numbers:
            known = targets(number)
            if known is None:
                continue
            task, best = known
            whole.append(float(imitation_loss(policy, task, best.group_device, generator=torch_generator)))
            if policy.can_hold:
                free = random_regions(task.tensors.num_groups, count=4, share=1.0, generator=generator)
                regions.append(float(region_loss(policy, task, best.group_device, torch.from_numpy(free))))
    return float(np.mean(whole)), float(np.mean(regions)) if regions else None


def trained(variant: str, settings: TrainConfig, targets: Targets, validation: Validation, *, seed: int, steps: int) -> dict[str, Any]:
    """One row: a new policy of this variant, taught, then held against what it was not taught."""
    policy = Policy(VARIANTS[variant](settings.policy), settings.features, generator=torch.Generator().manual_seed(seed))
    learner = new_learner(policy, parameters=list(policy.parameters()), seed=seed)
    num_taught = settings.workload.num_tasks - settings.workload.num_tasks // HELD_OUT
    region_share = 0.0 if variant in WITHOUT_REGIONS else settings.imitation.region_share
    order = imitation_order(num_taught, steps=0 if variant == UNTRAINED else steps, seed=seed)
    began = time.perf_counter()
    teaching = imitate(
        learner,
        order,
        targets,
        config=dataclasses.replace(settings.imitation, region_share=region_share),
        gradient_norm=settings.learner.gradient_norm,
        objective=settings.reward.objective,
    )
    for _ in track(teaching, total=len(order), description=f"{variant}, seed {seed}", transient=True):
        pass
    wall_s = time.perf_counter() - began
    whole, regions = held_out_nats(policy, targets, range(num_taught, settings.workload.num_tasks))
    figures = validation(policy).metrics
    return {
        "variant": variant,
        "seed": seed,
        "steps": len(order),
        "parameters": sum(parameter.numel() for parameter in policy.parameters()),
        "wall_s": wall_s,
        "nats_whole": whole,
        "nats_regions": regions,
        "greedy_over_simple": figures["valid/greedy_over_simple"],
        "sampled_over_simple": figures["valid/sampled_over_simple"],
    }


def table(rows: list[dict[str, Any]]) -> Table:
    """Mean and range over seeds."""

    def cell(variant: str, what: str) -> str:
        values = [row[what] for row in rows if row["variant"] == variant and row[what] is not None]
        return f"{np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})" if values else ""

    found = Table("variant", "nats, whole", "nats, regions", "best guess", "64 samples")
    for variant in dict.fromkeys(row["variant"] for row in rows):
        found.add_row(
            variant, *(cell(variant, what) for what in ("nats_whole", "nats_regions", "greedy_over_simple", "sampled_over_simple"))
        )
    return found


def main() -> None:
    """Trains what is missing, writes the file row by row, prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--run", type=Path, required=True, help="folder of a run of experiment=tiny with seed 0, for its placements")
    parser.add_argument("--steps", type=int, default=2500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", default=",".join(VARIANTS), help="comma-separated")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "ablations.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    overrides = ["experiment=tiny", "policy.judge_width=0", "num_threads=1", f"run_dir={options.run}"]
    settings = fill(TrainConfig, resolved(composed("train", overrides)), where="")
    targets, validation = open_targets(settings, None), pretraining_validation(settings)
    assert validation is not None
    if targets.missing(range(settings.workload.num_tasks)):
        raise SystemExit(f"{options.run} lacks placements to imitate; run train.py experiment=tiny run_dir={options.run} first")
    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    if any(row["steps"] not in (0, options.steps) for row in rows):
        parser.error(f"{options.out} has rows of other steps; write into another file")
    done = {(row["variant"], row["seed"]) for row in rows}
    console = Console(width=160)
    for seed in range(options.seeds):
        for variant in options.variants.split(","):
            if (variant, seed) not in done:
                rows.append(trained(variant, settings, targets, validation, seed=seed, steps=options.steps))
                console.print({name: value for name, value in rows[-1].items() if name != "parameters"})
                write_text(options.out, json.dumps({"steps": options.steps, "environment": environment(), "rows": rows}) + "\n")
    console.print(table(rows))


if __name__ == "__main__":
    main()
