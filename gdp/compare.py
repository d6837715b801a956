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
    """Geometric mean over cells of a placer's time to the reference's; a cell in which either cannot run makes it infinite; one that takes
    no time, because its graph does no work, does not count."""
    assert len(answers) == len(references)
    if any(cell.judged.status != Status.OK for cell in (*answers, *references)):
        return float("inf")
    with np.errstate(divide="ignore"):
        ours, theirs = (np.log([cell.objective_s(objective) for cell in cells]) for cells in (answers, references))
    finite = np.isfinite(ours) & np.isfinite(theirs)
    return float(np.exp((ours - theirs)[finite].mean())) if finite.any() else 1.0
