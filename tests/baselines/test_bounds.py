"""Lower bounds: never above a simulated time, equal to closed forms where these exist, monotone in what they are told."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gdp.baselines import work_bound
from gdp.baselines.bounds import SAFETY, LowerBound, lower_bound, lower_bounds
from gdp.baselines.indivisible import indivisible
from gdp.baselines.interval_bound import interval_bound_s
from gdp.baselines.longest_path import longest_path_s, paths
from gdp.baselines.work_bound import divided_s, even_multipliers, work_bound_s
from gdp.cluster import Cluster, Device
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Status
from gdp.runtime.simulator import Simulator
from gdp.workloads.known_optimum import fork_join, independent_chains
from gdp.workloads.synthetic import layered
from tests.strategies import FLOPS_PER_S, clusters, devices, graphs, seeded_cluster, seeded_device, seeded_graph

NO_SHRINKING = (Phase.explicit, Phase.generate)
OBJECTIVES: tuple[Objective, ...] = ("step_time", "bottleneck")
EXACT = 1e-8
"""Relative distance to closed forms: the safety margin and rounding."""


def simulators(num_ops: int, generator: np.random.Generator) -> list[Simulator]:
    """One of each dispatch rule."""
    return [Simulator(), Simulator(dispatch="program_order"), Simulator(dispatch="priority", rank=generator.random(num_ops))]


def least_s(graph: Graph, cluster: Cluster, device: np.ndarray, objective: Objective, generator: np.random.Generator) -> float:
    """The least objective of the rows of `device` under all dispatch rules."""
    return min(float(each.batch(graph, cluster, device).objective_s(objective).min()) for each in simulators(graph.num_ops, generator))


def all_placements(graph: Graph, cluster: Cluster) -> np.ndarray:
    return np.array(list(itertools.product(range(cluster.num_devices), repeat=graph.num_ops)), np.int32)


def bound_of(bounds: tuple[LowerBound, ...], name: str) -> float:
    return next(each.value_s for each in bounds if each.bound == name)


def program(num_ops: int, edges: list[tuple[int, int]], *, seconds: list[float], param_bytes: int = 0, tensor_bytes: int = 0) -> Graph:
    """Ops of the given measured seconds on kind `fast`, twice that on `slow`; one tensor an op that is read."""
    producers = sorted({producer for producer, _ in edges})
    return Graph(
        op_type=("MatMul",) * num_ops,
        name=tuple(map(str, range(num_ops))),
        module_path=("",) * num_ops,
        flops=np.ones(num_ops),
        accessed_bytes=np.zeros(num_ops, np.int64),
        param_bytes=np.full(num_ops, param_bytes, np.int64),
        temp_bytes=np.zeros(num_ops, np.int64),
        phase=np.zeros(num_ops, np.int8),
        colocation_group=np.full(num_ops, Graph.NO_GROUP, np.int32),
        tensor_producer=np.array(producers, np.int32),
        tensor_bytes=np.full(len(producers), tensor_bytes, np.int64),
        tensor_shape=((-1,),) * len(producers),
        tensor_dtype=("float32",) * len(producers),
        edge_tensor=np.array([producers.index(producer) for producer, _ in edges], np.int32),
        edge_consumer=np.array([consumer for _, consumer in edges], np.int32),
        source="tests.baselines.test_bounds",
        measured_time_s={"fast": np.array(seconds), "slow": 2 * np.array(seconds)},
    )


def machine(*kinds: str, memory_bytes: int = 2**40, latency_s: float = 0.0, bytes_per_s: float = np.inf, channels: int = 1) -> Cluster:
    """Devices of the given kinds, with all links over one channel, or `channels=0` for none."""
    count = len(kinds)
    return Cluster(
        name="tests.baselines.test_bounds",
        devices=tuple(
            Device(
                name=f"gpu{number}",
                kind=kind,
                memory_bytes=memory_bytes,
                flops_per_s={"float32": FLOPS_PER_S[kind]},
                memory_bytes_per_s=1000.0,
                op_overhead_s=0.0,
            )
            for number, kind in enumerate(kinds)
        ),
        bandwidth_bytes_per_s=np.full((count, count), bytes_per_s),
        latency_s=np.full((count, count), latency_s),
        channel=np.full((count, count), channels - 1, np.int32),
        channel_name=("bus",) * channels,
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=60, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(max_ops=6), cluster=clusters(max_devices=3), seed=st.integers(0, 2**32 - 1))
def test_no_bound_is_above_the_best_of_all_placements(objective: Objective, graph: Graph, cluster: Cluster, seed: int) -> None:
    least = least_s(graph, cluster, all_placements(graph, cluster), objective, np.random.default_rng(seed))
    for bound in lower_bounds(graph, cluster, objective=objective):
        assert bound.value_s <= least, bound


@pytest.mark.parametrize("objective", OBJECTIVES)
@settings(max_examples=60, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(data=st.data(), graph=graphs(min_ops=5, max_ops=20), cluster=clusters())
def test_no_bound_is_above_a_random_placement(objective: Objective, data: st.DataObject, graph: Graph, cluster: Cluster) -> None:
    device = np.stack([data.draw(devices(graph, cluster)) for _ in range(3)])
    least = least_s(graph, cluster, device, objective, np.random.default_rng(0))
    for bound in lower_bounds(graph, cluster, objective=objective):
        assert bound.value_s <= least, bound


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_bound_is_above_many_seeded_cases_and_most_are_near(objective: Objective) -> None:
    """Bounds that are always zero would hold, too: on graphs of up to six ops the best one is the optimum itself in more than half of the cases."""
    reached, cases = 0, 0
    for seed in range(80):
        generator = np.random.default_rng(seed)
        graph = seeded_graph(generator, num_ops=int(generator.integers(1, 7)))
        cluster = seeded_cluster(generator, num_devices=int(generator.integers(1, 4)))
        least = least_s(graph, cluster, all_placements(graph, cluster), objective, generator)
        bounds = lower_bounds(graph, cluster, objective=objective)
        assert all(bound.value_s <= least for bound in bounds), (seed, bounds, least)
        assert bounds[0].value_s == max(bound.value_s for bound in bounds)
        if 0 < least < np.inf:
            cases += 1
            reached += bounds[0].value_s >= least * (1 - EXACT)
    assert reached > cases / 2


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_bound_is_above_larger_seeded_cases(objective: Objective) -> None:
    for seed in range(40):
        generator = np.random.default_rng(seed)
        graph, cluster = seeded_graph(generator, num_ops=150), seeded_cluster(generator, num_devices=int(generator.integers(1, 6)))
        device = np.stack([seeded_device(generator, graph, cluster) for _ in range(8)])
        least = least_s(graph, cluster, device, objective, generator)
        assert all(bound.value_s <= least for bound in lower_bounds(graph, cluster, objective=objective))


def test_a_chain_takes_its_longest_path_on_the_fastest_device() -> None:
    graph = program(4, [(0, 1), (1, 2), (2, 3)], seconds=[1.0, 2.0, 3.0, 4.0], tensor_bytes=1)
    for kinds, expected in ((("fast", "fast"), 10.0), (("fast", "slow"), 10.0), (("slow", "slow"), 20.0)):
        bound = lower_bound(graph, machine(*kinds, latency_s=1.0))
        assert bound.value_s == pytest.approx(expected, rel=EXACT)
        assert bound.bound == "longest path"


def test_independent_ops_take_the_work_bound_of_unequal_devices() -> None:
    """`k` ops of a second on speeds 1 and 1/2: when they divide as 2 to 1, both devices end at `2 k / 3`."""
    graph = program(9, [], seconds=[1.0] * 9)
    for objective in OBJECTIVES:
        bounds = lower_bounds(graph, machine("fast", "slow"), objective=objective)
        assert bound_of(bounds, "work") == pytest.approx(6.0, rel=EXACT)
    assert bound_of(lower_bounds(graph, machine("fast", "fast", "fast")), "work") == pytest.approx(3.0, rel=EXACT)


@pytest.mark.parametrize(("num_ops", "num_devices"), [(1, 3), (3, 2), (4, 3), (7, 3), (9, 4)])
def test_equal_ops_take_whole_rounds(num_ops: int, num_devices: int) -> None:
    bound = lower_bound(program(num_ops, [], seconds=[1.0] * num_ops), machine(*["fast"] * num_devices), objective="bottleneck")
    assert bound.value_s == pytest.approx(-(-num_ops // num_devices), rel=EXACT)


@pytest.mark.parametrize("num_branches", [2, 4, 6])
def test_fork_and_join_takes_the_interval_bound(num_branches: int) -> None:
    """With free transfers: a second for the fork, `num_branches / 2` for the branches, a second for the join; the path sees 3, the work `1 + num_branches / 2`."""
    problem = fork_join(num_branches=num_branches, transfer_s=0.0)
    bounds = lower_bounds(problem.graph, problem.cluster)
    assert bound_of(bounds, "interval") == pytest.approx(problem.optimum_s, rel=EXACT)
    assert bound_of(bounds, "longest path") == pytest.approx(3.0, rel=EXACT)
    assert bound_of(bounds, "work") == pytest.approx(1 + num_branches / 2, rel=EXACT)


def test_interval_bound_weighs_unequal_devices() -> None:
    """A second of fork and of join on the fast device, between them nine ops of a second that two devices of speeds 1 and 1/2 do in six."""
    edges = [(0, branch) for branch in range(1, 10)] + [(branch, 10) for branch in range(1, 10)]
    bounds = lower_bounds(program(11, edges, seconds=[1.0] * 11), machine("fast", "slow"))
    assert bound_of(bounds, "interval") == pytest.approx(8.0, rel=EXACT)
    assert bound_of(bounds, "work") == pytest.approx(2 * 11 / 3, rel=EXACT)


def test_independent_chains_are_solved() -> None:
    problem = independent_chains(num_chains=6, length=4, num_devices=3)
    assert lower_bound(problem.graph, problem.cluster).value_s == pytest.approx(problem.optimum_s, rel=EXACT)


def test_memory_forces_work_to_the_slow_device() -> None:
    """Four ops of 10 bytes and a second: the fast device holds three (30 bytes), so the slow one runs one, in 100 s; fractions of ops could not do it in less, either."""
    graph = dataclasses.replace(
        program(4, [], seconds=[1.0] * 4, param_bytes=10), measured_time_s={"fast": np.ones(4), "slow": np.full(4, 100.0)}
    )
    cluster = machine("fast", "slow")
    small = dataclasses.replace(cluster, devices=(dataclasses.replace(cluster.devices[0], memory_bytes=30), cluster.devices[1]))
    for objective in OBJECTIVES:
        assert lower_bound(graph, small, objective=objective).value_s == pytest.approx(100.0, rel=EXACT)
        assert lower_bound(graph, cluster, objective=objective).value_s == pytest.approx(400 / 101, rel=EXACT)


def test_a_path_that_memory_splits_pays_for_the_transfer() -> None:
    """A cheap op that only the second device holds, between ops that only the first one holds: two transfers of 5 s."""
    graph = program(3, [(0, 1), (1, 2)], seconds=[1.0, 1.0, 1.0], tensor_bytes=8)
    graph = dataclasses.replace(graph, measured_time_s={"fast": np.array([1.0, 1e3, 1.0]), "slow": np.array([1e3, 1.0, 1e3])})
    cluster = machine("fast", "slow", latency_s=1.0, bytes_per_s=2.0)
    assert lower_bound(graph, cluster).value_s == pytest.approx(13.0, rel=EXACT)
    assert lower_bound(graph, cluster).bound == "longest path"


def test_shared_input_is_sent_where_memory_needs_it() -> None:
    """One tensor of 1 s of transfer read by four ops, of which a device holds one and that for 30 ms each: three transfers over the one channel."""
    graph = program(5, [(0, reader) for reader in range(1, 5)], seconds=[0.0] + [0.03] * 4, tensor_bytes=10, param_bytes=100)
    graph = dataclasses.replace(graph, param_bytes=np.array([0, 100, 100, 100, 100], np.int64))
    cluster = machine("fast", "fast", "fast", "fast", memory_bytes=150, bytes_per_s=10.0)
    for objective in OBJECTIVES:
        bounds = lower_bounds(graph, cluster, objective=objective)
        assert bound_of(bounds, "fan-out") == pytest.approx(2.0, rel=EXACT), "parameters of 400 bytes need three devices of 150"
        assert bounds[0].bound == "fan-out"
    assert bound_of(lower_bounds(graph, machine("fast", "fast", memory_bytes=250, channels=0, bytes_per_s=10.0)), "fan-out") == 0.0


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_what_cannot_run_is_infinite(objective: Objective) -> None:
    graph = program(3, [], seconds=[1.0] * 3, param_bytes=10)
    for memory_bytes in (9, 14):
        cluster = machine("fast", "fast", memory_bytes=memory_bytes)
        assert lower_bounds(graph, cluster, objective=objective) == (LowerBound(value_s=np.inf, bound="memory"),)
        measured = Simulator().batch(graph, cluster, all_placements(graph, cluster))
        assert (measured.status == Status.OUT_OF_MEMORY).all()
    assert lower_bound(graph, machine("fast", "fast", memory_bytes=20), objective=objective).value_s == pytest.approx(2.0, rel=EXACT)


def test_too_little_memory_is_proven_by_the_program() -> None:
    """Each of five units of 60 bytes fits somewhere, and all devices together have room for 300; but two of them are too small for any unit, and the others hold 290."""
    graph = program(5, [], seconds=[1.0] * 5, param_bytes=60)
    cluster = machine("fast", "slow", "slow", "slow")
    memory = (100, 59, 59, 500)
    cluster = dataclasses.replace(
        cluster, devices=tuple(dataclasses.replace(device, memory_bytes=size) for device, size in zip(cluster.devices, memory, strict=True))
    )
    assert lower_bound(graph, cluster).bound != "memory"
    tight = dataclasses.replace(cluster, devices=(*cluster.devices[:3], dataclasses.replace(cluster.devices[3], memory_bytes=190)))
    assert sum(device.memory_bytes for device in tight.devices) > 300
    assert lower_bound(graph, tight).bound == "memory"


@settings(max_examples=40, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(max_ops=10), cluster=clusters(min_devices=2, roomy=True), factor=st.sampled_from([2.0, 8.0]))
def test_bounds_scale_with_time(graph: Graph, cluster: Cluster, factor: float) -> None:
    """All seconds, latencies and transfer seconds times `factor`: so are the bounds."""
    measured = dataclasses.replace(graph, measured_time_s={kind: np.arange(graph.num_ops) + 1.0 for kind in ("fast", "slow")})
    slower_graph = dataclasses.replace(measured, measured_time_s={kind: factor * each for kind, each in measured.measured_time_s.items()})
    slower = dataclasses.replace(
        cluster, latency_s=cluster.latency_s * factor, bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s / factor
    )
    assert lower_bound(slower_graph, slower).value_s == pytest.approx(factor * lower_bound(measured, cluster).value_s, rel=1e-6)


@settings(max_examples=40, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(max_ops=10), cluster=clusters(min_devices=2))
def test_less_memory_and_slower_ops_never_lower_the_program_bounds(graph: Graph, cluster: Cluster) -> None:
    """The work bound and the longest path are optima of relaxations, so they are monotone, up to the solver's tolerance."""
    slower = dataclasses.replace(graph, measured_time_s={kind: 2.0 * np.ones(graph.num_ops) for kind in ("fast", "slow")})
    faster = dataclasses.replace(graph, measured_time_s={kind: np.ones(graph.num_ops) for kind in ("fast", "slow")})
    small = dataclasses.replace(
        cluster, devices=tuple(dataclasses.replace(each, memory_bytes=each.memory_bytes // 2) for each in cluster.devices)
    )
    for first, second, at, then in ((faster, slower, cluster, cluster), (faster, faster, cluster, small)):
        one, other = indivisible(first, at), indivisible(second, then)
        assert work_bound_s(other)[0] >= work_bound_s(one)[0] * (1 - 1e-6)
        before, after = longest_path_s(one, paths(first, at, one)), longest_path_s(other, paths(second, then, other))
        assert after >= before


@settings(max_examples=40, deadline=None, derandomize=True, phases=NO_SHRINKING)
@given(graph=graphs(max_ops=8), cluster=clusters(min_devices=2, roomy=True), seed=st.integers(0, 2**32 - 1))
def test_any_multipliers_give_a_bound(graph: Graph, cluster: Cluster, seed: int) -> None:
    """The bound does not rest on the solver: multipliers drawn at random give bounds below the solver's, and windows below every simulated time."""
    generator = np.random.default_rng(seed)
    units = indivisible(graph, cluster)
    best_s, _ = work_bound_s(units)
    work = generator.random(units.num_classes) + 0.01
    drawn = dataclasses.replace(even_multipliers(units), work=work / (units.class_size * work).sum())
    assert divided_s(units, units.time_s, drawn) <= best_s * (1 + 1e-6) + 1e-12
    device = generator.integers(0, cluster.num_devices, (20, graph.num_ops)).astype(np.int32)
    least = least_s(graph, cluster, device, "step_time", generator)
    assert interval_bound_s(units, paths(graph, cluster, units), drawn, known_s=best_s) * (1 - SAFETY) <= least


def test_merged_units_lose_next_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Solved with units of like proportions merged, the multipliers prove nearly the same bound, and never more."""
    graph = layered(np.random.default_rng(5), num_ops=1500, training=True)
    cluster = machine("fast", "slow", "slow")
    devices_ = tuple(
        dataclasses.replace(each, memory_bytes=int(graph.param_bytes.sum() * share))
        for each, share in zip(cluster.devices, (0.05, 0.5, 0.6), strict=True)
    )
    units = indivisible(graph, dataclasses.replace(cluster, devices=devices_))
    exact_s, multipliers = work_bound_s(units)
    assert multipliers.memory_s_per_byte.max() > 0
    monkeypatch.setattr(work_bound, "_MAX_COLUMNS", 10)
    merged_s, _ = work_bound_s(units)
    assert exact_s * (1 - 0.01) <= merged_s <= exact_s * (1 + 1e-6)


def test_fifty_thousand_ops_are_bounded() -> None:
    graph = seeded_graph(np.random.default_rng(0), num_ops=50_000)
    bounds = lower_bounds(graph, machine("fast", "fast", "slow", memory_bytes=2**50, latency_s=1e-5, bytes_per_s=1e10))
    assert 0 < bounds[0].value_s < np.inf
    assert {each.bound for each in bounds} == {"work", "pigeonhole", "fan-out", "longest path", "fork-join", "interval"}


def test_overflowing_times_are_refused() -> None:
    graph = program(2, [(0, 1)], seconds=[1.0, 1.0], tensor_bytes=2**50)
    with pytest.raises(InputError, match="longer than a double can count"):
        lower_bounds(graph, machine("fast", "fast", bytes_per_s=1e-300))


@pytest.mark.parametrize(("transfer_s", "expected"), [(100.0, 6.0), (0.5, 4.5)])
def test_branches_share_a_device_or_pay_for_being_apart(transfer_s: float, expected: float) -> None:
    """Fork, four branches, join, of a second each, on two devices.

    With dear transfers all six run one after the other. With transfers of half a second the branches have `T` seconds where the fork and the join are, and `T - 1` on the
    other device: four in all, so `T = 2.5`.
    """
    graph = program(6, [(0, n) for n in range(1, 5)] + [(n, 5) for n in range(1, 5)], seconds=[1.0] * 6, tensor_bytes=1)
    bounds = lower_bounds(graph, machine("fast", "fast", latency_s=transfer_s))
    assert bound_of(bounds, "longest path") == pytest.approx(3.0, rel=EXACT)
    assert bound_of(bounds, "fork-join") == pytest.approx(expected, rel=EXACT)


def test_blocks_one_after_the_other_add_up() -> None:
    """Twice fork, two branches, join, the second fork being the first join, with dear transfers: all seven ops run on one device."""
    edges = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)]
    graph = program(7, edges, seconds=[1.0, 2.0, 3.0, 1.0, 3.0, 2.0, 1.0], tensor_bytes=1)
    for kinds, expected in ((("fast", "fast"), 13.0), (("fast", "slow"), 13.0), (("slow", "slow"), 26.0)):
        bounds = lower_bounds(graph, machine(*kinds, latency_s=1000.0))
        assert bound_of(bounds, "fork-join") == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_bound_is_above_seeded_chains_of_forks_and_joins(objective: Objective) -> None:
    """Blocks of two to four branches, with colocation groups, unequal devices, shared channels and tight memory; every placement of a few ops."""
    sharper = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        edges, last, num_ops = [], 0, 1
        while num_ops < 6:
            branches = range(num_ops, num_ops + int(generator.integers(2, 5)))
            edges += [(last, branch) for branch in branches] + [(branch, branches.stop) for branch in branches]
            last, num_ops = branches.stop, branches.stop + 1
        graph = program(num_ops, edges, seconds=generator.choice([0.0, 1.0, 1.5, 2.0], num_ops).tolist(), param_bytes=1, tensor_bytes=1)
        groups = generator.choice([Graph.NO_GROUP, Graph.NO_GROUP, Graph.NO_GROUP, 0, 1], num_ops).astype(np.int32)
        graph = dataclasses.replace(graph, colocation_group=groups)
        kinds = [["fast", "slow"][int(slow)] for slow in generator.integers(0, 2, 2 if num_ops > 8 else int(generator.integers(2, 4)))]
        memory_bytes = int(generator.choice([num_ops, 2**20]))
        cluster = machine(
            *kinds,
            memory_bytes=memory_bytes,
            latency_s=float(generator.choice([0.0, 0.25, 1.0, 10.0])),
            channels=int(generator.integers(0, 2)),
        )
        least = least_s(graph, cluster, all_placements(graph, cluster), objective, generator)
        bounds = lower_bounds(graph, cluster, objective=objective)
        assert all(bound.value_s <= least for bound in bounds), (seed, bounds, least)
        sharper += bounds[0].bound == "fork-join"
    assert objective == "bottleneck" or sharper > 10
