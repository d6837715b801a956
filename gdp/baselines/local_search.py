"""Local search with simulated annealing (Kirkpatrick et al., Science 220, 1983), started from the best simple placement.

Moves, at random: a block of groups to another device, a group or a block to the device of a neighbour (the likelier the more bytes pass between them), work from the
busiest device to another, a stretch of the stage order to one device, two groups swapped. Blocks are the groups of ever coarser
coarsenings, so that one move can carry a whole branch or layer. With a simulator that predicts, most moves remove what the present placement's step waits for instead
(`gdp.baselines.critical_moves`); with somebody who can decide a region anew, a part of the moves is left to them (`gdp.baselines.region_moves`). A worse placement is
accepted with probability `exp(-relative loss / temperature)`; the temperature falls geometrically over the budget.
"""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int32

from gdp.baselines.critical_moves import CriticalMoves
from gdp.baselines.neighbourhood import Neighbourhood
from gdp.baselines.region_moves import Redecide, RegionMoves
from gdp.baselines.score import scores
from gdp.baselines.search_result import SearchResult
from gdp.baselines.starting_points import starting_points
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.runtime.simulator import Simulator

_FIRST_TEMPERATURE, _LAST_TEMPERATURE = 0.01, 0.0003

_REGIONS = 0.3
"""The share of moves that decide a region anew, where somebody can."""

_CRITICAL = 0.7
"""The share of the other moves that remove a wait, where there is a simulator to see them."""


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

    def __post_init__(self) -> None:
        if self.evaluations < 1 or self.batch_size < 1:
            raise InputError(
                f"LocalSearch is given {self.evaluations} evaluations in batches of {self.batch_size}; it needs at least 1 of each"
            )
        assert self.redecide is None or self.predictor is not None

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        return self.search(graph, cluster).placement

    def search(self, graph: Graph, cluster: Cluster) -> SearchResult:
        """The best placement, and the best time after each evaluation."""
        generator = np.random.default_rng(self.seed)
        partitions = 1 + self.evaluations // 10
        start = starting_points(graph, cluster, num_partitions=partitions, seed=self.seed)[: self.evaluations]
        start_scores = self._scores(graph, cluster, start)
        curve = start_scores.tolist()
        current, current_score = np.array(start[int(start_scores.argmin())]), float(start_scores.min())
        best, best_score = current, current_score
        neighbourhood = Neighbourhood(graph, cluster)
        critical = None if self.predictor is None else CriticalMoves(graph, cluster, neighbourhood, predictor=self.predictor)
        regions = None
        if critical is not None:
            critical.see(current)
            regions = None if self.redecide is None else RegionMoves(neighbourhood, critical, self.redecide(graph, cluster))

        def propose() -> np.ndarray:
            proposal = None
            if regions is not None and generator.random() < _REGIONS:
                proposal = regions.propose(current, generator)
            if proposal is None and critical is not None and generator.random() < _CRITICAL:
                proposal = critical.propose(current, generator)
            return neighbourhood.propose(current, generator) if proposal is None else proposal

        while len(curve) < self.evaluations and cluster.num_devices > 1:
            done = len(curve) / self.evaluations
            temperature = _FIRST_TEMPERATURE * (_LAST_TEMPERATURE / _FIRST_TEMPERATURE) ** done
            count = min(self.batch_size, self.evaluations - len(curve))
            proposals = np.stack([propose() for _ in range(count)])
            measured = self._scores(graph, cluster, proposals)
            curve += measured.tolist()
            chosen, score = proposals[int(measured.argmin())], float(measured.min())
            loss = score / current_score - 1.0 if current_score > 0 else np.inf
            if score <= current_score or generator.random() < np.exp(-loss / temperature):
                current, current_score = chosen, score
                if critical is not None:
                    critical.see(current)
            if score < best_score:
                best, best_score = chosen, score
        origin = Origin(placer="local-search" if critical is None else "critical-path-search", seed=self.seed, evaluations=len(curve))
        return SearchResult.from_scores(Placement(device=np.array(best), origin=origin), curve)

    def _scores(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> Float64[np.ndarray, " batch"]:
        return scores(self.runtime.batch(graph, cluster, device), cluster, objective=self.objective)
