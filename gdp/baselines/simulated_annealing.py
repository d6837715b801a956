"""Simulated annealing (Kirkpatrick, Gelatt and Vecchi, Science 220, 1983).

From the best of single devices and contiguous stages, one random change at a time (`gdp.baselines.neighbourhood`); a change that loses `d` seconds is accepted with
probability `exp(-d / temperature)`. As the paper advises, the first temperature is found by measuring: the one at which the mean loss among the first tries would be accepted
with probability `_FIRST_ACCEPTANCE`. It falls geometrically to `_COOLING` of that over the budget. At the middle and at three quarters, annealing goes on from the best
placement so far.

Unlike `gdp.baselines.local_search` it knows no partitions and no list schedules, and begins hot.
"""

import dataclasses

import numpy as np

from gdp.baselines.contiguous import contiguous_splits
from gdp.baselines.neighbourhood import Neighbourhood
from gdp.baselines.score import CANNOT_RUN_S, scores
from gdp.baselines.search_result import SearchResult
from gdp.baselines.single_device import single_devices
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement

_FIRST_ACCEPTANCE = 0.3
_COOLING = 0.003
_TRIES_SHARE, _MOST_TRIES = 0.05, 50
_RETURNS = (0.5, 0.75)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedAnnealing:
    """Anytime search that spends `evaluations` placements of the runtime, those for the start and the first temperature included (fewer only where there is a single device)."""

    runtime: Runtime
    evaluations: int
    seed: int
    objective: Objective = "step_time"

    def __post_init__(self) -> None:
        if self.evaluations < 1:
            raise InputError(f"SimulatedAnnealing is given {self.evaluations} evaluations; it needs at least 1")

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        return self.search(graph, cluster).placement

    def search(self, graph: Graph, cluster: Cluster) -> SearchResult:
        """The best placement, and the best time after each evaluation."""

        def score_of(device: np.ndarray) -> float:
            return float(scores(self.runtime.batch(graph, cluster, device[np.newaxis]), cluster, objective=self.objective)[0])

        generator = np.random.default_rng(self.seed)
        rows = [*single_devices(graph, cluster), *contiguous_splits(graph, cluster)[1:]]
        start = np.stack(list({row.tobytes(): row for row in rows}.values()))[: self.evaluations]
        curve = scores(self.runtime.batch(graph, cluster, start), cluster, objective=self.objective).tolist()
        current, current_score = start[int(np.argmin(curve))], min(curve)
        best, best_score = current, current_score
        neighbourhood = Neighbourhood(graph, cluster)
        losses: list[float] = []
        first_moves = len(curve)
        tries = min(_MOST_TRIES, int(_TRIES_SHARE * self.evaluations))
        temperature_s, returns = 0.0, list(_RETURNS)
        while len(curve) < self.evaluations and cluster.num_devices > 1:
            done = len(curve) / self.evaluations
            if returns and done >= returns[0]:
                returns.pop(0)
                current, current_score = best, best_score
            proposal = neighbourhood.propose(current, generator)
            score = score_of(proposal)
            curve.append(score)
            loss_s = score - current_score
            if score < best_score:
                best, best_score = proposal, score
            if len(curve) - first_moves <= tries and 0 < loss_s and score < CANNOT_RUN_S:
                losses.append(loss_s)
            if losses:
                temperature_s = float(np.mean(losses)) / -np.log(_FIRST_ACCEPTANCE) * _COOLING**done
            if loss_s <= 0 or temperature_s > 0 and generator.random() < np.exp(-loss_s / temperature_s):
                current, current_score = proposal, score
        origin = Origin(placer="simulated-annealing", seed=self.seed, evaluations=len(curve))
        return SearchResult.from_scores(Placement(device=np.array(best), origin=origin), curve)
