"""TensorFlow programs measured in a worker: statuses, comparisons, profiles, refusals."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from branching_net import CORES, NAMES, core_cluster
from tensorflow_programs import as_worker_reads, bias_before_batch_norm, convolutions_training, drawing, tied_training

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_lowering import Lowered
from gdp.capture.tensorflow_program import TensorFlowProgram, function_program, graph_def_program, saved_model_program
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, Status
from gdp.placement import Origin, Placement
from gdp.runtime.simulator import Simulator
from gdp.runtime.tensorflow import TensorFlowRuntime
from gdp.runtime.tensorflow_worker import Bench
from gdp.runtime.timing import Protocol

pytestmark = [pytest.mark.tensorflow, pytest.mark.skipif(len(set(CORES)) < 2, reason="needs two cores")]

QUICK = Protocol(max_warm_up=1, max_pairs=6)


@pytest.fixture(scope="module")
def program() -> TensorFlowProgram:
    return convolutions_training()


@pytest.fixture(scope="module")
def runtime(program: TensorFlowProgram) -> Iterator[TensorFlowRuntime]:
    with TensorFlowRuntime(program.lowered, program.example_inputs, timeout_s=8.0, protocol=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return core_cluster(NAMES)


@pytest.fixture
def bench() -> Iterator[Bench]:
    before = os.sched_getaffinity(0)
    bench = Bench()
    yield bench
    bench.close()
    os.sched_setaffinity(0, before)


def placed(device: Any) -> Placement:
    return Placement(device=np.asarray(device, np.int32), origin=Origin(placer="test"))


def alternating(graph: Graph) -> Placement:
    """Ops on two devices in turn, colocation groups together."""
    group = graph.colocation_group
    return placed(np.where(group >= 0, group % 2, np.arange(graph.num_ops) // 2 % 2))


def one(graph: Graph) -> Placement:
    return placed(np.zeros(graph.num_ops))


def check_ok(measurement: Measurement) -> None:
    assert (measurement.status, measurement.detail, measurement.num_runs) == (Status.OK, "", 6)
    assert 0 < measurement.step_time_low_s <= measurement.step_time_s <= measurement.step_time_high_s < np.inf
    assert measurement.bottleneck_s == measurement.busy_s.max() > 0


def test_placements_are_measured_on_one_scale(program: TensorFlowProgram, runtime: TensorFlowRuntime, cluster: Cluster) -> None:
    graph = program.graph
    device = np.stack([one(graph).device, alternating(graph).device])
    measured, simulated = runtime.batch(graph, cluster, device), Simulator().batch(graph, cluster, device)
    for row in range(2):
        check_ok(measured[row])
    assert measured.busy_s[0, 1] == 0 and (measured.busy_s[1] > 0).all()
    # the simulator counts control edges as well, which carry no tensor
    assert measured.num_transfers[0] == 0 < measured.num_transfers[1] <= simulated.num_transfers[1]
    assert np.array_equal(measured.transferred_bytes, simulated.transferred_bytes)


def test_what_is_not_a_placement_is_invalid(program: TensorFlowProgram, runtime: TensorFlowRuntime, cluster: Cluster) -> None:
    assert runtime(program.graph, cluster, placed(np.full(program.graph.num_ops, 2))).status == Status.INVALID
    split = one(program.graph).device.copy()
    split[np.flatnonzero(program.graph.colocation_group == 0)[0]] = 1
    measurement = runtime(program.graph, cluster, placed(split))
    assert measurement.status == Status.INVALID and "colocation group" in measurement.detail


def test_comparisons_and_profile(program: TensorFlowProgram, runtime: TensorFlowRuntime, cluster: Cluster) -> None:
    graph = program.graph
    compared = runtime.compare(graph, cluster, one(graph), alternating(graph), num_pairs=8)
    assert compared is not None and compared.num_pairs in (8, 32)
    unplaced = runtime.compare_with_all_cores(graph, cluster, alternating(graph), num_pairs=8)
    assert unplaced is not None and unplaced.num_pairs == 8 and unplaced.incumbent_s > 0
    seconds = runtime.profile(graph, cluster, num_steps=3)["core"]
    # what oneDNN merges is known by its convolution's name
    assert (seconds > 0).sum() > 0.8 * graph.works.sum() and (seconds[~graph.works] == 0).all()
    silent = {graph.op_type[op] for op in np.flatnonzero(graph.works & (seconds == 0))}
    assert silent <= {"BiasAdd", "BiasAddGrad", "Pad"}, silent
    assert graph.with_measured_time({"core": seconds}).measured_time_s["core"] is not None


def test_random_ops_draw_the_same_numbers_wherever_they_are(bench: Bench, tmp_path: Path) -> None:
    captured = drawing()
    program = as_worker_reads(captured, tmp_path)
    seeds = [(node.attr["seed"].i, node.attr["seed2"].i) for node in program.nodes if node.op == "RandomUniform"]
    assert len(set(seeds)) == 2 and (0, 0) not in seeds
    request = {"command": "load", "program": str(tmp_path / "program.pb"), "values": str(tmp_path / "values.npz"), "seed": 0}
    assert bench.answer({**request, "ops": list(captured.graph.name)}) == {"ok": True}
    for device in (one(captured.graph), alternating(captured.graph)):
        measure = {"command": "measure", "devices": NAMES, "candidate": device.device.tolist(), "incumbent": None}
        assert len(bench.answer({**measure, "protocol": {"max_warm_up": 1, "max_pairs": 6}})["candidate_s"]) == 6


def loaded(bench: Bench, captured: TensorFlowProgram, folder: Path) -> dict[str, Any]:
    as_worker_reads(captured, folder)
    files = {"program": str(folder / "program.pb"), "values": str(folder / "values.npz")}
    return bench.answer({"command": "load", **files, "ops": list(captured.graph.name), "seed": 0})


def test_results_that_differ_from_the_reference_are_a_failure(bench: Bench, tmp_path: Path) -> None:
    captured = tied_training()
    assert loaded(bench, captured, tmp_path) == {"ok": True}
    name = next(iter(bench._reference.variables))
    for results in (bench._reference, bench._disturbed):
        results.variables[name][0] += 0.01
    measure = {"command": "measure", "devices": NAMES, "candidate": [0] * captured.graph.num_ops, "incumbent": None}
    failed = bench.answer({**measure, "protocol": {"max_warm_up": 1, "max_pairs": 6}})["failed"]
    assert failed.startswith(f"the results differ from those of the unplaced program: variable {name!r} by up to 0.01")


def test_updates_that_are_nothing_but_rounding_are_no_difference(bench: Bench, tmp_path: Path) -> None:
    captured = bias_before_batch_norm()
    graph = captured.graph
    assert loaded(bench, captured, tmp_path) == {"ok": True}
    apart = alternating(graph).device.copy()
    apart[[op for op in range(graph.num_ops) if graph.op_type[op] == "BiasAdd"]] = 1  # so that no bias is merged with its convolution
    apart[[op for op in range(graph.num_ops) if graph.op_type[op] == "Conv2D"]] = 0
    measure = {"command": "measure", "devices": NAMES, "candidate": apart.tolist(), "incumbent": None}
    assert "candidate_s" in bench.answer({**measure, "protocol": {"max_warm_up": 1, "max_pairs": 6}})
    # the oracle of this test: without what rounding alone does, the same run is told to differ
    bench._kept.clear()
    bench._disturbed = bench._reference
    assert "variable" in bench.answer({**measure, "protocol": {"max_warm_up": 1, "max_pairs": 6}})["failed"]


@pytest.mark.slow
def test_lack_of_memory_is_told_apart(bench: Bench, tmp_path: Path) -> None:
    tf = import_tensorflow()
    traced = tf.function(lambda x: tf.reduce_sum(tf.tile(x, [2**44])), autograph=False).get_concrete_function(tf.TensorSpec((1,)))
    assert list(loaded(bench, function_program(traced, [np.ones(1, np.float32)], source="huge"), tmp_path)) == ["out_of_memory"]


def test_the_driver_s_lack_of_gpu_memory_is_told_apart_from_other_errors_of_its(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tf = import_tensorflow()

    def statuses(message: str) -> list[str]:
        def load() -> dict[str, Any]:
            raise tf.errors.InternalError(None, None, message)

        monkeypatch.setattr(bench, "load", load)
        return list(bench.answer({"command": "load"}))

    assert statuses("failed to get device attribute 13 for device 0: CUDA_ERROR_OUT_OF_MEMORY: out of memory") == ["out_of_memory"]
    assert statuses("cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered") == ["failed"]


def test_a_saved_model_runs(bench: Bench, tmp_path: Path) -> None:
    tf = import_tensorflow()

    class Scaled(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable(tf.ones((3, 2)))
            self.constant = tf.constant(np.arange(192, dtype=np.float32).reshape(64, 3))

        @tf.function(input_signature=[tf.TensorSpec((None, 3), name="second"), tf.TensorSpec((3,), name="first")])
        def __call__(self, second: Any, first: Any) -> Any:
            return {"own": tf.matmul(self.constant, self.weight), "product": tf.matmul(second + first, self.weight)}

    module = Scaled()
    tf.saved_model.save(module, str(tmp_path / "model"), signatures={"scale": module.__call__})
    captured = saved_model_program(tmp_path / "model", signature="scale", batch=5)
    assert [value.shape for value in captured.example_inputs] in ([(5, 3), (3,)], [(3,), (5, 3)])
    assert loaded(bench, captured, tmp_path) == {"ok": True}
    assert sorted(output.shape for output in bench._reference.outputs) == [(5, 2), (64, 2)]
    product = next(output for output in bench._reference.outputs if output.shape == (5, 2))
    np.testing.assert_allclose(product, np.full((5, 2), 6.0))
    with pytest.raises(InputError, match="no signature 'serve'; it has scale"):
        saved_model_program(tmp_path / "model", signature="serve")
    with pytest.raises(InputError, match="no SavedModel"):
        saved_model_program(tmp_path)
    with pytest.raises(InputError, match="takes first, second, but there are examples for first"):
        saved_model_program(tmp_path / "model", signature="scale", example_inputs={"first": np.ones(3)})


def graph_def_with_a_variable() -> Any:
    tf = import_tensorflow()
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (4,), name="x")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(4,), name="v")
        tf.raw_ops.AssignAddVariableOp(resource=handle, value=x, name="add")
        tf.multiply(x, 2.0, name="y")
    return graph.as_graph_def()


def test_a_graph_def_runs_with_its_targets(bench: Bench, tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    captured = graph_def_program(
        graph_def_with_a_variable(), feeds={"x": x}, fetches=["y"], targets=["add"], variables={"v": np.ones(4, np.float32)}, source="a sum"
    )
    assert loaded(bench, captured, tmp_path) == {"ok": True}
    np.testing.assert_allclose(bench._reference.outputs[0], 2 * x)
    np.testing.assert_allclose(bench._reference.variables["v"], 1 + x)


def refusal(graph_def: Any, *, feeds: dict[str, Any], fetches: list[str], variables: dict[str, Any] | None = None) -> str:
    captured = graph_def_program(graph_def, feeds=feeds, fetches=fetches, variables=variables, source="refused")
    with pytest.raises(InputError) as caught:
        TensorFlowRuntime(captured.lowered, captured.example_inputs)
    return str(caught.value)


def test_programs_that_cannot_be_measured_are_refused() -> None:
    tf = import_tensorflow()
    x = np.ones(4, np.float32)
    given = graph_def_with_a_variable()
    assert "variable 'v' of the program has no value" in refusal(given, feeds={"x": x}, fetches=["y"])
    own = {"v": x}
    assert "has the shape [5], but the program wants [4]" in refusal(
        given, feeds={"x": np.ones(5, np.float32)}, fetches=["y"], variables=own
    )
    assert "the value of 'v' is no array (" in refusal(given, feeds={"x": x}, fetches=["y"], variables={"v": [[1.0], [1.0, 2.0]]})
    assert "is complex64, but the program wants float32" in refusal(given, feeds={"x": x + 1j}, fetches=["y"], variables=own)
    assert "placeholder 'x' of the program is none of its inputs" in refusal(given, feeds={}, fetches=["y"], variables=own)
    with tf.Graph().as_default() as graph:
        tf.timestamp(name="now")
    assert "'now' of the program is a Timestamp, which gives another result in every run" in refusal(
        graph.as_graph_def(), feeds={}, fetches=["now"]
    )
    with tf.Graph().as_default() as graph:
        y, _ = tf.raw_ops.Switch(data=tf.constant(1.0), pred=tf.constant(True), name="fork")
        tf.identity(y, name="y")
    assert "'fork' of the program is a Switch" in refusal(graph.as_graph_def(), feeds={}, fetches=["y"])
    with tf.Graph().as_default() as graph:
        tf.raw_ops.VariableV2(shape=(2,), dtype=tf.float32, name="old")
    assert "'old' is a variable of TensorFlow 1" in refusal(graph.as_graph_def(), feeds={}, fetches=["old"])
    with tf.Graph().as_default() as graph:
        for name in ("a", "b"):
            tf.raw_ops.ReadVariableOp(
                resource=tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=(), shared_name="s", name=name),
                dtype=tf.float32,
                name=f"read_{name}",
            )
    told = refusal(graph.as_graph_def(), feeds={}, fetches=["read_a", "read_b"], variables={"a": np.float32(1), "b": np.float32(1)})
    assert "'a' and 'b' are one variable under two names" in told


def test_values_belong_to_placeholders_and_variables_that_the_program_has() -> None:
    tf = import_tensorflow()
    x = np.ones((2, 2), np.float32)
    with tf.Graph().as_default() as graph:
        given = tf.compat.v1.placeholder(tf.float32, (2, 2), name="x")
        tf.identity(tf.matmul(given, given, name="m"), name="y")
    told = refusal(graph.as_graph_def(), feeds={"x": x}, fetches=["y"], variables={"ghost": x})
    assert told.startswith("the variable 'ghost' is no node of the program; give values for nodes of type VarHandleOp")
    told = refusal(graph.as_graph_def(), feeds={"x": x}, fetches=["y"], variables={"m": x})
    assert told.startswith("the variable 'm' is a MatMul in the program; give values for nodes of type VarHandleOp")
    told = refusal(graph.as_graph_def(), feeds={"x": x, "m": x}, fetches=["y"])
    assert told.startswith("the input 'm' is a MatMul in the program; give values for nodes of type Placeholder")
    missing = Lowered(graph_def=graph.as_graph_def(), inputs=("x:0",), outputs=("y:0",), targets=(), variables=())
    with pytest.raises(InputError, match="the input 'x:0' is no node of the program"):
        TensorFlowRuntime(missing, [x])


def test_user_mistakes_are_told(program: TensorFlowProgram, cluster: Cluster) -> None:
    with pytest.raises(InputError, match="1 example inputs, but the program has 2"):
        TensorFlowRuntime(program.lowered, program.example_inputs[:1])
    graph = program.graph
    with TensorFlowRuntime(program.lowered, program.example_inputs) as runtime:
        with pytest.raises(InputError, match="'gpu0' is not a device that TensorFlow programs run on"):
            runtime(graph, core_cluster(["gpu0"]), one(graph))
        with pytest.raises(InputError, match=r"TensorFlow sees \d GPUs"):
            runtime(graph, core_cluster(["cuda:7"]), one(graph))
        with pytest.raises(InputError, match="the same number of threads"):
            runtime(graph, core_cluster([NAMES[0], f"cpu:{CORES[0]}-{CORES[1]}"]), one(graph))
        other = tied_training().graph
        with pytest.raises(InputError, match="captured from this program"):
            runtime(other, cluster, one(other))
        assert runtime.worker_pid is None


def test_a_killed_or_hanging_worker_is_a_status_and_the_next_measurement_works(
    program: TensorFlowProgram, runtime: TensorFlowRuntime, cluster: Cluster
) -> None:
    graph = program.graph
    check_ok(runtime(graph, cluster, one(graph)))
    assert runtime.worker_pid is not None
    os.kill(runtime.worker_pid, signal.SIGKILL)
    failed = runtime(graph, cluster, one(graph))
    assert failed.status == Status.FAILED and "SIGKILL" in failed.detail
    check_ok(runtime(graph, cluster, one(graph)))
    stopped = runtime.worker_pid
    os.kill(stopped, signal.SIGSTOP)
    assert runtime(graph, cluster, one(graph)).status == Status.TIMED_OUT
    assert not os.path.exists(f"/proc/{stopped}")
