"""The few variants of a one-pass placer among which a runtime chooses, so that none loses by the grain of its decisions or by using devices that do not pay."""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool

from gdp.baselines.list_schedule import Schedule
from gdp.baselines.scheduling_problem import SchedulingProblem, scheduling_problem
from gdp.baselines.score import CANNOT_RUN_S, scores
from gdp.capture.coarsening import Grouping, coarsen
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.runtime.roofline import op_time_s

_GRAINS = (256, 64, 16)
_MEMORY_SHARES = (1.0, 0.85, 0.7, 0.55)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Variant:
    """What one pass may decide, and where."""

    grouping: Grouping
    allowed: Bool[np.ndarray, " devices"]
    """the devices that may be used."""
    option: bool
    """a choice that is the placer's own."""
    memory_share: float = 1.0
    """of each device's memory, what a scheduler that counts memory may fill."""


def plain_variant(
    graph: Graph, cluster: Cluster, schedule: Callable[[Variant], Schedule], *, name: str, max_groups: int | None = None
) -> Placement:
    """The placement of the variant that comes closest to the published method: the finest groups (`max_groups` of them where that is not `None`), all devices."""
    variant = Variant(grouping=coarsen(graph, max_groups=max_groups), allowed=np.ones(cluster.num_devices, np.bool_), option=False)
    return Placement(device=schedule(variant).device, origin=Origin(placer=name))


def best_variant(
    graph: Graph,
    cluster: Cluster,
    schedule: Callable[[Variant], Schedule],
    *,
    name: str,
    runtime: Runtime,
    objective: Objective,
    max_groups: int | None = None,
) -> Placement:
    """The best placement by the runtime over four grains, 1, 2, 4, ... and all devices (the fastest first), and both options; each placement is tried once.

    If none of them runs, schedulers go again with less of the memory, as `_MEMORY_SHARES` says: their account of it is not exact.
    """
    grains, choices = groupings(graph, max_groups=max_groups), device_choices(graph, cluster)
    tried: dict[bytes, np.ndarray] = {}
    best, best_score = np.zeros(0, np.int32), np.inf
    for memory_share in _MEMORY_SHARES:
        rows: dict[bytes, np.ndarray] = {}
        for allowed in choices:
            for grouping in grains:
                for option in (False, True):
                    device = schedule(Variant(grouping=grouping, allowed=allowed, option=option, memory_share=memory_share)).device
                    if device.tobytes() not in tried:
                        tried[device.tobytes()] = rows[device.tobytes()] = device
                if allowed.sum() == 1:
                    break
        if rows:
            batch = np.stack(list(rows.values()))
            score = scores(runtime.batch(graph, cluster, batch), cluster, objective=objective)
            if score.min() < best_score:
                best, best_score = np.array(batch[int(score.argmin())]), float(score.min())
        if best_score < CANNOT_RUN_S:
            break
    return Placement(device=best, origin=Origin(placer=name, evaluations=len(tried)))


def variant_problem(graph: Graph, cluster: Cluster, variant: Variant) -> SchedulingProblem:
    """What a scheduler reads, with the memory that the variant leaves it."""
    problem = scheduling_problem(graph, cluster, variant.grouping)
    return problem._replace(memory_bytes=(problem.memory_bytes * variant.memory_share).astype(np.int64))


def groupings(graph: Graph, *, max_groups: int | None = None) -> list[Grouping]:
    """The coarsenings that variants are made of, the finest, of `max_groups` groups where that is not `None`, first; each once."""
    different: dict[int, Grouping] = {}
    for grain in (max_groups, *_GRAINS):
        grouping = coarsen(graph, max_groups=grain)
        different.setdefault(grouping.num_groups, grouping)
    return list(different.values())


def device_choices(graph: Graph, cluster: Cluster) -> list[Bool[np.ndarray, " devices"]]:
    """Masks of the 1, 2, 4, ... and at last of all devices that run the whole graph fastest; of equally fast ones the roomiest, then the first."""
    fastest = np.lexsort((-cluster.memory_bytes, op_time_s(graph, cluster).sum(axis=0)))
    counts = [1]
    while counts[-1] < cluster.num_devices:
        counts.append(min(2 * counts[-1], cluster.num_devices))
    return [np.isin(np.arange(cluster.num_devices), fastest[:count]) for count in counts]
