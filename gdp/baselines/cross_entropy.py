"""The cross-entropy method (Rubinstein, 1999) on placements, as the cross-entropy step of Post (Gao, Chen and Li, NeurIPS 2018).

A placement is drawn group by group from independent categorical distributions over devices, mixed with `_UNIFORM` of the uniform one. After every `batch_size`
placements each distribution moves to the devices of the group in the best `_ELITE` of them: the maximum likelihood of the elite.

Deviations: the distributions begin at the best of the simple placements that other searches start from, since the uniform distribution spreads everything, and two good
placements whose devices are exchanged have a bad mean; the elite is that of the last batch and the elite before it, so that nothing good is forgotten; distributions move
`_STEP` of the way, which small batches need.
"""

import dataclasses

import numpy as np
from jaxtyping import Float64, Int32

from gdp.baselines.score import scores
from gdp.baselines.search_result import SearchResult
from gdp.baselines.starting_points import starting_points
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement

_ELITE = 0.1
_UNIFORM = 0.01
_STEP = 0.5


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """Anytime search that spends `evaluations` placements of the runtime, `batch_size` at a time, over at most `max_groups` groups."""

    runtime: Runtime
    evaluations: int
    seed: int
    objective: Objective = "step_time"
    batch_size: int = 50
    max_groups: int = 128

    def __post_init__(self) -> None:
        if self.evaluations < 1 or self.batch_size < 1:
            raise InputError(
                f"CrossEntropy is given {self.evaluations} evaluations in batches of {self.batch_size}; it needs at least 1 of each"
            )

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        return self.search(graph, cluster).placement

    def search(self, graph: Graph, cluster: Cluster) -> SearchResult:
        """The best placement, and the best time after each evaluation."""
        generator = np.random.default_rng(self.seed)
        grouping = coarsen(graph, max_groups=self.max_groups)
        start = starting_points(graph, cluster, num_partitions=1 + self.batch_size // 2, seed=self.seed)[: self.evaluations]
        curve = scores(self.runtime.batch(graph, cluster, start), cluster, objective=self.objective).tolist()
        best, best_score = start[int(np.argmin(curve))], min(curve)
        elite_size = max(2, round(_ELITE * self.batch_size))
        elite = _majority(best[np.newaxis], grouping.group_of_op, grouping.num_groups, cluster.num_devices)
        elite_scores = np.array([best_score])
        probability = np.full((grouping.num_groups, cluster.num_devices), 1.0 / cluster.num_devices)
        step = 1.0
        while len(curve) < self.evaluations:
            kept = np.argsort(elite_scores, kind="stable")[:elite_size]
            elite, elite_scores = elite[kept], elite_scores[kept]
            likeliest = (elite[:, :, np.newaxis] == np.arange(cluster.num_devices)).mean(axis=0)
            probability, step = (1.0 - step) * probability + step * likeliest, _STEP
            mixed = (1.0 - _UNIFORM) * probability + _UNIFORM / cluster.num_devices
            drawn = _draw(mixed, min(self.batch_size, self.evaluations - len(curve)), generator)
            device = grouping.expand(drawn)
            measured = scores(self.runtime.batch(graph, cluster, device), cluster, objective=self.objective)
            curve += measured.tolist()
            if measured.min() < best_score:
                best, best_score = device[int(measured.argmin())], float(measured.min())
            elite, elite_scores = np.concatenate([elite, drawn]), np.concatenate([elite_scores, measured])
        origin = Origin(placer="cross-entropy", seed=self.seed, evaluations=len(curve))
        return SearchResult.from_scores(Placement(device=np.array(best), origin=origin), curve)


def _draw(
    probability: Float64[np.ndarray, "groups devices"], count: int, generator: np.random.Generator
) -> Int32[np.ndarray, "batch groups"]:
    below = np.cumsum(probability, axis=1)
    below[:, -1] = 1.0
    return np.asarray((generator.random((count, len(probability), 1)) >= below).sum(axis=2), np.int32)


def _majority(
    device: Int32[np.ndarray, "batch ops"], group_of_op: Int32[np.ndarray, " ops"], num_groups: int, num_devices: int
) -> Int32[np.ndarray, "batch groups"]:
    """The device of most ops of every group."""
    rows = [np.bincount(group_of_op.astype(np.int64) * num_devices + row, minlength=num_groups * num_devices) for row in device]
    return np.asarray(np.stack(rows).reshape(len(device), num_groups, num_devices).argmax(axis=2), np.int32)
