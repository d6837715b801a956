"""The simple placements that searches start from: few of each kind, those that their own schedulers promise most of, the most different ones first."""

import itertools
from collections.abc import Iterable

import numpy as np
from jaxtyping import Int32

from gdp.baselines.contiguous import contiguous_splits
from gdp.baselines.cpop import cpop, cpop_priority_s, critical_path
from gdp.baselines.heft import heft, heft_rank_s
from gdp.baselines.list_schedule import Schedule
from gdp.baselines.list_scheduling import list_schedules, most_promising
from gdp.baselines.metis import metis_partitions
from gdp.baselines.schedule_variants import Variant, device_choices, groupings
from gdp.baselines.single_device import single_devices
from gdp.cluster import Cluster
from gdp.graph import Graph

_OF_EACH_SCHEDULER = 4
"""With these and eight METIS partitions, the best of twenty is within 0.3 % of the best of all variants of all schedulers, in the mean over the pretraining split on five
clusters (docs/experiments.md, "Where searches start")."""


def starting_points(graph: Graph, cluster: Cluster, *, num_partitions: int, seed: int) -> Int32[np.ndarray, "batch ops"]:
    """Single devices of every kind, the most promising list schedules, HEFT and CPoP schedules, so many METIS partitions, contiguous stages; each placement once.

    The first of each kind come first, so that a search with few evaluations has tried one of every kind.
    """
    alone = single_devices(graph, cluster)
    unlike = {(device.kind, device.memory_bytes): number for number, device in reversed(list(enumerate(cluster.devices)))}
    heft_schedules, cpop_schedules = _insertion_schedules(graph, cluster)
    stages = contiguous_splits(graph, cluster)
    kinds: list[Iterable[np.ndarray]] = [
        alone[sorted(unlike.values())],
        *(
            [schedule.device for schedule in schedules[:_OF_EACH_SCHEDULER]]
            for schedules in (list_schedules(graph, cluster), heft_schedules, cpop_schedules)
        ),
        metis_partitions(graph, cluster, count=num_partitions, seed=seed),
        [stages[int(allowed.sum()) - 1] for allowed in reversed(device_choices(graph, cluster))],
    ]
    rows = [row for nth in itertools.zip_longest(*kinds) for row in nth if row is not None]
    return np.stack(list({row.tobytes(): row for row in rows}.values()))


def _insertion_schedules(graph: Graph, cluster: Cluster) -> tuple[list[Schedule], list[Schedule]]:
    """Of HEFT, with and without work still to come, and of CPoP, on all devices at every grain; the most promising of each first."""
    rank, priority = heft_rank_s(graph, cluster), cpop_priority_s(graph, cluster)
    path = critical_path(graph, priority)
    variants = [
        Variant(grouping=grouping, allowed=np.ones(cluster.num_devices, np.bool_), option=option)
        for grouping in groupings(graph)
        for option in (False, True)
    ]
    return (
        most_promising([heft(graph, cluster, variant, rank=rank) for variant in variants]),
        most_promising([cpop(graph, cluster, variant, priority=priority, path=path) for variant in variants if not variant.option]),
    )
