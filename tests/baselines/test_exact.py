"""Exact solvers: equal to brute force where the relaxation is none, never above it anywhere, and honest when stopped."""

import dataclasses
import importlib.util
import itertools

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gdp.baselines.constraint_schedule import constraint_schedule
from gdp.baselines.exact_bottleneck import ExactResult, exact_bottleneck
from gdp.baselines.exact_schedule import exact_schedule
from gdp.baselines.integer_program import IntegerProgram
from gdp.cluster import Cluster, preset
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective
from gdp.runtime.simulator import Simulator
from gdp.workloads.known_optimum import fork_join, independent_chains
from gdp.workloads.synthetic import layered
from tests.strategies import clusters, graphs

NO_SHRINKING = (Phase.explicit, Phase.generate)
EXACT = 3e-5
"""Relative: what is taken off for the solver's tolerance, twice, and rounding to millionths."""


def brute_force(graph: Graph, cluster: Cluster, objective: Objective, generator: np.random.Generator) -> float:
    """The least objective of all placements under all dispatch rules."""
    device = np.array(list(itertools.product(range(cluster.num_devices), repeat=graph.num_ops)), np.int32)
    runtimes = [Simulator(), Simulator(dispatch="program_order"), Simulator(dispatch="priority", rank=generator.random(graph.num_ops))]
    return min(float(each.batch(graph, cluster, device).objective_s(objective).min()) for each in runtimes)


def schedule(graph: Graph, cluster: Cluster, horizon_s: float, solver: str) -> ExactResult:
    if solver == "HiGHS":
        return exact_schedule(graph, cluster, horizon_s=horizon_s, time_limit_s=20.0)
    if importlib.util.find_spec("ortools") is None:  # it may not be imported beside highspy
        pytest.skip("OR-tools is optional")
    return constraint_schedule(graph, cluster, horizon_s=horizon_s, time_limit_s=20.0)


@settings(max_examples=40, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(max_ops=6), cluster=clusters(max_devices=3, roomy=True))
def test_bottleneck_equals_brute_force(graph: Graph, cluster: Cluster) -> None:
    least = brute_force(graph, cluster, "bottleneck", np.random.default_rng(0))
    result = exact_bottleneck(graph, cluster, time_limit_s=20.0)
    assert result.device is not None
    assert result.bound_s <= least
    assert result.bound_s == pytest.approx(least, rel=EXACT, abs=1e-9)
    assert result.program_s == pytest.approx(least, rel=EXACT, abs=1e-9)
    assert result.status == "optimal"
    assert Simulator().batch(graph, cluster, result.device[np.newaxis]).bottleneck_s[0] == pytest.approx(least, rel=EXACT, abs=1e-9)


@settings(max_examples=40, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(max_ops=6), cluster=clusters(max_devices=3))
def test_bottleneck_is_never_above_brute_force_where_memory_is_tight(graph: Graph, cluster: Cluster) -> None:
    assert exact_bottleneck(graph, cluster, time_limit_s=20.0).bound_s <= brute_force(
        graph, cluster, "bottleneck", np.random.default_rng(0)
    )


@pytest.mark.parametrize("solver", ["HiGHS", "CP-SAT"])
@settings(max_examples=25, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(min_ops=2, max_ops=5), cluster=clusters(min_devices=2, max_devices=3), seed=st.integers(0, 2**32 - 1))
def test_schedule_is_never_above_brute_force(solver: str, graph: Graph, cluster: Cluster, seed: int) -> None:
    least = brute_force(graph, cluster, "step_time", np.random.default_rng(seed))
    if 0 < least < np.inf:
        result = schedule(graph, cluster, least, solver)
        assert result.bound_s <= least
        assert result.program_s == np.inf or result.program_s >= result.bound_s * (1 - EXACT)


@pytest.mark.parametrize("solver", ["HiGHS", "CP-SAT"])
def test_schedule_finds_known_optima(solver: str) -> None:
    problems = [fork_join(num_branches=5, transfer_s=transfer_s) for transfer_s in (0.0, 0.25, 1.0)]
    for problem in (*problems, independent_chains(num_chains=3, length=3, num_devices=2)):
        result = schedule(problem.graph, problem.cluster, 1.5 * problem.optimum_s, solver)
        assert result.bound_s == pytest.approx(problem.optimum_s, rel=EXACT)
        assert result.bound_s <= problem.optimum_s
        assert result.program_s == pytest.approx(problem.optimum_s, rel=EXACT)
        assert result.status == "optimal"


def test_a_stopped_solver_reports_its_bound_and_gap() -> None:
    graph, cluster = layered(np.random.default_rng(0), num_ops=200, training=True), preset("p100x4")
    stopped = exact_bottleneck(graph, cluster, time_limit_s=0.01)
    assert 0 < stopped.bound_s < np.inf
    assert stopped.gap(2 * stopped.bound_s) == pytest.approx(0.5)
    assert stopped.gap(np.inf) == np.inf
    assert stopped.status == ("nothing found" if stopped.device is None else "not proven")


def test_what_fits_nowhere_is_infeasible() -> None:
    graph, cluster = layered(np.random.default_rng(0), num_ops=10), preset("p100x2")
    graph = dataclasses.replace(graph, param_bytes=np.full(graph.num_ops, 2**40))
    assert exact_bottleneck(graph, cluster, time_limit_s=1.0).status == "infeasible"
    assert exact_schedule(graph, cluster, horizon_s=1.0, time_limit_s=1.0).status == "infeasible"


@pytest.mark.parametrize("time_limit_s", [0.0, -1.0, np.inf, np.nan])
def test_time_limits_are_checked(time_limit_s: float) -> None:
    graph, cluster = layered(np.random.default_rng(0), num_ops=10), preset("p100x2")
    with pytest.raises(InputError, match="positive, finite time"):
        exact_bottleneck(graph, cluster, time_limit_s=time_limit_s)


def test_a_horizon_that_no_placement_reaches_is_refused() -> None:
    graph, cluster = layered(np.random.default_rng(0), num_ops=10), preset("p100x2")
    with pytest.raises(InputError, match="step time of a placement that runs"):
        exact_schedule(graph, cluster, horizon_s=1e-12, time_limit_s=1.0)


def test_integer_program_knows_what_has_no_solution() -> None:
    """Half of a knapsack: `2 x + 2 y = 1` has a fractional solution and no other; with 2 on the right the least x is 0."""
    for total, bound in ((1.0, np.inf), (2.0, 0.0)):
        program = IntegerProgram()
        x, y = program.column(0.0, 1.0, integer=True), program.column(0.0, 1.0, integer=True)
        program.row([x, y], [2.0, 2.0], low=total, high=total)
        assert program.minimise(x, time_limit_s=10.0, relative_gap=0.0, num_threads=1).bound == pytest.approx(bound, abs=EXACT)
