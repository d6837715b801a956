"""Regions of a placement that are decided anew while everything else is held: what imitation practises, and what a search asks for."""

import numpy as np
from jaxtyping import Bool

_LARGEST_SHARE = 1 / 3
"""Of all groups."""

_SCATTERED = 0.3
"""The share of regions whose groups are drawn at random; the others are neighbours in topological order."""


def random_regions(num_groups: int, *, count: int, share: float, generator: np.random.Generator) -> Bool[np.ndarray, "count groups"]:
    """Which groups are free in each of `count` placements: a region in a `share` of them, all groups in the others. The logarithm of a region's size is uniform."""
    free = np.ones((count, num_groups), np.bool_)
    for row in range(count):
        if generator.random() >= share:
            continue
        size = int(np.exp(generator.uniform(np.log(2), np.log(max(4, num_groups * _LARGEST_SHARE)))))
        free[row] = False
        if generator.random() < _SCATTERED:
            free[row, generator.choice(num_groups, min(size, num_groups), replace=False)] = True
        else:
            first = int(generator.integers(max(1, num_groups - size + 1)))
            free[row, first : first + size] = True
    return free
