"""The few variants of a one-pass placer among which a runtime chooses, so that none loses by the grain of its decisions or by using devices that do not pay."""

import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Bool

from gdp.baselines.list_schedule import Schedule
from gdp.baselines.score import best_of
from gdp.capture.coarsening import Grouping, coarsen
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.runtime.roofline import op_time_s

_GRAINS = (256, 64, 16)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Variant:
    """What one pass may decide, and where."""

    grouping: Grouping
    allowed: Bool[np.ndarray, " devices"]
    """the devices that may be used."""
    option: bool
    """a choice that is the placer's own."""


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
    """The best placement by the runtime over four grains, 1, 2, 4, ... and all devices (the fastest first), and both options; each placement is tried once."""
    rows: dict[bytes, np.ndarray] = {}
    for allowed in device_choices(graph, cluster):
        for grouping in groupings(graph, max_groups=max_groups):
            for option in (False, True):
                device = schedule(Variant(grouping=grouping, allowed=allowed, option=option)).device
                rows.setdefault(device.tobytes(), device)
            if allowed.sum() == 1:
                break
    best = best_of(graph, cluster, np.stack(list(rows.values())), runtime=runtime, objective=objective)
    return Placement(device=best, origin=Origin(placer=name, evaluations=len(rows)))


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
