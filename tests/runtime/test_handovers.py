"""The latency of hand-overs is found again in steps of a simulated machine that has it, also under noise."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.cluster import Cluster, Device
from gdp.graph import Graph
from gdp.measurement import Measurement, Status
from gdp.placement import Placement
from gdp.runtime.handovers import fitted_latency_s, handing_over, measured_hand_overs, with_core_latency
from gdp.runtime.journal import Measured
from gdp.runtime.simulator import Simulator
from tests.strategies import seeded_cluster, seeded_graph


def two_cores(*, latency_s: float = 2e-6) -> Cluster:
    cluster = seeded_cluster(np.random.default_rng(0), num_devices=3)
    devices = [
        Device(
            name=name,
            kind="core",
            memory_bytes=2**50,
            flops_per_s={"float32": 1e12},
            memory_bytes_per_s=1e12,
            op_overhead_s=2e-5,
        )
        for name in ("cpu:0", "cuda:0", "cpu:1")
    ]
    return dataclasses.replace(
        cluster,
        devices=tuple(devices),
        bandwidth_bytes_per_s=np.full((3, 3), 1e12),
        latency_s=np.full((3, 3), latency_s),
        channel=np.full((3, 3), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )


def some_graph(seed: int) -> Graph:
    return dataclasses.replace(seeded_graph(np.random.default_rng(seed), num_ops=120), measured_time_s={})


class Machine:
    """A machine whose hand-overs take `latency_s`, which is `scale` times as slow as its profile and whose steps vary by `noise`; only the first `runs` run."""

    def __init__(self, *, latency_s: float, scale: float = 1.0, noise: float = 0.0, runs: int = 1000) -> None:
        self._latency_s, self._scale, self._noise, self._runs = latency_s, scale, noise, runs
        self._generator, self._ran = np.random.default_rng(7), 0

    def against(self, graph: Graph, cluster: Cluster, placement: Placement, incumbent: Measured | None) -> Measurement:
        assert (incumbent is None) == (self._ran == 0)
        simulated = Simulator(dispatch="program_order")(graph, with_core_latency(cluster, self._latency_s), placement)
        if self._ran == self._runs:
            return dataclasses.replace(simulated, status=Status.FAILED, detail="it failed", step_time_s=np.inf)
        self._ran += 1
        return dataclasses.replace(
            simulated, step_time_s=simulated.step_time_s * self._scale * float(np.exp(self._noise * self._generator.standard_normal()))
        )


@given(seed=st.integers(0, 50), latency_s=st.floats(5e-6, 5e-4), scale=st.floats(0.5, 2.0))
@settings(max_examples=8, deadline=None)
def test_the_latency_of_a_machine_is_found(seed: int, latency_s: float, scale: float) -> None:
    found = measured_hand_overs(
        some_graph(seed), two_cores(), Machine(latency_s=latency_s, scale=scale), dispatch="program_order", seed=seed
    )
    assert found is not None
    assert found.latency_s == pytest.approx(latency_s, rel=0.15)


def test_noise_moves_it_little() -> None:
    found = [
        measured_hand_overs(some_graph(seed), two_cores(), Machine(latency_s=5e-5, noise=0.02), dispatch="program_order", seed=seed)
        for seed in range(9)
    ]
    assert np.median([each.latency_s for each in found if each is not None]) == pytest.approx(5e-5, rel=0.2)


def test_the_program_is_cut_ever_more_often_among_the_cores_alone() -> None:
    graph, cluster = some_graph(1), two_cores()
    device = handing_over(graph, cluster, seed=0)
    assert set(np.unique(device)) == {0, 2}
    assert (device[0] == 0).all()
    transfers = Simulator(dispatch="program_order").batch(graph, cluster, device).num_transfers
    assert len(device) == 5 and (np.diff(transfers) > 0).all()
    grouped = dataclasses.replace(graph, colocation_group=np.where(np.arange(graph.num_ops) % 10 == 3, 4, Graph.NO_GROUP).astype(np.int32))
    assert all(len(set(row[3::10])) == 1 for row in handing_over(grouped, cluster, seed=0))


def test_only_latencies_between_cores_change() -> None:
    changed = with_core_latency(two_cores(latency_s=3e-6), 1e-4).latency_s
    assert changed[0, 2] == changed[2, 0] == 1e-4
    assert (np.delete(changed.ravel(), [2, 6]) == 3e-6).all()


def test_without_two_sets_of_cores_or_steps_that_run_there_is_nothing_to_fit() -> None:
    graph, cluster = some_graph(2), two_cores()
    one = dataclasses.replace(
        cluster, devices=tuple(dataclasses.replace(device, name=f"cuda:{number}") for number, device in enumerate(cluster.devices))
    )
    assert measured_hand_overs(graph, one, Machine(latency_s=1e-5), dispatch="program_order", seed=0) is None
    assert measured_hand_overs(graph, cluster, Machine(latency_s=1e-5, runs=2), dispatch="program_order", seed=0) is None
    three = measured_hand_overs(graph, cluster, Machine(latency_s=1e-4, runs=3), dispatch="program_order", seed=0)
    assert three is not None and three.latency_s == pytest.approx(1e-4, rel=0.15) and len(three.measured_s) == 3
    crowded = dataclasses.replace(cluster, devices=tuple(dataclasses.replace(device, memory_bytes=0) for device in cluster.devices))
    assert measured_hand_overs(graph, crowded, Machine(latency_s=1e-5), dispatch="program_order", seed=0) is None
    assert fitted_latency_s(graph, cluster, handing_over(graph, cluster, seed=1)[:1], [1.0], dispatch="program_order") > 0
