"""The simple placements that searches start from."""

import numpy as np
from jaxtyping import Int32

from gdp.baselines.contiguous import contiguous_splits
from gdp.baselines.list_scheduling import list_schedules
from gdp.baselines.metis import metis_partitions
from gdp.baselines.single_device import single_devices
from gdp.cluster import Cluster
from gdp.graph import Graph

_LIST_SCHEDULES_TRIED = 8


def starting_points(graph: Graph, cluster: Cluster, *, num_partitions: int, seed: int) -> Int32[np.ndarray, "batch ops"]:
    """Single devices, contiguous stages, the most promising list schedules, and so many METIS partitions; each placement once."""
    schedules = [schedule.device for schedule in list_schedules(graph, cluster)[:_LIST_SCHEDULES_TRIED]]
    partitions = metis_partitions(graph, cluster, count=num_partitions, seed=seed)
    rows = [*single_devices(graph, cluster), *contiguous_splits(graph, cluster)[1:], *schedules, *partitions]
    return np.stack(list({row.tobytes(): row for row in rows}.values()))
