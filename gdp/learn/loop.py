"""The loop of learning, the same for pretraining (many graphs) and fine-tuning (one graph, a subset of the parameters).

Draw tasks -> sample placements -> run them -> rewards -> advantages -> PPO -> yield what happened. Whoever iterates logs, validates,
takes snapshots and stops: between two updates the `Learner` is whole.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from gdp.learn.advantage import History, advantages
from gdp.learn.config import LearnConfig
from gdp.learn.imitation import imitation_loss
from gdp.learn.learner import Learner
from gdp.learn.ppo import PPOLoss, ppo_loss
from gdp.learn.task import Rollouts, Task, TaskReward, TaskSource
from gdp.measurement import Objective
from gdp.policy.policy import Policy


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """What happened in one update."""

    number: int
    """counted from 1."""
    tasks: tuple[Task, ...]
    metrics: Mapping[str, float]
    """by the names that docs/metrics.md explains."""


def learn(learner: Learner, source: TaskSource, reward: TaskReward, *, config: LearnConfig, objective: Objective) -> Iterator[Update]:
    """Moves `learner` forward, update by update, from where it stands to `config.updates`."""
    while learner.update < config.updates and not patience_is_over(learner, config):
        began = time.perf_counter()
        learner.update += 1
        tasks = [source(learner.numpy_generator) for _ in range(config.tasks_per_update)]
        drawn = time.perf_counter()
        rollouts = [roll_out(learner.policy, task, reward, config=config, generator=learner.torch_generator) for task in tasks]
        evaluated = time.perf_counter()
        advantage = [_advantage(learner, task, tried, config=config) for task, tried in zip(tasks, rollouts, strict=True)]
        for task, tried in zip(tasks, rollouts, strict=True):
            learner.offer_best(task, tried, objective=objective)
            learner.evaluations += config.samples_per_update
        losses, totals, gradient_norm = improve(learner, tasks, rollouts, advantage, config=config)
        metrics = {
            **_rollout_metrics(learner, tasks, rollouts, objective=objective),
            "train/advantage_std": float(np.concatenate(advantage).std()),
            "train/loss": _mean(totals),
            "train/policy_loss": _mean([float(loss.policy_loss) for loss in losses]),
            "train/entropy": _mean([float(loss.entropy) for loss in losses]),
            "train/approx_kl": _mean([float(loss.approx_kl) for loss in losses]),
            "train/clip_fraction": _mean([float(loss.clip_fraction) for loss in losses]),
            "train/gradient_norm": gradient_norm,
            "train/learning_rate": float(learner.optimizer.param_groups[0]["lr"]),
            "train/evaluations": float(learner.evaluations),
            "time/tasks_s": drawn - began,
            "time/rollouts_s": evaluated - drawn,
            "time/update_s": time.perf_counter() - began,
        }
        yield Update(number=learner.update, tasks=tuple(tasks), metrics=metrics)


def roll_out(policy: Policy, task: Task, reward: TaskReward, *, config: LearnConfig, generator: torch.Generator) -> Rollouts:
    """Samples placements of a task and runs them."""
    decisions = policy.sample(task.tensors, num_samples=config.samples_per_update, temperature=config.temperature, generator=generator)
    op_device = task.grouping.expand(decisions.device[:, -1].numpy().astype(np.int32))
    measurements = task.runtime.batch(task.graph, task.cluster, op_device)
    reward_of = reward(task)
    return Rollouts(
        device=decisions.device,
        log_prob=decisions.log_prob,
        op_device=op_device,
        measurements=measurements,
        reward=np.array([reward_of(measurements[row]) for row in range(len(measurements))], np.float64),
    )


def improve(
    learner: Learner, tasks: list[Task], rollouts: list[Rollouts], advantage: list[np.ndarray], *, config: LearnConfig
) -> tuple[list[PPOLoss], list[float], float]:
    """PPO on the placements of one update: every step averages the gradients of all tasks. Returns all losses, each with what was minimised in all, and the mean gradient norm."""
    for group in learner.optimizer.param_groups:
        group["lr"] = learning_rate(learner.update, config)
    losses, totals, norms = [], [], []
    for _ in range(config.epochs):
        order = [learner.numpy_generator.permutation(len(tried.reward)) for tried in rollouts]
        for part in range(config.minibatches):
            learner.optimizer.zero_grad()
            for task, tried, gain, shuffled in zip(tasks, rollouts, advantage, order, strict=True):
                rows = torch.from_numpy(np.array_split(shuffled, config.minibatches)[part])
                new_log_prob, entropy = learner.policy.evaluate(task.tensors, tried.device[rows])
                loss = ppo_loss(
                    new_log_prob,
                    tried.log_prob[rows],
                    torch.from_numpy(gain[rows.numpy()]).float(),
                    entropy,
                    clip=config.clip,
                    entropy_weight=config.entropy_weight,
                )
                total = loss.loss + config.elite_weight * _elite_loss(learner, task) if config.elite_weight else loss.loss
                (total / len(tasks)).backward()  # type: ignore[no-untyped-call]
                losses.append(loss)
                totals.append(float(total.detach()))
            norms.append(learner.descend(config.gradient_norm))
    return losses, totals, _mean(norms)


def _elite_loss(learner: Learner, task: Task) -> torch.Tensor:
    best = learner.incumbent.get(task.name)
    if best is None:
        return torch.zeros(())
    return imitation_loss(learner.policy, task, best.group_device, generator=learner.torch_generator)


def _advantage(learner: Learner, task: Task, rollouts: Rollouts, *, config: LearnConfig) -> np.ndarray:
    history = learner.history.get(task.name, History())
    learner.history[task.name] = history.with_rewards(rollouts.reward, rollouts.valid)
    return advantages(
        rollouts.reward,
        rollouts.valid,
        history,
        baseline=config.baseline,
        normalise=config.normalise_advantage,
        clip=config.advantage_clip,
    )


def _rollout_metrics(learner: Learner, tasks: list[Task], rollouts: list[Rollouts], *, objective: Objective) -> dict[str, float]:
    metrics = {
        "train/reward_mean": _mean([float(tried.reward.mean()) for tried in rollouts]),
        "train/reward_max": _mean([float(tried.reward.max()) for tried in rollouts]),
        "train/invalid_fraction": _mean([float(1 - tried.valid.mean()) for tried in rollouts]),
    }
    known = [(task, learner.incumbent[task.name]) for task in tasks if task.name in learner.incumbent]
    if known:
        ratios = [best.measurement.objective_s(objective) / task.reference_s for task, best in known]
        metrics["train/best_ratio"] = float(np.exp(np.mean(np.log(ratios))))
    sampled = [
        float(tried.measurements.objective_s(objective)[tried.valid].mean()) / task.reference_s
        for task, tried in zip(tasks, rollouts, strict=True)
        if tried.valid.any()
    ]
    if sampled:
        metrics["train/sampled_ratio"] = float(np.exp(np.mean(np.log(sampled))))
    return metrics


def learning_rate(update: int, config: LearnConfig) -> float:
    """Of an update: linear from the first to the last."""
    done = (update - 1) / max(config.updates - 1, 1)
    return config.learning_rate + (config.final_learning_rate - config.learning_rate) * done


def patience_is_over(learner: Learner, config: LearnConfig) -> bool:
    """Whether the incumbents have not got better for as many updates as the configuration waits."""
    return 0 < config.patience_updates <= learner.update - learner.last_improvement


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
