"""Problems with a known optimum: the closed forms are right, and the placers that should reach them do."""

import numpy as np
import pytest

from gdp.baselines.exact_schedule import exact_schedule
from gdp.baselines.list_scheduling import ListScheduling
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.metis import Metis, MetisManyTimes
from gdp.errors import InputError
from gdp.runtime.simulator import Simulator
from gdp.workloads.catalog import CATALOG, Workload
from gdp.workloads.known_optimum import SolvedProblem, fork_join, independent_chains
from tests.contracts import brute_force_s

SIMULATOR = Simulator()
SOLVED = [entry for entry in CATALOG if entry.solved is not None]


@pytest.mark.parametrize(
    "problem",
    [
        independent_chains(num_chains=3, length=2, num_devices=2),
        independent_chains(num_chains=2, length=3, num_devices=3),
        independent_chains(num_chains=1, length=1, num_devices=1),
        *(fork_join(num_branches=n, transfer_s=c) for n in (1, 2, 3, 4, 5) for c in (0.0, 0.25, 0.5, 0.75, 1.0)),
    ],
    ids=lambda problem: problem.graph.source,
)
def test_closed_forms_equal_brute_force(problem: SolvedProblem) -> None:
    assert problem.optimum_s == brute_force_s(problem.graph, problem.cluster, runtime=SIMULATOR, objective="step_time")


@pytest.mark.parametrize("entry", SOLVED, ids=lambda entry: entry.name)
def test_the_catalog_s_optimum_is_what_a_solver_or_brute_force_finds(entry: Workload) -> None:
    """Brute force up to 4096 placements; beyond, the integer program's bound from below and some placement from above."""
    assert entry.solved is not None
    problem = entry.solved()
    assert entry.build().sha256 == problem.graph.sha256
    graph, cluster = problem.graph, problem.cluster
    if cluster.num_devices**graph.num_ops <= 4096:
        assert brute_force_s(graph, cluster, runtime=SIMULATOR, objective="step_time") == problem.optimum_s
        return
    reached = min(
        SIMULATOR(graph, cluster, placer(graph, cluster)).step_time_s
        for placer in (ListScheduling(), ListScheduling(runtime=SIMULATOR), Metis())
    )
    assert reached == problem.optimum_s
    proven = exact_schedule(graph, cluster, horizon_s=reached, time_limit_s=60.0)
    assert proven.bound_s == pytest.approx(problem.optimum_s, rel=3e-5)  # the solver's tolerance


@pytest.mark.parametrize("num_devices", [2, 4])
@pytest.mark.parametrize("placer", [Metis(), ListScheduling(), ListScheduling(runtime=SIMULATOR)], ids=["metis", "predicted", "simulated"])
def test_independent_chains_are_spread_evenly(placer: Metis | ListScheduling, num_devices: int) -> None:
    problem = independent_chains(num_chains=3 * num_devices, length=5, num_devices=num_devices)
    assert SIMULATOR(problem.graph, problem.cluster, placer(problem.graph, problem.cluster)).step_time_s == problem.optimum_s


@pytest.mark.parametrize("num_branches", [2, 5, 8])
@pytest.mark.parametrize("transfer_s", [0.0, 0.25, 1.0])
def test_fork_and_join_is_solved(num_branches: int, transfer_s: float) -> None:
    problem = fork_join(num_branches=num_branches, transfer_s=transfer_s)
    for placer in (
        LocalSearch(runtime=SIMULATOR, evaluations=300, seed=0),
        ListScheduling(runtime=SIMULATOR),
    ):
        found = SIMULATOR(problem.graph, problem.cluster, placer(problem.graph, problem.cluster)).step_time_s
        assert found == problem.optimum_s, type(placer).__name__


def test_metis_many_times_is_never_worse_than_metis_once() -> None:
    problem = fork_join(num_branches=9, transfer_s=0.5)
    once = SIMULATOR(problem.graph, problem.cluster, Metis(seed=4)(problem.graph, problem.cluster)).step_time_s
    many = MetisManyTimes(runtime=SIMULATOR, evaluations=100, seed=4).search(problem.graph, problem.cluster)
    assert many.best_so_far_s[0] == once
    assert many.best_so_far_s[-1] <= once
    assert many.best_so_far_s.shape == (100,)
    assert (np.diff(many.best_so_far_s) <= 0).all()


def test_impossible_problems_are_refused() -> None:
    with pytest.raises(InputError, match="length is 0"):
        independent_chains(num_chains=1, length=0, num_devices=1)
    with pytest.raises(InputError, match="transfers of 0 to 1 s"):
        fork_join(num_branches=2, transfer_s=1.5)
