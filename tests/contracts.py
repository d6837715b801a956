"""What every placer must keep, whatever it does inside."""

import itertools
from collections.abc import Callable

import numpy as np

from gdp.baselines.automatic_device_map import AutomaticDeviceMap
from gdp.baselines.contiguous import Contiguous
from gdp.baselines.cpop import Cpop
from gdp.baselines.cross_entropy import CrossEntropy
from gdp.baselines.heft import Heft
from gdp.baselines.list_scheduling import ListScheduling
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.m_etf import MEtf
from gdp.baselines.m_sct import MSct
from gdp.baselines.m_topo import MTopo
from gdp.baselines.metis import Metis, MetisManyTimes
from gdp.baselines.random_placement import RandomPlacement
from gdp.baselines.round_robin import RoundRobin
from gdp.baselines.simulated_annealing import SimulatedAnnealing
from gdp.baselines.single_device import SingleDevice
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Placer
from gdp.runtime.simulator import Simulator

ALL_PLACERS: dict[str, Callable[[Runtime, int], Placer]] = {
    "single-device": lambda runtime, seed: SingleDevice(runtime=runtime),
    "single-device-predicted": lambda runtime, seed: SingleDevice(),
    "random": lambda runtime, seed: RandomPlacement(seed=seed),
    "contiguous": lambda runtime, seed: Contiguous(runtime=runtime),
    "contiguous-all-devices": lambda runtime, seed: Contiguous(),
    "contiguous-by-memory": lambda runtime, seed: Contiguous(runtime=runtime, balance="memory"),
    "round-robin": lambda runtime, seed: RoundRobin(runtime=runtime),
    "round-robin-all-devices": lambda runtime, seed: RoundRobin(),
    "m-topo": lambda runtime, seed: MTopo(runtime=runtime),
    "m-topo-all-devices": lambda runtime, seed: MTopo(),
    "metis-by-bytes": lambda runtime, seed: Metis(seed=seed, weight="bytes"),
    "metis": lambda runtime, seed: Metis(seed=seed),
    "metis-many-times": lambda runtime, seed: MetisManyTimes(runtime=runtime, evaluations=20, seed=seed),
    "list-scheduling": lambda runtime, seed: ListScheduling(runtime=runtime),
    "list-scheduling-predicted": lambda runtime, seed: ListScheduling(),
    "heft": lambda runtime, seed: Heft(runtime=runtime),
    "heft-predicted": lambda runtime, seed: Heft(),
    "cpop": lambda runtime, seed: Cpop(runtime=runtime),
    "cpop-predicted": lambda runtime, seed: Cpop(),
    "m-etf": lambda runtime, seed: MEtf(runtime=runtime),
    "m-etf-predicted": lambda runtime, seed: MEtf(),
    "m-sct": lambda runtime, seed: MSct(runtime=runtime),
    "m-sct-predicted": lambda runtime, seed: MSct(),
    "automatic-device-map": lambda runtime, seed: AutomaticDeviceMap(runtime=runtime),
    "automatic-device-map-balanced": lambda runtime, seed: AutomaticDeviceMap(),
    "simulated-annealing": lambda runtime, seed: SimulatedAnnealing(runtime=runtime, evaluations=40, seed=seed),
    "cross-entropy": lambda runtime, seed: CrossEntropy(runtime=runtime, evaluations=40, seed=seed, batch_size=10),
    "local-search": lambda runtime, seed: LocalSearch(runtime=runtime, evaluations=40, seed=seed),
    "critical-path-search": lambda runtime, seed: LocalSearch(runtime=runtime, evaluations=40, seed=seed, predictor=Simulator()),
    "local-search-bottleneck": lambda runtime, seed: LocalSearch(runtime=runtime, evaluations=40, seed=seed, objective="bottleneck"),
}
"""Every placer by name, built from a runtime and a seed."""


def check_placer(build: Callable[[Runtime, int], Placer], graph: Graph, cluster: Cluster) -> None:
    """A valid placement that keeps colocation groups together, the same one when asked again, and nothing changed by asking."""
    before = (graph.sha256, cluster.sha256)
    placement = build(Simulator(), 3)(graph, cluster)
    again = build(Simulator(), 3)(graph, cluster)
    assert placement.device.shape == (graph.num_ops,)
    assert placement.device.dtype == np.int32
    assert placement.device.min() >= 0
    assert placement.device.max() < cluster.num_devices
    for group in set(graph.colocation_group.tolist()) - {Graph.NO_GROUP}:
        assert len(set(placement.device[graph.colocation_group == group].tolist())) == 1
    np.testing.assert_array_equal(placement.device, again.device)
    assert placement.origin == again.origin
    # `sha256` is kept after its first use: copies without what is cached are hashed afresh.
    assert (_fresh_hash(graph), cluster.sha256) == before


def brute_force_s(graph: Graph, cluster: Cluster, *, runtime: Runtime, objective: Objective) -> float:
    """The least objective of all placements; infinite when none can run."""
    device = np.array(list(itertools.product(range(cluster.num_devices), repeat=graph.num_ops)), np.int32)
    return float(runtime.batch(graph, cluster, device).objective_s(objective).min())


def _fresh_hash(graph: Graph) -> str:
    return graph.with_measured_time({}).sha256
