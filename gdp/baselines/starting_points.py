"""The simple placements that searches start from."""

import numpy as np
from jaxtyping import Int32

from gdp.baselines.contiguous import contiguous_splits
from gdp.baselines.cpop import cpop, cpop_priority_s, critical_path
from gdp.baselines.heft import heft, heft_rank_s
from gdp.baselines.list_scheduling import list_schedules
from gdp.baselines.metis import metis_partitions
from gdp.baselines.schedule_variants import Variant, groupings
from gdp.baselines.single_device import single_devices
from gdp.cluster import Cluster
from gdp.graph import Graph

_LIST_SCHEDULES_TRIED = 8


def starting_points(graph: Graph, cluster: Cluster, *, num_partitions: int, seed: int) -> Int32[np.ndarray, "batch ops"]:
    """Single devices, contiguous stages, the most promising list schedules, HEFT and CPoP at every grain, and so many METIS partitions; each placement once."""
    schedules = [schedule.device for schedule in list_schedules(graph, cluster)[:_LIST_SCHEDULES_TRIED]]
    schedules += _insertion_schedules(graph, cluster)
    partitions = metis_partitions(graph, cluster, count=num_partitions, seed=seed)
    rows = [*single_devices(graph, cluster), *contiguous_splits(graph, cluster)[1:], *schedules, *partitions]
    return np.stack(list({row.tobytes(): row for row in rows}.values()))


def _insertion_schedules(graph: Graph, cluster: Cluster) -> list[np.ndarray]:
    """HEFT and CPoP at every grain, on all devices."""
    rank, priority = heft_rank_s(graph, cluster), cpop_priority_s(graph, cluster)
    path = critical_path(graph, priority)
    found = []
    for grouping in groupings(graph):
        variant = Variant(grouping=grouping, allowed=np.ones(cluster.num_devices, np.bool_), option=False)
        found.append(heft(graph, cluster, variant, rank=rank).device)
        found.append(cpop(graph, cluster, variant, priority=priority, path=path).device)
    return found
