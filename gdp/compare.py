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
from gdp.measurement import Objective, Runtime, Status
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


def geometric_mean_ratio(answers: Sequence[Candidate], references: Sequence[Candidate], *, objective: Objective) -> float:
    """Geometric mean over cells of a placer's time to the reference's; a cell in which either cannot run makes it infinite."""
    assert len(answers) == len(references)
    if any(cell.judged.status != Status.OK for cell in (*answers, *references)):
        return float("inf")
    ratios = [a.objective_s(objective) / b.objective_s(objective) for a, b in zip(answers, references, strict=True)]
    return float(np.exp(np.mean(np.log(ratios))))
