"""Local search with simulated annealing (Kirkpatrick et al., Science 220, 1983), started from the best simple placement.

Moves, at random: a block of groups to another device, a group or a block to the device of a neighbour (the likelier the more bytes pass between them), work from the
busiest device to another, a stretch of the stage order to one device, two groups swapped. Blocks are the groups of ever coarser
coarsenings, so that one move can carry a whole branch or layer. With a simulator that predicts, most moves remove what the present placement's step waits for instead
(`gdp.baselines.critical_moves`); with somebody who can decide a region anew, a part of the moves is left to them (`gdp.baselines.region_moves`); with a judge, the most
promising of several moves, or regions, is tried (`gdp.baselines.move_judge`). A worse placement is accepted with probability `exp(-relative loss / temperature)`; the
temperature falls geometrically over the budget.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Int32

from gdp.baselines.critical_moves import CriticalMoves
from gdp.baselines.move_judge import MoveJudge
from gdp.baselines.neighbourhood import Neighbourhood
from gdp.baselines.region_moves import Redecide, RegionMoves
from gdp.baselines.score import scores
from gdp.baselines.search_result import SearchResult
from gdp.baselines.starting_points import starting_points
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch, Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.runtime.simulator import Simulator

_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 0.001, 0.0001

_REGIONS = 0.15
"""The share of moves that decide a region anew, where somebody can."""

_JUDGED_REGIONS = 4
"""Decided anew for one such move, where a judge chooses among them."""

_CRITICAL = 0.7
"""The share of the other moves that remove a wait, where there is a simulator to see them."""

_MOST_CANDIDATES = 64
"""From which a judge chooses. The logarithm of their number is uniform: a judge prefers small sure gains, and of few candidates even the best may be a large change."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LocalSearch:
    """Anytime search that spends `evaluations` placements of the runtime, the simple starting points included (fewer only where there is a single device).

    `batch_size` neighbours are measured at once and the best of them is considered: 1 uses evaluations best, more suits a runtime with workers.
    `predictor` shows what a step waits for, by one simulation more of every placement that is accepted; a bottleneck is explained by no path, and needs none.
    """

    runtime: Runtime
    evaluations: int
    seed: int
    objective: Objective = "step_time"
    batch_size: int = 1
    predictor: Simulator | None = None
    redecide: Callable[[Graph, Cluster], Redecide] | None = None
    """makes who decides regions anew; needs a predictor, too."""
    judge: Callable[[Graph, Cluster], MoveJudge] | None = None
    """makes who chooses among candidates; needs a predictor, too."""

    def __post_init__(self) -> None:
        if self.evaluations < 1 or self.batch_size < 1:
            raise InputError(
                f"LocalSearch is given {self.evaluations} evaluations in batches of {self.batch_size}; it needs at least 1 of each"
            )
        assert self.predictor is not None or (self.redecide is None and self.judge is None)

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        return self.search(graph, cluster).placement

    def search(self, graph: Graph, cluster: Cluster, *, own: Int32[np.ndarray, "starts ops"] | None = None) -> SearchResult:
        """The best placement, and the best time after each evaluation. `own` placements are tried after the simple ones that every search starts from."""
        generator = np.random.default_rng(self.seed)
        simple = starting_points_of_search(graph, cluster, evaluations=self.evaluations, seed=self.seed)
        start = simple if own is None or cluster.num_devices == 1 else np.concatenate([simple, own])
        search = self.begin(graph, cluster, start[: self.evaluations])
        while len(search.tried_s) < self.evaluations and cluster.num_devices > 1:
            search.step(generator)
        origin = Origin(
            placer="local-search" if self.predictor is None else "critical-path-search", seed=self.seed, evaluations=len(search.tried_s)
        )
        return SearchResult.from_scores(Placement(device=np.array(search.best), origin=origin), search.tried_s)

    def begin(self, graph: Graph, cluster: Cluster, start: Int32[np.ndarray, "starts ops"]) -> "SearchUnderWay":
        """Tries the starting points; the search goes on from the best of them."""
        return SearchUnderWay(self, graph, cluster, start)


def starting_points_of_search(graph: Graph, cluster: Cluster, *, evaluations: int, seed: int) -> Int32[np.ndarray, "starts ops"]:
    """Of one with so many evaluations, which may be fewer than these: the larger the budget, the more METIS partitions."""
    return starting_points(graph, cluster, num_partitions=8 + evaluations // 50, seed=seed)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Tried:
    """One batch of moves."""

    device: Int32[np.ndarray, "batch ops"]
    measurements: MeasurementBatch
    before: Int32[np.ndarray, " ops"]
    """the placement that they changed."""
    measurement_before: Measurement
    by_region: Bool[np.ndarray, " batch"]
    """whether a region was decided anew, by whoever decides them."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SearchState:
    """Where a search stands; with the generator it is given, it goes on as it would have."""

    tried_s: tuple[float, ...]
    current: Int32[np.ndarray, " ops"]
    best: Int32[np.ndarray, " ops"]


class SearchUnderWay:
    """A local search, one batch of moves at a time."""

    def __init__(self, config: LocalSearch, graph: Graph, cluster: Cluster, start: Int32[np.ndarray, "starts ops"]) -> None:
        self._config, self._graph, self._cluster = config, graph, cluster
        self._neighbourhood = Neighbourhood(graph, cluster)
        self._critical = (
            None if config.predictor is None else CriticalMoves(graph, cluster, self._neighbourhood, predictor=config.predictor)
        )
        self._regions = None
        if config.redecide is not None:
            assert self._critical is not None
            self._regions = RegionMoves(self._neighbourhood, self._critical, config.redecide(graph, cluster))
        self._judge = None if config.judge is None else config.judge(graph, cluster)
        measurements = config.runtime.batch(graph, cluster, start)
        seconds = scores(measurements, cluster, objective=config.objective)
        self.tried_s: list[float] = seconds.tolist()
        """by every evaluation, in order."""
        first = int(seconds.argmin())
        self.current, self.current_s, self.current_measurement = np.array(start[first]), float(seconds[first]), measurements[first]
        self.best, self.best_s = self.current, self.current_s
        self._see()

    def step(self, generator: np.random.Generator) -> Tried:
        """Tries the next moves and keeps what is to be kept."""
        config = self._config
        done = len(self.tried_s) / config.evaluations
        temperature = _FIRST_TEMPERATURE * (_LAST_TEMPERATURE / _FIRST_TEMPERATURE) ** min(done, 1.0)
        count = max(1, min(config.batch_size, config.evaluations - len(self.tried_s)))
        moves = [self._propose(generator) for _ in range(count)]
        proposals = np.stack([device for device, _ in moves])
        measurements = config.runtime.batch(self._graph, self._cluster, proposals)
        seconds = scores(measurements, self._cluster, objective=config.objective)
        tried = Tried(
            device=proposals,
            measurements=measurements,
            before=self.current,
            measurement_before=self.current_measurement,
            by_region=np.array([by_region for _, by_region in moves]),
        )
        self.tried_s += seconds.tolist()
        row = int(seconds.argmin())
        chosen, score = proposals[row], float(seconds[row])
        loss = score / self.current_s - 1.0 if self.current_s > 0 else np.inf
        if score <= self.current_s or generator.random() < np.exp(-loss / temperature):
            self.current, self.current_s, self.current_measurement = chosen, score, measurements[row]
            self._see()
        if score < self.best_s:
            self.best, self.best_s = chosen, score
        return tried

    def state(self) -> SearchState:
        """Where the search stands."""
        return SearchState(tried_s=tuple(self.tried_s), current=self.current, best=self.best)

    def restore(self, state: SearchState) -> None:
        """Goes on from where `state` says that a search from the same starting points stood; the two placements are evaluated once more, and not counted."""
        measurements = self._config.runtime.batch(self._graph, self._cluster, np.stack([state.current, state.best]))
        seconds = scores(measurements, self._cluster, objective=self._config.objective)
        self.tried_s = list(state.tried_s)
        self.current, self.current_s, self.current_measurement = state.current, float(seconds[0]), measurements[0]
        self.best, self.best_s = state.best, float(seconds[1])
        self._see()

    def _propose(self, generator: np.random.Generator) -> tuple[Int32[np.ndarray, " ops"], bool]:
        """A changed placement, and whether a region of it was decided anew."""
        if self._regions is not None and generator.random() < _REGIONS:
            drawn = [self._regions.propose(self.current, generator) for _ in range(_JUDGED_REGIONS if self._judged else 1)]
            decided = [(device, False) for device in drawn if device is not None]
            if decided:
                return self._most_promising(decided), True
        count = int(np.exp(generator.uniform(0, np.log(_MOST_CANDIDATES + 1)))) if self._judged else 1
        return self._most_promising([self._change(generator) for _ in range(count)]), False

    def _most_promising(self, changes: Sequence[tuple[Int32[np.ndarray, " ops"], bool]]) -> Int32[np.ndarray, " ops"]:
        """Of changed placements, with whether the change removes a wait, the one that the judge chooses; there is only one where there is nobody to judge."""
        if len(changes) == 1:
            return changes[0][0]
        assert self._judge is not None
        return changes[self._judge.choose(np.stack([device for device, _ in changes]), np.array([removes for _, removes in changes]))][0]

    def _change(self, generator: np.random.Generator) -> tuple[Int32[np.ndarray, " ops"], bool]:
        """A changed placement, and whether the change removes a wait."""
        if self._critical is not None and generator.random() < _CRITICAL:
            proposal = self._critical.propose(self.current, generator)
            if proposal is not None:
                return proposal, True
        return self._neighbourhood.propose(self.current, generator), False

    def _see(self) -> None:
        timeline = None if self._critical is None else self._critical.see(self.current)
        self._judged = self._judge is not None and timeline is not None
        if self._judge is not None and timeline is not None:
            self._judge.see(self.current, timeline)
