"""Moves that change what a step waits for.

Of random changes few touch a critical path, and no other change makes a step shorter, but for the order in which things run. So one of the waits of the simulated step
(`gdp.runtime.critical_waits`) is drawn, the likelier the longer it is, and removed: a tensor's producer or consumer joins the other's device, a transfer that keeps the channel
is spared likewise, or one of two ops that want the same device goes elsewhere. Looking at a placement by its critical path is how job shops are searched (Nowicki and Smutnicki,
Management Science 42, 1996); the moves, and that blocks of any size make them, are ours.
"""

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.baselines.neighbourhood import Neighbourhood
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Timeline
from gdp.placement import Origin, Placement
from gdp.runtime.critical_waits import CriticalWaits, CriticalWaitsOf, Reason
from gdp.runtime.simulator import Simulator

_AGAIN = 0.25
"""The probability that one more wait is removed by the same move."""


class CriticalMoves:
    """Changes of the placement that was last seen."""

    def __init__(self, graph: Graph, cluster: Cluster, neighbourhood: Neighbourhood, *, predictor: Simulator) -> None:
        self._graph, self._cluster, self._neighbourhood = graph, cluster, neighbourhood
        self._predictor = Simulator(dispatch=predictor.dispatch, rank=predictor.rank, with_timeline=True)
        self._waits_of = CriticalWaitsOf(graph, cluster)
        self._waits: CriticalWaits | None = None
        self._likelihood = np.zeros(0)

    def see(self, device: Int32[np.ndarray, " ops"]) -> Timeline | None:
        """Simulates the placement that is to be changed, and returns the timeline; memory that overflows is no obstacle, an invalid placement has none."""
        timeline = self._predictor(self._graph, self._cluster, Placement(device=device, origin=Origin(placer="critical-moves"))).timeline
        self._waits = None if timeline is None else self._waits_of(device, timeline)
        self._likelihood = np.zeros(0) if self._waits is None else np.cumsum(self._waits.seconds)
        return timeline

    def propose(self, device: Int32[np.ndarray, " ops"], generator: np.random.Generator) -> Int32[np.ndarray, " ops"] | None:
        """A changed copy of the placement last seen; None when it waits for nothing, or nothing that was drawn changes it."""
        if not len(self._likelihood) or not self._likelihood[-1] > 0:
            return None
        before = device[self._neighbourhood.first_op]
        for _ in range(20):
            changed = before.copy()
            self._remove_a_wait(changed, generator)
            while generator.random() < _AGAIN:
                self._remove_a_wait(changed, generator)
            if (changed != before).any():
                return np.asarray(changed[self._neighbourhood.group_of_op])
        return None

    def waiting_groups(self, draws: int, generator: np.random.Generator) -> Int64[np.ndarray, " groups"]:
        """Groups that wait or are waited for, ascending: `draws` times one, the likelier the longer the wait; none when nothing waits."""
        if not len(self._likelihood) or not self._likelihood[-1] > 0:
            return np.zeros(0, np.int64)
        assert self._waits is not None
        drawn = self._drawn(generator.random(draws))
        op = np.where(generator.random(draws) < 0.5, self._waits.blocker[drawn], self._waits.blocked[drawn])
        return np.unique(self._neighbourhood.group_of_op[op]).astype(np.int64)

    def _drawn(self, share: Float64[np.ndarray, " draws"]) -> Int64[np.ndarray, " draws"]:
        return np.asarray(np.searchsorted(self._likelihood, share * self._likelihood[-1], side="right"))

    def _remove_a_wait(self, group_device: np.ndarray, generator: np.random.Generator) -> None:
        waits, put = self._waits, self._neighbourhood.put
        assert waits is not None
        drawn = int(self._drawn(generator.random(1))[0])
        blocker, blocked = (int(self._neighbourhood.group_of_op[end[drawn]]) for end in (waits.blocker, waits.blocked))
        destination, anywhere = int(waits.destination[drawn]), int(generator.integers(self._neighbourhood.num_devices))
        first = generator.random() < 0.5
        if waits.reason[drawn] == Reason.TRANSFER:
            if first:
                put(group_device, blocker, destination, generator)
            else:
                put(group_device, blocked, int(group_device[blocker]), generator)
        elif waits.reason[drawn] == Reason.CHANNEL:
            put(group_device, blocker, destination if first else anywhere, generator)
        else:
            put(group_device, blocker if first else blocked, anywhere, generator)
