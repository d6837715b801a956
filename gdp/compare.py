"""Placers x workloads x clusters -> tables.

Every cell asks one placer for one placement and judges it by one runtime, the same for all placers; an anytime placer spends the evaluation
budget that it was built with.
"""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from gdp.candidate import Candidate
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Runtime
from gdp.placement import Placer


def candidates(graph: Graph, cluster: Cluster, placers: Mapping[str, Placer], *, runtime: Runtime) -> list[Candidate]:
    """Asks every placer for its placement and predicts it by `runtime`; in the order of `placers`."""
    answers = []
    for name, placer in placers.items():
        start_s = time.perf_counter()
        placement = placer(graph, cluster)
        wall_s = time.perf_counter() - start_s
        answers.append(Candidate(name=name, placement=placement, predicted=runtime(graph, cluster, placement), wall_s=wall_s))
    return answers


def geometric_mean_ratio(seconds: Sequence[float], reference_s: Sequence[float]) -> float | None:
    """Geometric mean over cells of a placer's time to a reference's, over the cells in which both run and take time (finite and positive); `None` when there is none."""
    ours, theirs = np.array(seconds, np.float64), np.array(reference_s, np.float64)
    both = np.isfinite(ours) & np.isfinite(theirs) & (ours > 0) & (theirs > 0)
    return float(np.exp(np.log(ours[both] / theirs[both]).mean())) if both.any() else None
