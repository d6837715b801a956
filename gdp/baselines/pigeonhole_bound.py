"""The pigeonhole bound: of the `k D + 1` longest units, some of `D` devices runs at least `k + 1`, and these take as long as the shortest `k + 1` of them at least.

With `k = 0` it is the longest unit; known for equal machines and `k = 1` from bin packing (Martello and Toth, Knapsack Problems, 1990, section 8.3.1). It sees what the work
bound, which divides units, does not. A unit counts with its time on the fastest class that can hold it.
"""

import numpy as np

from gdp.baselines.indivisible import Indivisible


def pigeonhole_bound_s(units: Indivisible) -> float:
    """The largest of the bounds for all `k`. Every unit fits on some class."""
    shortest_s = np.where(units.fits, units.time_s, np.inf).min(axis=1)
    falling = np.sort(shortest_s)[::-1]
    before = np.concatenate([[0.0], np.cumsum(falling)])
    num_devices = int(units.class_size.sum())
    last = np.arange(0, units.num_units, num_devices)
    k = np.arange(len(last))
    return float((before[last + 1] - before[last - k]).max())
