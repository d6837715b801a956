"""One number per measured placement, so that placements that cannot run are ordered, too."""

import numpy as np
from jaxtyping import Float64, Int32

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import MeasurementBatch, Objective, Runtime, Status

CANNOT_RUN_S = 1e9
"""A score from here on belongs to a placement that cannot run: three decades per step is no step time."""


def scores(batch: MeasurementBatch, cluster: Cluster, *, objective: Objective) -> Float64[np.ndarray, " batch"]:
    """Seconds to minimise. A placement that cannot run scores `CANNOT_RUN_S` and more, the more the further its memory is over capacity."""
    excess = np.maximum(batch.peak_memory_bytes - cluster.memory_bytes, 0).sum(axis=1) / max(1, int(cluster.memory_bytes.sum()))
    return np.where(batch.status == Status.OK, batch.objective_s(objective), CANNOT_RUN_S * (1.0 + excess))


def best_of(
    graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"], *, runtime: Runtime, objective: Objective
) -> Int32[np.ndarray, " ops"]:
    """The row with the lowest score, the first one among equals."""
    measured = scores(runtime.batch(graph, cluster, device), cluster, objective=objective)
    return np.array(device[int(measured.argmin())])
