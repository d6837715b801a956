"""Where the time of a training step goes: seconds of each stage of an imitation step and of an update of PPO, by the recipes of the published policies.

    python benchmarks/training_step.py [--tasks 24] [--steps 120] [--updates 12] [--out FILE]

Tasks are the first of each recipe's own pool, made ready before; what imitation is taught there is list scheduling's placement, since a step takes as long whatever it is taught.
The steps are those of `gdp.learn`, under the standard library's profiler, on one core; the stages do not overlap, and *the rest* is what is in none of them.
"""

import argparse
import cProfile
import dataclasses
import json
import pstats
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.list_scheduling import ListScheduling
from gdp.cli.fill import fill
from gdp.cli.hydra_config import composed, resolved
from gdp.cli.pretraining_tasks import pretraining_source
from gdp.cli.report_data import environment
from gdp.cli.train_config import TrainConfig
from gdp.learn.imitation import as_target, imitate
from gdp.learn.learner import new_learner
from gdp.learn.loop import learn
from gdp.learn.sources import FixedTasks
from gdp.learn.targets import imitation_order
from gdp.learn.task import Task, relative_reward
from gdp.policy import schedule
from gdp.policy.heads import PairHead
from gdp.policy.policy import Policy, gumbel_noise
from gdp.runtime.simulator import Simulator

STAGES: Mapping[str, tuple[Callable[..., Any], ...]] = {
    "encoder": (Policy._encode,),
    "pairs' hidden layer": (Policy._hidden,),
    "schedule": (schedule.walk,),
    "scores": (PairHead.logits,),
    "noise": (gumbel_noise,),
    "gradients": (torch.Tensor.backward,),
    "optimiser": (torch.nn.utils.clip_grad_norm_, torch.optim.Adam.step),
    "simulator": (Simulator.batch,),
}
RECIPES = ("tiny", "base")
RESULTS = Path(__file__).parent / "results" / "training_step.json"


def seconds_of(steps: Iterable[object]) -> tuple[float, dict[str, float]]:
    """What it takes to go through `steps`, in all and by stage."""
    profile = cProfile.Profile()
    began = time.perf_counter()
    profile.enable()
    for _ in steps:
        pass
    profile.disable()
    total_s = time.perf_counter() - began
    stats: Mapping[tuple[str, int, str], tuple[int, int, float, float, Any]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    spent_s = {stage: sum(stats[key][3] for key in map(_key, functions) if key in stats) for stage, functions in STAGES.items()}
    return total_s, {**spent_s, "the rest": total_s - sum(spent_s.values())}


def _key(function: Callable[..., Any]) -> tuple[str, int, str]:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    return code.co_filename, code.co_firstlineno, code.co_name


def rows_of(recipe: str, *, num_tasks: int, steps: int, updates: int) -> list[dict[str, Any]]:
    """An imitation step and an update of PPO, as the recipe has them."""
    settings = fill(TrainConfig, resolved(composed("train", [f"experiment={recipe}", "policy.judge_width=0", "num_threads=1"])), where="")
    began = time.perf_counter()
    made = [pretraining_source(settings, None).task(number) for number in range(num_tasks)]
    tasks = [task for task in made if task is not None]
    task_s = (time.perf_counter() - began) / num_tasks
    targets = [as_target(task, ListScheduling()(task.graph, task.cluster).device) for task in tasks]
    policy = Policy(settings.policy, settings.features, generator=torch.Generator().manual_seed(0))
    learner = new_learner(policy, parameters=list(policy.parameters()), seed=0)
    config = dataclasses.replace(settings.learner, updates=updates + 1)
    imitation = imitate(
        learner,
        imitation_order(len(tasks), steps=steps + 1, seed=0),
        lambda number: (tasks[number], targets[number]),
        config=settings.imitation,
        gradient_norm=config.gradient_norm,
        objective=settings.reward.objective,
    )
    found = []
    ppo = learn(learner, FixedTasks(tasks=tasks), relative_reward(settings.reward), config=config, objective=settings.reward.objective)
    for name, counted, going in (("imitation step", steps, imitation), ("update of PPO", updates, ppo)):
        next(going)
        total_s, stage_s = seconds_of(going)
        found.append(
            {
                "recipe": recipe,
                "what": name,
                "times": counted,
                "mean_groups": _mean_groups(tasks),
                "task_s": task_s,
                "step_s": total_s / counted,
                "stage_s": {stage: seconds / counted for stage, seconds in stage_s.items()},
            }
        )
    return found


def _mean_groups(tasks: list[Task]) -> float:
    return sum(task.tensors.num_groups for task in tasks) / len(tasks)


def table(rows: list[dict[str, Any]]) -> Table:
    """Milliseconds a step, and each stage's share of them."""
    stages = (*STAGES, "the rest")
    found = Table("recipe", "what", "ms", *stages)
    for row in rows:
        shares = (f"{100 * row['stage_s'][stage] / row['step_s']:.0f} %" for stage in stages)
        found.add_row(row["recipe"], row["what"], f"{1e3 * row['step_s']:.0f}", *shares)
    return found


def main() -> None:
    """Measures both recipes, prints the table, writes the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for recipe in RECIPES for row in rows_of(recipe, num_tasks=options.tasks, steps=options.steps, updates=options.updates)]
    write_text(options.out, json.dumps({"environment": environment(), "rows": rows}, indent=1) + "\n")
    Console(width=180).print(table(rows))


if __name__ == "__main__":
    main()
