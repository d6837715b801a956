"""What it costs a step to hand a tensor from one set of cores to another, fitted to steps that do it often.

A copy timed by itself (links.py) leaves out what comes with it in a step: the other core's caches are cold, whoever waits has to be woken, and two threads of one process want the
same lock. So a few placements that do little else than hand over are measured: the program in its order, cut into ever more stretches that the sets of cores take in turn.
The latency is the one with which the simulator's times of these are nearest to the measured ones.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int32

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, Status
from gdp.placement import Origin, Placement
from gdp.runtime.core_sets import cores_in
from gdp.runtime.journal import Measured
from gdp.runtime.pool import TimesAgainst
from gdp.runtime.simulator import Simulator
from gdp.runtime.verdict import Dispatch

FEWEST_STRETCHES = 4
MOST_STRETCHES = 256
_FEWEST_PLACEMENTS = 3
_LATENCIES_S = np.geomspace(1e-6, 1e-3, 61)
"""12 % from one to the next."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class HandOvers:
    """A fitted latency and what it was fitted to."""

    latency_s: float
    num_transfers: tuple[int, ...]
    """of each placement that was measured."""
    measured_s: tuple[float, ...]


def measured_hand_overs(graph: Graph, cluster: Cluster, runtime: TimesAgainst, *, dispatch: Dispatch, seed: int) -> HandOvers | None:
    """Measures the placements of `handing_over`, up to the first that does not run, and fits the latency to them; takes some two seconds for each of at most eight. None when less
    than three ran or can be predicted, and when there are no two sets of cores.

    The first of them is timed alone and the others in turn with it, so that the runtime's own scale and incumbent stay what they are. The graph's ops have measured seconds, and
    `cluster` the links that were timed by themselves.
    """
    device = handing_over(graph, cluster, seed=seed)
    predicted_s = Simulator(dispatch=dispatch).batch(graph, cluster, device).step_time_s
    device = device[np.isfinite(predicted_s) & (predicted_s > 0)]
    measured: list[Measurement] = []
    for row in device if len(device) >= _FEWEST_PLACEMENTS else ():
        first = Measured(device=device[0], measurement=measured[0]) if measured else None
        seen = runtime.against(graph, cluster, Placement(device=row.copy(), origin=Origin(placer="hand-overs", seed=seed)), first)
        if seen.status != Status.OK:
            break
        measured.append(seen)
    if len(measured) < _FEWEST_PLACEMENTS:
        return None
    seconds = [each.step_time_s for each in measured]
    return HandOvers(
        latency_s=fitted_latency_s(graph, cluster, device[: len(measured)], seconds, dispatch=dispatch),
        num_transfers=tuple(int(each.num_transfers) for each in measured),
        measured_s=tuple(seconds),
    )


def handing_over(graph: Graph, cluster: Cluster, *, seed: int) -> Int32[np.ndarray, "placements ops"]:
    """The first set of cores alone, then the program's order cut at random into 4, 8, 16, ... stretches, up to half as many as there are ops, that the sets of cores take in turn.
    Ops that must share a device go where the first of them is. Without two sets of cores there are none."""
    cores = np.flatnonzero(_are_cores(cluster)).astype(np.int32)
    if len(cores) < 2:
        return np.zeros((0, graph.num_ops), np.int32)
    generator, rows = np.random.default_rng(seed), [np.full(graph.num_ops, cores[0])]
    leader = np.arange(graph.num_ops)
    grouped = np.flatnonzero(graph.colocation_group != Graph.NO_GROUP)
    _, first, member = np.unique(graph.colocation_group[grouped], return_index=True, return_inverse=True)
    leader[grouped] = grouped[first[member]]
    num_stretches = FEWEST_STRETCHES
    while num_stretches <= min(MOST_STRETCHES, graph.num_ops // 2):
        cuts = np.sort(generator.choice(np.arange(1, graph.num_ops), num_stretches - 1, replace=False))
        stretch = np.searchsorted(cuts, np.arange(graph.num_ops), "right")
        rows.append(cores[stretch % len(cores)][leader])
        num_stretches *= 2
    return np.stack(rows)


def fitted_latency_s(
    graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "placements ops"], measured_s: Sequence[float], *, dispatch: Dispatch
) -> float:
    """The latency between sets of cores with which the simulated times of these placements are nearest to the measured ones: least sum of the logarithms' distances, after one
    scale for all, since a machine has faster and slower hours."""
    simulator, measured = Simulator(dispatch=dispatch), np.log(np.array(measured_s))

    def distance(latency_s: float) -> float:
        apart = np.log(simulator.batch(graph, with_core_latency(cluster, latency_s), device).step_time_s) - measured
        return float(np.abs(apart - np.median(apart)).sum())

    return float(min(_LATENCIES_S, key=distance))


def with_core_latency(cluster: Cluster, latency_s: float) -> Cluster:
    """The cluster with this latency between any two sets of cores."""
    cores = _are_cores(cluster)
    both = cores[:, None] & cores[None, :] & ~np.eye(cluster.num_devices, dtype=np.bool_)
    return dataclasses.replace(cluster, latency_s=np.where(both, latency_s, cluster.latency_s))


def _are_cores(cluster: Cluster) -> Bool[np.ndarray, " devices"]:
    def are(name: str) -> bool:
        try:
            return bool(cores_in(name))
        except InputError:
            return False

    return np.array([are(device.name) for device in cluster.devices])
