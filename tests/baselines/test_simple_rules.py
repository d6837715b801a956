"""Placers without search on cases that can be worked out by hand: tight memory, unequal devices, one device, closed forms."""

import dataclasses

import numpy as np
import pytest
from small_graphs import machine, small_graph

from gdp.baselines.automatic_device_map import AutomaticDeviceMap
from gdp.baselines.contiguous import Contiguous, contiguous_splits
from gdp.baselines.cpop import Cpop
from gdp.baselines.heft import Heft
from gdp.baselines.m_etf import MEtf
from gdp.baselines.m_sct import MSct
from gdp.baselines.m_topo import MTopo
from gdp.baselines.metis import Metis, MetisManyTimes
from gdp.baselines.round_robin import RoundRobin
from gdp.baselines.single_device import SingleDevice
from gdp.cluster import preset
from gdp.measurement import Status
from gdp.placement import Placer
from gdp.runtime.simulator import Simulator
from gdp.workloads.known_optimum import fork_join, independent_chains
from gdp.workloads.synthetic import layered, unrolled_rnn
from tests.contracts import ALL_PLACERS

SIMULATOR = Simulator()
SCHEDULERS = (Heft, Cpop, MEtf, MSct)


@pytest.mark.parametrize("placer", [*(build() for build in SCHEDULERS), *(build(runtime=SIMULATOR) for build in SCHEDULERS)])
def test_independent_chains_are_spread_evenly(placer: Placer) -> None:
    problem = independent_chains(num_chains=12, length=5, num_devices=4)
    assert SIMULATOR(problem.graph, problem.cluster, placer(problem.graph, problem.cluster)).step_time_s == problem.optimum_s


@pytest.mark.parametrize("build", SCHEDULERS)
@pytest.mark.parametrize("num_branches", [2, 5, 8])
@pytest.mark.parametrize("transfer_s", [0.0, 1.0])
def test_fork_and_join_is_solved(build: type, num_branches: int, transfer_s: float) -> None:
    problem = fork_join(num_branches=num_branches, transfer_s=transfer_s)
    placement = build(runtime=SIMULATOR)(problem.graph, problem.cluster)
    assert SIMULATOR(problem.graph, problem.cluster, placement).step_time_s == problem.optimum_s


@pytest.mark.parametrize(
    "placer",
    [
        *(build() for build in SCHEDULERS),
        MTopo(),
        RoundRobin(),
        Contiguous(balance="memory"),
        *(ALL_PLACERS[name](SIMULATOR, 0) for name in ("m-topo", "m-etf", "contiguous-by-memory", "round-robin")),
    ],
    ids=lambda placer: type(placer).__name__,
)
def test_tight_memory_is_kept(placer: Placer) -> None:
    """Eight parallel ops with 100 bytes of parameters each on four devices that hold two: every placement that fits has two a device."""
    graph = small_graph([(0, op) for op in range(1, 9)], seconds=[1.0] * 9, param_bytes=[0] + [100] * 8)
    cluster = machine(memory_bytes=[210] * 4)
    measurement = SIMULATOR(graph, cluster, placer(graph, cluster))
    assert measurement.status == Status.OK, measurement.detail


@pytest.mark.parametrize("build", SCHEDULERS)
def test_a_chain_stays_on_the_fast_device_of_unequal_ones(build: type) -> None:
    graph = small_graph([(op, op + 1) for op in range(9)], seconds=[1.0] * 10)
    cluster = machine(memory_bytes=[2**30] * 3, flops_per_s=[1.0, 10.0, 1.0], transfer_s=0.1)
    assert build()(graph, cluster).device.tolist() == [1] * 10


@pytest.mark.parametrize("name", ALL_PLACERS)
def test_one_device_takes_everything(name: str) -> None:
    graph = small_graph([(0, 1), (0, 2), (1, 3), (2, 3)], seconds=[1.0, 0.0, 2.0, 1.0], colocation=[0, -1, -1, 0])
    assert ALL_PLACERS[name](SIMULATOR, 0)(graph, machine(memory_bytes=[2**30])).device.tolist() == [0] * 4


def test_round_robin_deals_out_in_turn() -> None:
    graph = small_graph([], seconds=[1.0] * 7)
    assert RoundRobin()(graph, machine(memory_bytes=[2**30] * 3)).device.tolist() == [0, 1, 2, 0, 1, 2, 0]


def test_m_topo_fills_devices_in_order_to_an_equal_share_and_the_largest_op() -> None:
    """Of 800 bytes on four devices a share is 200, and the largest op has 100: three ops, then of 500 on three 166 and 100: two, of 300 on two 150 and 100: two; one is left."""
    graph = small_graph([], seconds=[1.0] * 8, param_bytes=[100] * 8, tensor_bytes=[0] * 8)
    assert MTopo()(graph, machine(memory_bytes=[2**30] * 4)).device.tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert MTopo()(graph, machine(memory_bytes=[100, 2**30, 200, 2**30])).device.tolist() == [0, 1, 1, 1, 2, 2, 3, 3]


def test_contiguous_by_memory_cuts_in_proportion_to_memory() -> None:
    graph = small_graph([(op, op + 1) for op in range(7)], seconds=[1.0] * 8, param_bytes=[300] + [100] * 7, tensor_bytes=[0] * 8)
    cluster = machine(memory_bytes=[3000, 7000])
    assert contiguous_splits(graph, cluster, balance="memory")[-1].tolist() == [0] + [1] * 7
    assert contiguous_splits(graph, cluster)[-1].tolist() == [0] * 4 + [1] * 4


def test_metis_by_bytes_balances_memory() -> None:
    graph = small_graph([], seconds=[1.0] * 8, param_bytes=[700] + [100] * 7, tensor_bytes=[0] * 8)
    cluster = machine(memory_bytes=[2**30] * 2)
    device = Metis(weight="bytes")(graph, cluster).device
    assert sorted(np.bincount(device, graph.param_bytes).tolist()) == [700, 700]
    assert sorted(np.bincount(Metis()(graph, cluster).device).tolist()) == [4, 4]


@pytest.mark.parametrize("name", ["heft", "cpop", "m-topo", "m-etf", "m-sct", "round-robin"])
def test_devices_may_stay_idle_so_that_none_is_slower_than_one_device(name: str) -> None:
    graph, cluster = layered(np.random.default_rng(5), num_ops=200, training=True), preset("p100x4")
    single = SIMULATOR(graph, cluster, ALL_PLACERS["single-device"](SIMULATOR, 0)(graph, cluster))
    assert SIMULATOR(graph, cluster, ALL_PLACERS[name](SIMULATOR, 0)(graph, cluster)).step_time_s <= single.step_time_s


@pytest.mark.parametrize("name", ["heft", "m-topo", "m-etf", "m-sct", "round-robin", "contiguous-by-memory"])
def test_half_of_the_memory_that_one_device_needs_is_enough_on_four(name: str) -> None:
    graph, cluster = unrolled_rnn(np.random.default_rng(1), num_ops=600, training=True), preset("p100x4")
    single = SIMULATOR(graph, cluster, ALL_PLACERS["single-device"](SIMULATOR, 0)(graph, cluster))
    half = int(single.peak_memory_bytes.max()) // 2
    tight = dataclasses.replace(cluster, devices=tuple(dataclasses.replace(device, memory_bytes=half) for device in cluster.devices))
    measurement = SIMULATOR(graph, tight, ALL_PLACERS[name](SIMULATOR, 0)(graph, tight))
    assert measurement.status == Status.OK, measurement.detail


@pytest.mark.parametrize("name", ["cpu-gpu", "unequal"])
def test_rules_that_choose_among_variants_know_the_fast_device(name: str) -> None:
    """On unequal devices everything on the fastest one is among what they try, wherever it stands in the cluster."""
    graph, cluster, runtime = layered(np.random.default_rng(5), num_ops=60), preset(name), Simulator()
    turned = dataclasses.replace(
        cluster,
        devices=cluster.devices[::-1],
        bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s[::-1, ::-1].copy(),
        latency_s=cluster.latency_s[::-1, ::-1].copy(),
        channel=cluster.channel[::-1, ::-1].copy(),
    )
    for target in (cluster, turned):
        alone = runtime(graph, target, SingleDevice(runtime=runtime)(graph, target)).step_time_s
        placers = (
            Contiguous(runtime=runtime, balance="memory"),
            AutomaticDeviceMap(runtime=runtime),
            MetisManyTimes(runtime=runtime, evaluations=4, seed=0),
        )
        for placer in placers:
            assert runtime(graph, target, placer(graph, target)).step_time_s <= alone, type(placer).__name__
