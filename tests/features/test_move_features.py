"""What is seen of a move, against closed forms and against what the simulator counts once the move is made."""

import dataclasses

import numpy as np
import pytest

from gdp.cluster import Cluster, preset
from gdp.features.move_features import MOVE_FEATURES, move_features
from gdp.features.move_tally import MOVE_TALLY
from gdp.graph import Graph
from gdp.runtime.roofline import op_time_s
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import cells, layered, unrolled_rnn
from tests.features.test_step_slack import apart, seconds_flow, seen
from tests.learn.problems import two_chains, two_devices
from tests.strategies import placement

AT = {name: number for number, name in enumerate(MOVE_FEATURES)}


def features_of(graph: Graph, cluster: Cluster, device: np.ndarray, *changed: np.ndarray) -> np.ndarray:
    step, _ = seen(graph, cluster, device)
    return move_features(seconds_flow(graph, cluster), step, np.stack(changed).astype(np.int32), np.zeros(len(changed), np.bool_))


def share(row: np.ndarray, name: str) -> float:
    """The share of the step that a feature stands for."""
    value = float(row[AT[name]])
    return float(np.sign(value) * np.expm1(abs(value) / 0.2) / 1e5)


def test_bringing_a_consumer_to_its_producer_in_closed_form() -> None:
    """Two chains of 1 s ops, 1 s a transfer: a0 on d0, its consumer a1 on d1 with both of the other chain. d1: b0 0-1, b1 1-2, a1 2-3: the step takes 3 s."""
    graph, cluster = two_chains(), two_devices()
    before = np.array([0, 1, 1, 1], np.int32)
    beside, away, nothing = features_of(graph, cluster, before, np.array([0, 0, 1, 1]), np.array([1, 1, 1, 1]), before)
    for name, seconds in {
        "work_before": 1,
        "work_after": 1,
        "critical_work_before": 1,
        "spared": 1,
        "made": 0,
        "own_lateness": -1,  # ends at 2, may end at 3
        "device_relief": 0,
    }.items():
        assert share(beside, name) == pytest.approx(seconds / 3, abs=1e-4), name
    assert np.expm1(beside[AT["log_spared"]] * 3) == pytest.approx(1, abs=1e-4)
    assert beside[AT["first_start"]] == pytest.approx(2 / 3) and beside[AT["last_end"]] == pytest.approx(1)
    assert beside[AT["first_load_shift"]] == pytest.approx((1 - 3) / 3)
    assert share(away, "push") == pytest.approx(1 / 3, abs=1e-4), (
        "a0 starts with b0's device and pushes b0, which has no slack, back by a second"
    )
    assert share(away, "own_lateness") == pytest.approx(0, abs=1e-4), "a0 was needed at 2 less the transfer of a second"
    assert not nothing[: len(MOVE_TALLY)].any()
    np.testing.assert_allclose(nothing[[AT["busiest"], AT["mean_busy"]]], [1, 2 / 3], rtol=1e-6)


@pytest.mark.parametrize("family", [layered, cells, unrolled_rnn])
@pytest.mark.parametrize("cluster", ["p100x4", "unequal"])
def test_transfers_made_and_spared_by_one_op_are_those_that_the_simulator_counts(family, cluster: str) -> None:
    graph, on = apart(family(np.random.default_rng(0), num_ops=150, training=True)), preset(cluster)
    generator = np.random.default_rng(1)
    device = generator.integers(on.num_devices, size=graph.num_ops).astype(np.int32)
    changed = np.repeat(device[None], 60, axis=0)
    ops = generator.integers(graph.num_ops, size=60)
    changed[np.arange(60), ops] = (device[ops] + generator.integers(1, on.num_devices, size=60)) % on.num_devices
    rows = features_of(graph, on, device, *changed)
    simulator = Simulator()
    before = simulator(graph, on, placement(device)).num_transfers
    after = simulator.batch(graph, on, changed).num_transfers
    made, spared = (np.expm1(rows[:, AT[name]] * 3) for name in ("log_made", "log_spared"))
    np.testing.assert_allclose(before + made - spared, after, atol=0.01)
    assert made.max() >= 1 and spared.max() >= 1
    seconds = op_time_s(graph, on)
    step, _ = seen(graph, on, device)
    works = seconds[ops, changed[np.arange(60), ops]]
    np.testing.assert_allclose(np.expm1(rows[:, AT["work_after"]] / 0.2) / 1e5 * step.step_s, works, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("family", [layered, cells, unrolled_rnn])
@pytest.mark.parametrize("cluster", ["p100x4", "unequal"])
def test_transfers_made_and_spared_by_many_ops_are_those_that_the_simulator_counts(family, cluster: str) -> None:
    """Of blocks, of ops from everywhere, and of ops that change places: a tensor that several of them need is sent once."""
    graph, on = apart(family(np.random.default_rng(3), num_ops=150, training=True)), preset(cluster)
    generator = np.random.default_rng(4)
    device = generator.integers(on.num_devices, size=graph.num_ops).astype(np.int32)
    changed = np.repeat(device[None], 90, axis=0)
    for row in range(90):
        ops = generator.choice(graph.num_ops, size=generator.integers(2, 40), replace=False)
        if row % 3 == 0:
            changed[row, ops] = generator.integers(on.num_devices)
        elif row % 3 == 1:
            changed[row, ops] = generator.permutation(device[ops])
        else:
            first = generator.integers(graph.num_ops - 40)
            changed[row, first : first + 40] = generator.integers(on.num_devices)
    rows = features_of(graph, on, device, *changed)
    simulator = Simulator()
    made, spared = (np.expm1(rows[:, AT[name]] * 3) for name in ("log_made", "log_spared"))
    more = simulator.batch(graph, on, changed).num_transfers - simulator(graph, on, placement(device)).num_transfers
    np.testing.assert_allclose(made - spared, more, atol=0.05)
    assert made.max() > 5 and spared.max() > 5


def fan_out(num_consumers: int) -> Graph:
    """One op whose only tensor all others need."""
    one = two_chains()
    count = num_consumers + 1
    return dataclasses.replace(
        one,
        op_type=("matmul",) * count,
        name=tuple(f"o{number}" for number in range(count)),
        module_path=("",) * count,
        flops=np.full(count, 1e9),
        accessed_bytes=np.zeros(count, np.int64),
        param_bytes=np.zeros(count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        phase=np.zeros(count, np.int8),
        colocation_group=np.full(count, -1, np.int32),
        tensor_producer=np.zeros(1, np.int32),
        tensor_bytes=one.tensor_bytes[:1],
        tensor_shape=one.tensor_shape[:1],
        tensor_dtype=one.tensor_dtype[:1],
        edge_tensor=np.zeros(num_consumers, np.int32),
        edge_consumer=np.arange(1, count, dtype=np.int32),
    )


def test_a_tensor_that_many_ops_need_is_looked_at_once() -> None:
    """Three consumers that move together to where nobody had their input: one transfer fewer, one more."""
    graph, on = fan_out(3), two_devices()
    before = np.array([0, 1, 1, 1], np.int32)
    (row,) = features_of(graph, on, before, np.array([0, 0, 0, 0]))
    assert np.expm1(row[AT["log_spared"]] * 3) == pytest.approx(1, abs=1e-4) and row[AT["log_made"]] == 0
    (row,) = features_of(graph, on, np.zeros(4, np.int32), np.array([0, 1, 1, 1]))
    assert np.expm1(row[AT["log_made"]] * 3) == pytest.approx(1, abs=1e-4) and row[AT["log_spared"]] == 0


def test_moves_that_are_seen_to_be_late_do_make_steps_longer() -> None:
    """A law of the estimate, not of single moves: over many, what is too late beyond all slack goes with longer steps."""
    graph, on = apart(layered(np.random.default_rng(5), num_ops=400, training=True)), preset("p100x4")
    generator = np.random.default_rng(2)
    device = generator.integers(4, size=graph.num_ops).astype(np.int32)
    changed = np.repeat(device[None], 400, axis=0)
    ops = generator.integers(graph.num_ops, size=400)
    changed[np.arange(400), ops] = (device[ops] + 1) % 4
    worst = features_of(graph, on, device, *changed)[:, AT["worst"]]
    step, _ = seen(graph, on, device)
    longer = Simulator().batch(graph, on, changed).step_time_s > step.step_s * (1 + 1e-9)
    late, fine = longer[worst > np.quantile(worst, 0.8)].mean(), longer[worst < 0].mean()
    assert late > fine + 0.2, (late, fine)
