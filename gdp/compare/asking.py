"""One placer, one graph, one cluster -> a judged placement.

Every placement is judged by one runtime, the same for all placers; an anytime placer spends the evaluation budget that it was built with.
"""

import time
from collections.abc import Mapping

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
