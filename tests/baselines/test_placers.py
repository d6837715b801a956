"""The contract of every placer, on random graphs and clusters."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gdp.cluster import Cluster, preset
from gdp.graph import Graph
from gdp.measurement import Status
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import cells, layered, series_parallel, unrolled_rnn
from tests.contracts import ALL_PLACERS, brute_force_s, check_placer
from tests.strategies import clusters, graphs

NO_SHRINKING = (Phase.explicit, Phase.generate)
"""A failing example is small as it is, and shrinking runs the searches hundreds of times."""

FAMILIES = (layered, series_parallel, cells, unrolled_rnn)


@pytest.mark.parametrize("name", ALL_PLACERS)
@settings(max_examples=8, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(max_ops=8), cluster=clusters(max_devices=3))
def test_contract_on_random_graphs(name: str, graph: Graph, cluster: Cluster) -> None:
    check_placer(ALL_PLACERS[name], graph, cluster)


@pytest.mark.parametrize("name", ALL_PLACERS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_contract_on_training_steps(name: str, family: type) -> None:
    check_placer(ALL_PLACERS[name], family(np.random.default_rng(7), num_ops=120, training=True), preset("unequal"))


@pytest.mark.parametrize("name", ALL_PLACERS)
@settings(max_examples=8, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(
    graph=graphs(min_ops=2, max_ops=6),
    cluster=clusters(min_devices=2, max_devices=2),
    objective=st.sampled_from(["step_time", "bottleneck"]),
)
def test_nobody_beats_brute_force(name: str, graph: Graph, cluster: Cluster, objective: str) -> None:
    simulator = Simulator()
    found = simulator(graph, cluster, ALL_PLACERS[name](simulator, 0)(graph, cluster))
    assert found.objective_s(objective) >= brute_force_s(graph, cluster, runtime=simulator, objective=objective)


@settings(max_examples=8, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(min_ops=2, max_ops=6), cluster=clusters(min_devices=2, max_devices=2))
def test_placers_with_a_runtime_are_never_worse_than_the_best_single_device(graph: Graph, cluster: Cluster) -> None:
    simulator = Simulator()
    single = simulator(graph, cluster, ALL_PLACERS["single-device"](simulator, 0)(graph, cluster))
    for name in ("list-scheduling", "local-search"):
        found = simulator(graph, cluster, ALL_PLACERS[name](simulator, 0)(graph, cluster))
        assert found.step_time_s <= single.step_time_s, name
    if single.status == Status.OK:
        contiguous = simulator(graph, cluster, ALL_PLACERS["contiguous"](simulator, 0)(graph, cluster))
        assert contiguous.status == Status.OK or cluster.memory_bytes[0] < cluster.memory_bytes.max() or len(cluster.kinds) > 1
