"""Whether the machine's speed moved while times were taken.

Pettitt's test for one change at an unknown moment (A Non-Parametric Approach to the Change-Point Problem, Applied Statistics 28, 1979, equations 2.1 to 2.5): with ranks R_i of n
values in the order in which they came, U_t = 2 (R_1 + ... + R_t) - t (n + 1), and K = max |U_t| is exceeded by chance with probability about 2 exp(-6 K^2 / (n^3 + n^2)). It sees
a slow trend as well as a step, and no shape of the noise is assumed, but independence is: noise that stays for several values is itself a movement, and is called one.
"""

import math
from collections.abc import Sequence

import numpy as np

MAX_FALSE_ALARMS = 0.01


def speed_change(times: Sequence[float]) -> float:
    """The median of the times after the likeliest change over the median before it, less 1: positive when the machine got slower. 0 when chance explains the change in more than
    `MAX_FALSE_ALARMS` of all cases."""
    values = np.asarray(times, np.float64)
    count = len(values)
    if count < 2:
        return 0.0
    ordered = np.sort(values)
    ranks = (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2  # equal values share one
    statistic = np.abs(2 * np.cumsum(ranks) - np.arange(1, count + 1) * (count + 1))[:-1]
    change = int(statistic.argmax()) + 1
    if 2 * math.exp(-6 * float(statistic.max()) ** 2 / (count**3 + count**2)) > MAX_FALSE_ALARMS:
        return 0.0
    return float(np.median(values[change:]) / np.median(values[:change])) - 1
