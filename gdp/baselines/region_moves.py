"""Moves that decide a whole region anew, everything else held: search over large neighbourhoods (Shaw, CP 1998; Pisinger and Ropke, 2010).

Most regions are sets of groups that the present step waits for or that wait, drawn the likelier the longer the wait, wherever in the graph they lie; others are a block of one of
the neighbourhood's coarsenings, or a stretch of the stage order, around one of them or around any group that works. Who decides a region is handed over: a policy that was
taught to (`gdp.policy.region`).
"""

from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int32, Int64

from gdp.baselines.critical_moves import CriticalMoves
from gdp.baselines.neighbourhood import Neighbourhood

_WAITS = 0.8
"""The share of regions that are what is waited for; of the others, half lie around something that is waited for, and half are blocks."""

_MOST_WAITS = 200
"""Draws for such a region, at most; the logarithm of their number is uniform."""

_LARGEST_SHARE = 1 / 4
"""Of all groups, in a stretch of the order."""

_ATTEMPTS = 5
"""Regions tried for one move until one is decided otherwise than it was."""


@runtime_checkable
class Redecide(Protocol):
    """Decides the free groups of a placement anew, the others held where they are; groups are those of `coarsen(graph)`. The generator is consumed."""

    def __call__(
        self, device: Int64[np.ndarray, " groups"], free: Bool[np.ndarray, " groups"], generator: np.random.Generator
    ) -> Int64[np.ndarray, " groups"]: ...


class RegionMoves:
    """Changes of the placement that `critical` last saw."""

    def __init__(self, neighbourhood: Neighbourhood, critical: CriticalMoves, redecide: Redecide) -> None:
        self._neighbourhood, self._critical, self._redecide = neighbourhood, critical, redecide
        self._place = np.empty(neighbourhood.num_groups, np.int64)
        self._place[neighbourhood.order] = np.arange(neighbourhood.num_groups)

    def propose(self, device: Int32[np.ndarray, " ops"], generator: np.random.Generator) -> Int32[np.ndarray, " ops"] | None:
        """A changed copy; None when all regions that were drawn are decided as they were."""
        before = device[self._neighbourhood.first_op].astype(np.int64)
        for _ in range(_ATTEMPTS):
            free = np.zeros(self._neighbourhood.num_groups, np.bool_)
            free[self._region(generator)] = True
            after = self._redecide(before, free, generator)
            if (after != before).any():
                return np.asarray(after[self._neighbourhood.group_of_op].astype(np.int32))
        return None

    def _region(self, generator: np.random.Generator) -> Int64[np.ndarray, " region"]:
        if generator.random() < _WAITS:
            draws = int(np.exp(generator.uniform(np.log(2), np.log(_MOST_WAITS))))
            waiting = self._critical.waiting_groups(draws, generator)
            if len(waiting):
                return waiting
        around = self._neighbourhood
        center = int(generator.choice(around.works))
        if generator.random() < 0.5:
            center = int(next(iter(self._critical.waiting_groups(1, generator)), center))
        if generator.random() < 0.5:
            level = int(generator.integers(len(around.blocks)))
            members = around.blocks[level][around.block_of_group[level][center]]
            if len(members) > 1:
                return np.asarray(members)
        largest = max(4.0, around.num_groups * _LARGEST_SHARE)
        size = int(np.exp(generator.uniform(np.log(2), np.log(largest))))
        first = max(0, int(self._place[center]) - int(generator.integers(size)))
        return np.asarray(around.order[first : first + size])
