"""What learning maximises: a number from a measurement."""

from typing import Protocol, runtime_checkable

import numpy as np

from gdp.errors import InputError
from gdp.measurement import Measurement, Objective, Status


@runtime_checkable
class RewardFn(Protocol):
    """A measurement's reward; higher is better."""

    def __call__(self, measurement: Measurement) -> float: ...


def negative_sqrt_time(*, reference_s: float, invalid: float = -10.0, objective: Objective = "step_time") -> RewardFn:
    """GDP's reward, `-sqrt(time / reference)`, and `invalid` for a placement that cannot run (arXiv 1910.01578, section 3.3).

    `reference_s` is the time of a baseline placement. Raises `InputError` when it is not a positive number.
    """
    if not 0 < reference_s < np.inf:
        raise InputError(
            f"the reference time of the reward is {reference_s} s; it must be positive and finite: choose a baseline that can run"
        )

    def reward(measurement: Measurement) -> float:
        if measurement.status != Status.OK:
            return invalid
        return -float(np.sqrt(measurement.objective_s(objective) / reference_s))

    return reward
