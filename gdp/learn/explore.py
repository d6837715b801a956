"""Learning from a search on one task: the policy proposes regions, the simulator tries them, and the policy learns from what became of them.

An update is a stretch of local search (`gdp.baselines.local_search`) in which the policy decides regions anew while everything else is held, between moves that need no
policy. Every region that was tried is one episode; its reward is what the step gained, as the difference of the rewards before and after, so what the rest of the placement
costs is no part of it. Then PPO on the decisions of the regions, and imitation of regions of the best placement. Where times are measured, the search asks the simulator, and
the task's runtime measures the most promising placements of each update; a gain is then that of two measurements or of two predictions, never of one of each. The generators are
the learner's, and between two updates learner and search are whole.
"""

import dataclasses
import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int32, Int64

from gdp.baselines.local_search import LocalSearch, SearchState, Tried
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.learn.advantage import History, advantages
from gdp.learn.config import LearnConfig
from gdp.learn.imitation import group_decisions, region_loss
from gdp.learn.learner import Incumbent, Learner
from gdp.learn.loop import Update, learning_rate, patience_is_over
from gdp.learn.ppo import PPOLoss, ppo_loss
from gdp.learn.regions import random_regions
from gdp.learn.task import Task, TaskReward
from gdp.measurement import Measurement, Runtime, Status
from gdp.policy.judge import judge_maker
from gdp.policy.region import RegionDecision, RegionDecoder
from gdp.runtime.simulator import Simulator

_IMITATED_REGIONS = 4
"""Of the best placement, in every step of the optimiser."""


class Exploration:
    """A search for the step time of one task, whose groups are those of `coarsen(graph)`; the learner's policy takes part in it and learns from it."""

    def __init__(
        self,
        learner: Learner,
        task: Task,
        *,
        runtime: Runtime,
        predictor: Simulator,
        evaluations: int,
        config: LearnConfig,
        start: Int32[np.ndarray, "starts ops"],
        enough_s: float = 0.0,
    ) -> None:
        """Tries the starting points: they are the first of the `evaluations`, all of which `runtime` is asked, in updates of which the last may be shorter.

        `predictor` shows what a step waits for. A placement that takes `enough_s` or less by `runtime` ends the search.
        """
        moves = min(max(0, evaluations - len(start)), config.updates * config.samples_per_update)
        self._config = dataclasses.replace(config, updates=math.ceil(moves / config.samples_per_update))
        self._learner, self._task, self._runtime, self._enough_s = learner, task, runtime, enough_s
        self._evaluations = len(start) + moves
        self._decoder = RegionDecoder(learner.policy, task.tensors)
        self._decided: list[RegionDecision] = []
        search = LocalSearch(
            runtime=runtime,
            evaluations=self._evaluations,
            seed=0,
            predictor=predictor,
            redecide=self._redecider,
            judge=judge_maker(learner.policy.judge),
        )
        self._search = search.begin(task.graph, task.cluster, start)
        if learner.update == 0:
            learner.evaluations += len(start)
            if task.runtime is runtime:
                self._offer(self._search.best, self._search.current_measurement)

    def updates(self, reward: TaskReward) -> Iterator[Update]:
        """Moves the learner forward, update by update, from where it stands to the configuration's last, or until nothing is left to be gained."""
        learner, config, task = self._learner, self._config, self._task
        while learner.update < config.updates and not patience_is_over(learner, config) and not self.nothing_left:
            began = time.perf_counter()
            learner.update += 1
            tried: list[Tried] = []
            regions: list[tuple[RegionDecision, int]] = []
            for number in range(min(config.samples_per_update, self._evaluations - len(self.tried_s))):
                self._decided.clear()
                tried.append(self._search.step(learner.numpy_generator))
                if tried[-1].by_region[0]:
                    regions.append((self._decision(tried[-1].device[0]), number))
            after, before = self._measured(tried)
            learner.evaluations += len(tried)
            rows = [(each.device[0], found) for each, found in zip(tried, after, strict=True)]
            rows += [(each.before, found) for each, found in zip(tried, before, strict=True)]
            self._offer(*min(rows, key=lambda row: row[1].step_time_s if row[1].num_runs else np.inf))
            measured = time.perf_counter()
            reward_of = reward(task)
            compared = [_alike(after[number], before[number], tried[number]) for _, number in regions]
            gain = np.array([reward_of(of) - reward_of(than) for of, than in compared])
            ran = np.array([after[number].status == Status.OK for _, number in regions], np.bool_)
            losses = self._improve([decision for decision, _ in regions], gain, ran) if regions else []
            metrics = {
                "train/reward_mean": _mean([reward_of(measurement) for measurement in after]),
                "train/reward_max": max(reward_of(measurement) for measurement in after),
                "train/invalid_fraction": _mean([float(measurement.status != Status.OK) for measurement in after]),
                "train/learning_rate": float(learner.optimizer.param_groups[0]["lr"]),
                "train/evaluations": float(learner.evaluations),
                "explore/regions": float(len(regions)),
                "time/rollouts_s": measured - began,
                "time/update_s": time.perf_counter() - began,
            }
            ratios = [measurement.step_time_s / task.reference_s for measurement in after if measurement.status == Status.OK]
            if task.name in learner.incumbent:
                metrics["train/best_ratio"] = learner.incumbent[task.name].measurement.step_time_s / task.reference_s
            if ratios:
                metrics["train/sampled_ratio"] = _mean(ratios)
            if regions:
                metrics["explore/improved_fraction"] = float((gain > 0).mean())
                metrics["train/policy_loss"] = _mean([float(loss.policy_loss) for loss in losses])
                metrics["train/entropy"] = _mean([float(loss.entropy) for loss in losses])
                metrics["train/approx_kl"] = _mean([float(loss.approx_kl) for loss in losses])
                metrics["train/clip_fraction"] = _mean([float(loss.clip_fraction) for loss in losses])
            yield Update(number=learner.update, tasks=(task,), metrics=metrics)

    @property
    def num_updates(self) -> int:
        """Of the whole search."""
        return self._config.updates

    @property
    def nothing_left(self) -> bool:
        """Whether the best placement tried is as fast as was asked for."""
        return self._search.best_s <= self._enough_s

    @property
    def tried_s(self) -> list[float]:
        """The time of every placement tried, in order, by the runtime that is asked."""
        return self._search.tried_s

    @property
    def best(self) -> Int32[np.ndarray, " ops"]:
        """The placement of the least of them."""
        return self._search.best

    def state(self) -> dict[str, Any]:
        """Where the search stands, for a snapshot: JSON."""
        state = self._search.state()
        return {"tried_s": list(state.tried_s), "current": state.current.tolist(), "best": state.best.tolist()}

    def restore(self, state: dict[str, Any]) -> None:
        """Goes on from what `state` said, with a learner that was restored, too."""
        current, best = (np.array(state[name], np.int32) for name in ("current", "best"))
        self._search.restore(SearchState(tried_s=tuple(map(float, state["tried_s"])), current=current, best=best))
        self._decoder = RegionDecoder(self._learner.policy, self._task.tensors)

    def _redecider(self, graph: Graph, cluster: Cluster) -> "Exploration":
        return self

    def __call__(
        self, device: Int64[np.ndarray, " groups"], free: Bool[np.ndarray, " groups"], generator: np.random.Generator
    ) -> Int64[np.ndarray, " groups"]:
        """A region decided anew by the policy as it is now."""
        decided = self._decoder(device, free, generator)
        self._decided.append(self._decoder.last)
        return decided

    def _decision(self, device: Int32[np.ndarray, " ops"]) -> RegionDecision:
        """Of the regions that were decided for the last move, the one that was tried."""
        expand = self._task.grouping.expand
        return next(one for one in self._decided if (expand(one.device.astype(np.int32)) == device).all())

    def _measured(self, tried: list[Tried]) -> tuple[list[Measurement], list[Measurement]]:
        """Of every placement that was tried and of the one that it changed, by the task's runtime: a measurement, or a prediction on its scale."""
        if self._task.runtime is self._runtime:
            return [each.measurements[0] for each in tried], [each.measurement_before for each in tried]
        rows = np.stack([each.device[0] for each in tried] + [each.before for each in tried])
        measurements = self._task.runtime.batch(self._task.graph, self._task.cluster, rows)
        return [measurements[row] for row in range(len(tried))], [measurements[len(tried) + row] for row in range(len(tried))]

    def _offer(self, device: Int32[np.ndarray, " ops"], measurement: Measurement) -> None:
        group_device = torch.from_numpy(group_decisions(self._task, device))
        found = Incumbent(device=device.copy(), group_device=group_device, measurement=measurement, update=self._learner.update)
        self._learner.offer_found(self._task, found, objective="step_time")
        self._learner.offer(self._task, found, objective="step_time")

    def _improve(
        self, decisions: list[RegionDecision], gain: Float64[np.ndarray, " regions"], ran: Bool[np.ndarray, " regions"]
    ) -> list[PPOLoss]:
        """PPO on the free decisions of the regions, and imitation of regions of the incumbent; the policy proposes with its new parameters from here on."""
        learner, config, task = self._learner, self._config, self._task
        history = learner.history.get(task.name, History())
        advantage = advantages(
            gain, ran, history, baseline=config.baseline, normalise=config.normalise_advantage, clip=config.advantage_clip
        )
        learner.history[task.name] = history.with_rewards(gain, ran)
        device, free, log_prob = (
            torch.from_numpy(np.stack(part)) for part in zip(*((each.device, each.free, each.log_prob) for each in decisions), strict=True)
        )
        worth = torch.from_numpy(advantage).float()
        for group in learner.optimizer.param_groups:
            group["lr"] = learning_rate(learner.update, config)
        losses = []
        for _ in range(config.epochs):
            order = torch.from_numpy(learner.numpy_generator.permutation(len(decisions)))
            for rows in order.chunk(config.minibatches):
                learner.optimizer.zero_grad()
                new_log_prob, entropy = learner.policy.evaluate(task.tensors, device[rows, None], held=~free[rows])
                decided = free[rows].nonzero(as_tuple=True)
                loss = ppo_loss(
                    new_log_prob[:, 0][decided][:, None, None],
                    log_prob[rows][decided][:, None, None],
                    worth[rows][decided[0]],
                    entropy[:, 0][decided][:, None, None],
                    clip=config.clip,
                    entropy_weight=config.entropy_weight,
                )
                total = loss.loss + config.elite_weight * self._elite_loss() if config.elite_weight else loss.loss
                total.backward()  # type: ignore[no-untyped-call]
                learner.descend(config.gradient_norm)
                losses.append(loss)
        self._decoder = RegionDecoder(learner.policy, task.tensors)
        return losses

    def _elite_loss(self) -> torch.Tensor:
        best = self._learner.incumbent.get(self._task.name)
        if best is None:
            return torch.zeros(())
        free = random_regions(self._task.tensors.num_groups, count=_IMITATED_REGIONS, share=1.0, generator=self._learner.numpy_generator)
        return region_loss(self._learner.policy, self._task, best.group_device, torch.from_numpy(free))


def _alike(after: Measurement, before: Measurement, tried: Tried) -> tuple[Measurement, Measurement]:
    """Both measured or both predicted: between a measurement and a prediction lies mostly what the prediction is wrong by, which is more than a move gains."""
    if (after.num_runs > 0) == (before.num_runs > 0) or Status.OK != after.status or Status.OK != before.status:
        return after, before
    of, than = tried.measurements[0], tried.measurement_before
    factor = before.step_time_s / than.step_time_s if after.num_runs else after.step_time_s / of.step_time_s
    return of.scaled(factor), than.scaled(factor)


def _mean(values: list[float]) -> float:
    return float(np.mean(values))
