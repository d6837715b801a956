"""How much better a placement was than expected: reward minus a baseline, per task (GDP, arXiv 1910.01578, section 3.3).

GDP's baseline is the average reward of all previous trials of the graph (`baseline="previous_trials"`, `normalise=False`, no clipping); the
very first trials of a task are compared with the others of their batch, since nothing precedes them.

Deviations, each a knob:

* `baseline="batch"` compares a placement with the others of its batch (leave-one-out). The average of all previous trials lags behind a policy
  that improves, and then calls everything good.
* `normalise=True` divides by the standard deviation of the task's rewards, so that tasks with small and large differences teach alike. Mean and
  deviation are then those of placements that could run: the reward -10 of those that could not would drown the differences among the others.
* `clip` bounds the result, so that one placement that cannot run does not outweigh a batch.
"""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64

Baseline = Literal["previous_trials", "batch"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trials:
    """Count, mean and sum of squared deviations of the rewards seen so far (Welford's sums)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def with_rewards(self, reward: Float64[np.ndarray, " samples"]) -> "Trials":
        """These trials and those, by Chan's parallel formula."""
        if not len(reward):
            return self
        count = self.count + len(reward)
        shift = float(reward.mean()) - self.mean
        squares = self.squares + float(((reward - reward.mean()) ** 2).sum()) + shift**2 * self.count * len(reward) / count
        return Trials(count=count, mean=self.mean + shift * len(reward) / count, squares=squares)

    @property
    def std(self) -> float:
        """Standard deviation; 0 with fewer than two trials."""
        return float(np.sqrt(self.squares / (self.count - 1))) if self.count > 1 else 0.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class History:
    """All trials of one task, and those of them that could run."""

    trials: Trials = Trials()
    valid: Trials = Trials()

    def with_rewards(self, reward: Float64[np.ndarray, " samples"], valid: Bool[np.ndarray, " samples"]) -> "History":
        return History(trials=self.trials.with_rewards(reward), valid=self.valid.with_rewards(reward[valid]))


def advantages(
    reward: Float64[np.ndarray, " samples"],
    valid: Bool[np.ndarray, " samples"],
    history: History,
    *,
    baseline: Baseline,
    normalise: bool,
    clip: float,
) -> Float64[np.ndarray, " samples"]:
    """Advantage of each placement of a batch; `history` holds the trials before it, `valid` says which placements could run."""
    counted = valid if normalise and (valid.any() or history.valid.count) else np.ones_like(valid)
    before = history.valid if counted is valid else history.trials
    if baseline == "previous_trials" and before.count:
        expected = np.full_like(reward, before.mean)
    else:
        expected = _mean_of_others(reward, counted)
    result = reward - expected
    if normalise:
        std = before.with_rewards(reward[counted]).std
        result = result / std if std > 0 else np.sign(result)
    return np.asarray(np.clip(result, -clip, clip))


def _mean_of_others(reward: np.ndarray, counted: np.ndarray) -> np.ndarray:
    """Mean reward of the counted trials but for the trial itself; of all counted where there are no others."""
    total, count = reward[counted].sum(), int(counted.sum())
    if not count:
        return reward.copy()
    others = count - counted
    return np.asarray(np.where(others > 0, (total - np.where(counted, reward, 0.0)) / np.maximum(others, 1), total / count))
