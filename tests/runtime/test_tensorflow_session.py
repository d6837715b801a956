"""Placed TensorFlow programs compute what TensorFlow computes, where they are told to, one op at a time on each device."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from branching_net import CORES, NAMES
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_programs import FAMILIES, as_worker_reads, convolutions_training, eager_step, tied_training

from gdp.graph import Graph
from gdp.runtime.arrays import difference
from gdp.runtime.tensorflow_order import SOURCES
from gdp.runtime.tensorflow_session import OpTime, Session, op_times, wrong_devices

pytestmark = pytest.mark.tensorflow

NUM_PLACEMENTS = 50


@pytest.fixture(autouse=True)
def own_cores() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def random_placement(graph: Graph, generator: np.random.Generator) -> list[int]:
    """Of all kinds: long runs on a device to ops in turn; colocation groups stay together."""
    lasting = generator.uniform(0, 1) ** 2
    device = np.zeros(graph.num_ops, np.int64)
    for op in range(graph.num_ops):
        device[op] = generator.integers(0, 2) if op == 0 or generator.uniform() < lasting else device[op - 1]
    group = graph.colocation_group
    of_group = generator.integers(0, 2, group.max() + 2)
    return np.where(group >= 0, of_group[np.maximum(group, 0)], device).tolist()


def overlaps(ran: list[OpTime], own: set[str]) -> list[tuple[str, str]]:
    """Pairs of the program's ops that one device ran at the same time."""
    found = []
    for device in {one.device for one in ran}:
        there = sorted((one for one in ran if one.device == device and one.node in own), key=lambda one: (one.begin_s, one.end_s))
        found += [(a.node, b.node) for a, b in zip(there, there[1:], strict=False) if b.begin_s < a.end_s]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_any_placement_computes_what_the_program_does(family: Any, tmp_path: Path) -> None:
    captured = family()
    outputs, variables = eager_step(captured)
    program = as_worker_reads(captured, tmp_path)
    own = {node.name for node in program.nodes if node.op not in SOURCES}
    seen: list[list[int]] = []

    @given(seed=st.integers(0, 2**32 - 1))
    @settings(max_examples=NUM_PLACEMENTS, deadline=None)
    def check(seed: int) -> None:
        device = random_placement(captured.graph, np.random.default_rng(seed))
        seen.append(device)
        session = Session(program, NAMES, device)
        try:
            session.reset()
            results = session.results()  # raises when an op ran elsewhere
            ran = session.trace()[1] if len(seen) % 4 == 1 else []
        finally:
            session.close()
        for output, expected in zip(results.outputs, outputs, strict=True):
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)
        assert results.variables.keys() == variables.keys()
        for name, expected in variables.items():
            np.testing.assert_allclose(results.variables[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
        if ran:
            assert overlaps(ran, own) == []
            number = {node.name: number for node, number in zip(program.nodes, device, strict=True)}
            assert all(session.device_names[one.device] == NAMES[number[one.node]] for one in ran if one.node in own)
            assert len([one for one in ran if one.node in own]) > 0.3 * len(own)

    check()
    assert sum(len(set(device)) == 2 for device in seen) > len(seen) / 2


def test_an_unplaced_program_computes_the_same(tmp_path: Path) -> None:
    captured = convolutions_training()
    outputs, variables = eager_step(captured)
    session = Session(as_worker_reads(captured, tmp_path), [NAMES[0]], None)
    for _ in range(2):  # every step from the same variables
        session.reset()
        results = session.results()
        np.testing.assert_allclose(results.outputs[0], outputs[0], rtol=1e-4)
        for name, expected in variables.items():
            np.testing.assert_allclose(results.variables[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
    moved = session.results()
    session.close()
    assert abs(float(moved.outputs[0]) - float(outputs[0])) > 1e-3


def test_every_session_is_asked_from_its_own_cores_whichever_was_opened_last(tmp_path: Path) -> None:
    captured = tied_training()
    program, before = as_worker_reads(captured, tmp_path), os.sched_getaffinity(0)
    asked: list[set[int]] = []
    sessions = [Session(program, NAMES, [device] * captured.graph.num_ops) for device in (0, 1)]
    assert os.sched_getaffinity(0) == before
    for session in sessions:

        def watched(run: Any = session._run) -> None:
            asked.append(os.sched_getaffinity(0))
            run()

        session.reset()
        session._run = watched
    for number in (0, 1, 1, 0):
        sessions[number].step_s()
        sessions[number].trace()
        assert os.sched_getaffinity(0) == before
    assert asked == [{CORES[number]} for number in (0, 1, 1, 0)]
    for session in sessions:
        session.close()


def test_inputs_are_on_their_devices_before_a_step(tmp_path: Path) -> None:
    captured = tied_training()
    program = as_worker_reads(captured, tmp_path)
    assert {node.op for node in program.nodes if node.name in program.input_handles} == {"ReadVariableOp"}
    assert not any(node.op == "Placeholder" for node in program.nodes)
    assert len(program.input_handles) == 2  # the argument, and the constant that the function closes over


def part(device: str, *names: str) -> Any:
    return SimpleNamespace(node=[SimpleNamespace(name=name, device=f"/job:localhost/replica:0/task:0{device}") for name in names])


def test_an_op_elsewhere_is_told() -> None:
    device = {"a": "/device:CPU:0", "b": "/device:CPU:1", "folded": "/device:CPU:1"}
    assert wrong_devices([part("/device:CPU:0", "a", "a/_send"), part("/device:CPU:1", "b")], device) == ""
    told = wrong_devices([part("/device:CPU:0", "a", "b")], device)
    assert told.startswith("1 ops ran elsewhere, 'b' on ") and told.endswith("instead of '/device:CPU:1'")
    assert "does not say" in wrong_devices([], device)


def stats(device: str, *nodes: dict[str, Any]) -> Any:
    step_stats_pb2 = pytest.importorskip("tensorflow.core.framework.step_stats_pb2")
    return step_stats_pb2.DeviceStepStats(device=device, node_stats=[step_stats_pb2.NodeExecStats(**node) for node in nodes])


def kernel(start_us: int, took_us: int) -> dict[str, Any]:
    return {"node_name": "b:MatMul", "all_start_micros": 10**15 + start_us, "op_start_rel_micros": 0, "op_end_rel_micros": took_us}


def test_step_statistics_of_cpu_and_gpu() -> None:
    """A GPU's kernels count from the first to the last, not what the host took to launch them, nor copies."""
    host, start = "/job:localhost/replica:0/task:0/device:", {"all_start_micros": 10**15, "all_start_nanos": 10**18}
    step = SimpleNamespace(
        dev_stats=[
            stats(f"{host}CPU:0", {"node_name": "a", **start, "op_start_rel_nanos": 500, "op_end_rel_nanos": 5000}),
            stats(f"{host}GPU:0", {"node_name": "b", **start, "op_start_rel_nanos": 500, "op_end_rel_nanos": 1000}),
            stats("/device:GPU:0/stream:all", kernel(6, 1), kernel(8, 2)),
            stats("/device:GPU:0/stream:7", kernel(6, 1), kernel(8, 2)),
            stats("/device:GPU:0/memcpy", kernel(0, 1000)),
            stats("/device:GPU:0/sync", kernel(0, 1000)),
        ]
    )
    spans = {(one.node, one.device): (one.begin_s, one.end_s) for one in op_times(step)}
    assert spans.keys() == {("a", f"{host}CPU:0"), ("b", f"{host}GPU:0")}
    assert spans["a", f"{host}CPU:0"] == pytest.approx((0, 4.5e-6))
    assert spans["b", f"{host}GPU:0"] == pytest.approx((5.5e-6, 9.5e-6))


def test_differences_of_arrays() -> None:
    ones = np.ones(4, np.float32)
    assert difference("it", ones * np.float32(1 + 1e-5), ones, ones) == ""
    assert "by up to 0.5" in difference("it", ones * np.float32(1.5), ones, ones)
    assert difference("it", ones * np.float32(1.5), ones, ones * np.float32(1.1)) == ""  # where rounding alone moves it by 0.1
    assert "by up to 1" in difference("it", np.array([1, 3]), np.array([1, 2]), np.array([1, 2]))
    assert "float64" in difference("it", ones.astype(np.float64), ones, ones)
    assert "finite" in difference("it", np.array([1.0, np.nan]), np.array([1.0, 2.0]), np.array([1.0, 2.0]))
    assert difference("it", np.array([1.0, np.nan]), np.array([1.0, np.nan]), np.array([1.0, np.nan])) == ""
    infinite = np.array([1.0, -np.inf])
    assert all("infinite" in difference("it", np.array([1.0, other]), infinite, infinite) for other in (np.nan, np.inf))


def test_an_update_that_did_not_happen_is_seen_however_small_it_is() -> None:
    start, step = np.ones(4, np.float32), np.float32(1e-4)
    assert difference("it", start + step, start + step * np.float32(1.0001), start + step, start) == ""
    assert "it by up to 0.0001" in difference("it", start, start + step, start + step, start)
