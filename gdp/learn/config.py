"""The knobs of learning."""

import dataclasses
import math

from gdp.errors import InputError
from gdp.learn.advantage import Baseline
from gdp.learn.limits import MAX_LEARNING_RATE, MAX_LOSS_WEIGHT, MAX_SAMPLES, MAX_STEPS, MAX_TEMPERATURE, check_counts, check_learning_rate
from gdp.measurement import Objective

MAX_SEED = 2**63 - 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class RewardConfig:
    """What is maximised: `-sqrt(time / reference)` (`gdp.reward.negative_sqrt_time`)."""

    objective: Objective
    invalid: float
    """reward of a placement that cannot run."""

    def __post_init__(self) -> None:
        if self.objective not in ("step_time", "bottleneck"):
            raise InputError(f"reward.objective is {self.objective!r}; it must be step_time or bottleneck")
        if not -math.inf < self.invalid < 0:
            raise InputError(f"reward.invalid is {self.invalid}; it must be a negative number")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LearnConfig:
    """How a policy is moved. Checked when built."""

    updates: int
    """0 for imitation alone; how many times tasks are drawn, placements sampled, and the policy moved."""
    tasks_per_update: int
    """tasks whose gradients are averaged in one update; 1 when there is only one task."""
    samples_per_update: int
    """placements sampled and evaluated per task and update."""
    temperature: float
    """of whole placements (regions are sampled as `gdp.policy.region` says); 1 is the policy itself, and GDP. Below 1 samples are closer to the policy's best guess, and
    the gradient is that of the sharper policy's samples."""
    epochs: int
    """passes over the placements of an update."""
    minibatches: int
    """parts into which an epoch cuts the placements of every task; each part is one step of the optimiser."""
    learning_rate: float
    final_learning_rate: float
    """reached in the last update, linearly; equal to `learning_rate` for a constant one."""
    clip: float
    """half-width of the range that a decision's probability ratio may leave without effect."""
    entropy_weight: float
    gradient_norm: float
    """gradients with a larger norm are scaled down to it."""
    baseline: Baseline
    """see `gdp.learn.advantage`."""
    normalise_advantage: bool
    advantage_clip: float
    """bound on the size of an advantage; infinite for none."""
    elite_weight: float
    """weight of the log-likelihood of the task's best placement so far, added to the loss; 0 is PPO alone, as GDP."""
    patience_updates: int
    """stop when no task's best placement got better in so many updates; 0 never stops early."""

    def __post_init__(self) -> None:
        check_counts(
            "learner",
            (
                ("updates", self.updates, 0, MAX_STEPS),
                ("tasks_per_update", self.tasks_per_update, 1, MAX_SAMPLES),
                ("samples_per_update", self.samples_per_update, 1, MAX_SAMPLES),
                ("epochs", self.epochs, 1, MAX_SAMPLES),
                ("minibatches", self.minibatches, 1, MAX_SAMPLES),
                ("patience_updates", self.patience_updates, 0, MAX_STEPS),
            ),
        )
        check_learning_rate("learner.learning_rate", self.learning_rate)
        if self.minibatches > self.samples_per_update:
            raise InputError(
                f"learner.minibatches is {self.minibatches} but there are {self.samples_per_update} samples per update; ask for no more parts than samples"
            )
        for name, number in (("gradient_norm", self.gradient_norm), ("advantage_clip", self.advantage_clip)):
            if not number > 0:
                raise InputError(f"learner.{name} is {number}; it must be positive")
        if not 1 / MAX_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE:
            raise InputError(
                f"learner.temperature is {self.temperature}; it must lie between {1 / MAX_TEMPERATURE:g} and {MAX_TEMPERATURE:g}"
            )
        if not 0 <= self.final_learning_rate <= MAX_LEARNING_RATE:
            raise InputError(f"learner.final_learning_rate is {self.final_learning_rate}; it must lie between 0 and {MAX_LEARNING_RATE:g}")
        for name, number in (
            ("entropy_weight", self.entropy_weight),
            ("elite_weight", self.elite_weight),
        ):
            if not 0 <= number <= MAX_LOSS_WEIGHT:
                raise InputError(f"learner.{name} is {number}; it must lie between 0 and {MAX_LOSS_WEIGHT:g}")
        if not 0 < self.clip < 1:
            raise InputError(f"learner.clip is {self.clip}; it must lie between 0 and 1")
        if self.baseline not in ("previous_trials", "batch"):
            raise InputError(f"learner.baseline is {self.baseline!r}; it must be previous_trials or batch")
