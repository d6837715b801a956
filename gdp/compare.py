"""Placers x workloads x clusters -> tables.

Every cell asks one placer for one placement and judges it by one runtime, the same for all placers; an anytime placer spends the evaluation
budget that it was built with.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence

import numpy as np

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Measurement, Objective, Runtime, Status
from gdp.placement import Placement, Placer


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Candidate:
    """One placer's answer for one graph on one cluster."""

    placer: str
    placement: Placement
    measurement: Measurement
    wall_s: float
    """seconds the placer took, its evaluations included."""


def candidates(graph: Graph, cluster: Cluster, placers: Mapping[str, Placer], *, runtime: Runtime) -> list[Candidate]:
    """Asks every placer for its placement and measures it by `runtime`; in the order of `placers`."""
    answers = []
    for name, placer in placers.items():
        start_s = time.perf_counter()
        placement = placer(graph, cluster)
        wall_s = time.perf_counter() - start_s
        answers.append(Candidate(placer=name, placement=placement, measurement=runtime(graph, cluster, placement), wall_s=wall_s))
    return answers


def best(answers: Sequence[Candidate], *, objective: Objective) -> Candidate:
    """The candidate with the lowest objective, the first one among equals; one that cannot run only when none can."""
    return min(answers, key=lambda answer: answer.measurement.objective_s(objective))


def geometric_mean_ratio(answers: Sequence[Candidate], references: Sequence[Candidate], *, objective: Objective) -> float:
    """Geometric mean over cells of a placer's time to the reference's; a cell in which either cannot run makes it infinite."""
    assert len(answers) == len(references)
    if any(cell.measurement.status != Status.OK for cell in (*answers, *references)):
        return float("inf")
    ratios = [a.measurement.objective_s(objective) / b.measurement.objective_s(objective) for a, b in zip(answers, references, strict=True)]
    return float(np.exp(np.mean(np.log(ratios))))
