"""A TensorFlow program on its devices: one session of a placed GraphDef, with every setting that decides what a step time means.

- **Devices**: `node.device` of every op, `allow_soft_placement` off. A CPU device of the cluster is a logical device. The session's threads may use the cores of the devices that
  have ops. It has one thread for each of these devices to run ops in (`inter_op_parallelism_threads`), and each device has a pool of its own with one for each of its cores
  (`intra_op_parallelism_threads`; the pools are apart because the worker sets `TF_OVERRIDE_GLOBAL_THREADPOOL`). The thread that asks for a step keeps to the same cores meanwhile.
- **Order**: `tensorflow_order.device_order`, so a device runs one op at a time.
- **Optimisers**: grappler, which rewrites the graph across devices, is off for every placement. TensorFlow's folding of constants, its elimination of common
  subexpressions, and oneDNN work on the graph of a single device, after the cut; they stay as every user has them.
- **State**: variables live where their `VarHandleOp` is placed. The step's inputs are variables, too, on the devices of their placeholders: a step starts with them in place.
"""

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np

from gdp.runtime.core_sets import cores_in
from gdp.runtime.serving import NotMeasured
from gdp.runtime.tensorflow_order import Order, device_order

_HOST = "/job:localhost/replica:0/task:0"
_STREAMS = "/stream:all"
_ALL_CORES = os.sched_getaffinity(0)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A flat GraphDef as the worker runs it, without placeholders."""

    nodes: tuple[Any, ...]
    """the `NodeDef`s that a step runs, in the order of the program's ops."""
    versions: Any
    outputs: tuple[str, ...]
    """tensor names, `node:index`."""
    variables: Mapping[str, np.ndarray]
    """initial value by `VarHandleOp` node, those of `input_handles` among them."""
    input_handles: Mapping[str, str]
    """by the `ReadVariableOp` that stands for an input: the node that holds its value. No op of the program."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """What a step computed."""

    outputs: tuple[np.ndarray, ...]
    variables: Mapping[str, np.ndarray]
    """values after the step."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class OpTime:
    """When a node ran in a traced step."""

    node: str
    device: str
    begin_s: float
    end_s: float
    """seconds since the first node began."""


class Session:
    """A program on the devices `names`. `device` has a number for every node, or is None: then the program is unplaced, on the cores of all of `names` as one device, and runs as
    TensorFlow runs what nobody placed, grappler and all."""

    def __init__(self, program: Program, names: Sequence[str], device: Sequence[int] | None) -> None:
        import tensorflow as tf

        self._tf = tf
        self._program = program
        used = sorted(set(device)) if device is not None else list(range(len(names)))
        cores = {number: cores_in(names[number]) for number in used if names[number].startswith("cpu:")}
        graph_def = tf.compat.v1.GraphDef(versions=program.versions)
        if device is None:
            self._devices: dict[str, str] = {}
            _add_nodes(graph_def, program, {}, Order(waits={}, gates=()))
        else:
            number_on_host = {number: place for place, number in enumerate(cores)}
            string = {
                number: f"/device:CPU:{number_on_host[number]}"
                if number in cores
                else f"/device:GPU:{int(names[number].partition(':')[2])}"
                for number in used
            }
            self._devices = {node.name: string[number] for node, number in zip(program.nodes, device, strict=True)}
            merges = [number in cores for number in range(len(names))]
            _add_nodes(graph_def, program, self._devices, device_order(program.nodes, device, merges=merges))
        self.device_names = {f"{_HOST}{string[number]}": names[number] for number in used} if device is not None else {}
        self._build(graph_def)
        self._cores = {core for own in cores.values() for core in own} or _ALL_CORES
        with self._on_its_cores():  # the session's threads, made with it, inherit this
            self._session = self._open(cores, num_devices=len(used), unplaced=device is None)
            self._run = self._session.make_callable(self._sinks)

    def close(self) -> None:
        self._session.close()

    def reset(self, values: Mapping[str, np.ndarray] | None = None) -> None:
        """Gives all variables their initial values, or those of `values`."""
        values = self._program.variables if values is None else values
        with self._on_its_cores():
            self._session.run(self._assignments, {self._given[name]: value for name, value in values.items()})

    def step_s(self) -> float:
        """Runs a step and returns its seconds, until all devices are done."""
        with self._on_its_cores():
            begin = perf_counter()
            self._run()
            return perf_counter() - begin

    def results(self) -> Results:
        """Runs a step and returns what it computed. Raises `NotMeasured` when an op ran on another device than its own."""
        options = self._tf.compat.v1.RunOptions(output_partition_graphs=self._devices != {})
        metadata = self._tf.compat.v1.RunMetadata()
        asked = [[self._graph.get_tensor_by_name(name) for name in self._program.outputs], self._sinks]
        with self._on_its_cores():
            outputs, _ = self._session.run(asked, options=options, run_metadata=metadata)
        misplaced = wrong_devices(metadata.partition_graphs, self._devices)
        if misplaced:
            raise NotMeasured(misplaced)
        names = list(self._reads)
        with self._on_its_cores():
            values = self._session.run([self._reads[name] for name in names])
        return Results(outputs=tuple(map(np.asarray, outputs)), variables=dict(zip(names, map(np.asarray, values), strict=True)))

    def trace(self) -> tuple[float, list[OpTime]]:
        """Runs a step with TensorFlow's step statistics: its seconds, and when every op ran."""
        options = self._tf.compat.v1.RunOptions(trace_level=self._tf.compat.v1.RunOptions.FULL_TRACE)
        metadata = self._tf.compat.v1.RunMetadata()
        with self._on_its_cores():
            begin = perf_counter()
            self._session.run(self._sinks, options=options, run_metadata=metadata)
            step_s = perf_counter() - begin
        return step_s, op_times(metadata.step_stats)

    @contextmanager
    def _on_its_cores(self) -> Iterator[None]:
        """The calling thread runs where the session's own do inside, whichever session was opened or asked last."""
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, self._cores)
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def _build(self, graph_def: Any) -> None:
        tf = self._tf
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
            self._sinks = _sinks(self._graph)
            self._given, self._assignments, self._reads = {}, [], {}
            for name, value in self._program.variables.items():
                handle = self._graph.get_tensor_by_name(f"{name}:0")
                with tf.device(handle.device):
                    self._given[name] = tf.compat.v1.placeholder(value.dtype, value.shape)
                    self._assignments.append(tf.raw_ops.AssignVariableOp(resource=handle, value=self._given[name]))
                    if name not in self._program.input_handles.values():
                        self._reads[name] = tf.raw_ops.ReadVariableOp(resource=handle, dtype=value.dtype)

    def _open(self, cores: Mapping[int, tuple[int, ...]], *, num_devices: int, unplaced: bool) -> Any:
        tf = self._tf
        sizes = {len(own) for own in cores.values()} or {1}
        num_cores = sum(len(own) for own in cores.values())
        gpus = num_devices - len(cores)
        config = tf.compat.v1.ConfigProto(
            allow_soft_placement=unplaced,
            device_count={"CPU": 1 if unplaced else max(1, len(cores)), **({} if gpus else {"GPU": 0})},
            intra_op_parallelism_threads=num_cores if unplaced else max(sizes),
            inter_op_parallelism_threads=num_cores if unplaced else num_devices,
            use_per_session_threads=True,
        )
        config.gpu_options.allow_growth = True
        if not unplaced:
            config.graph_options.rewrite_options.disable_meta_optimizer = True
        return tf.compat.v1.Session(graph=self._graph, config=config)


def wrong_devices(partition_graphs: Sequence[Any], device: Mapping[str, str]) -> str:
    """A sentence about the ops that TensorFlow ran on another device than `device` says; empty when there are none. Ops that were folded away or merged are nowhere."""
    ran = [(node.name, node.device) for part in partition_graphs for node in part.node]
    wrong = [(name, where) for name, where in ran if name in device and where != _HOST + device[name]]
    if device and not any(name in device for name, _ in ran):
        return "TensorFlow does not say where any op of the program ran"
    return f"{len(wrong)} ops ran elsewhere, {wrong[0][0]!r} on {wrong[0][1]!r} instead of {device[wrong[0][0]]!r}" if wrong else ""


def op_times(step_stats: Any) -> list[OpTime]:
    """When every node ran: on a CPU its kernel, on a GPU what it had the device do, from its first piece of work to its last.

    A GPU's work is listed apart from what the host did to launch it, by `node:type`, in microseconds (`xplane_to_step_stats.cc`).
    """
    at_work = {_HOST + one.device.removesuffix(_STREAMS): one for one in step_stats.dev_stats if one.device.endswith(_STREAMS)}
    on_host = {one.device: one for one in step_stats.dev_stats if one.device.startswith(_HOST)}
    spans: dict[tuple[str, str], tuple[int, int]] = {}
    for device, one in {**on_host, **at_work}.items():
        for node in one.node_stats:
            start_ns = node.all_start_nanos or 1000 * node.all_start_micros
            begin_ns = start_ns + (node.op_start_rel_nanos or 1000 * node.op_start_rel_micros)
            end_ns = start_ns + (node.op_end_rel_nanos or 1000 * node.op_end_rel_micros)
            key = (node.node_name.partition(":")[0], device)
            first, last = spans.get(key, (begin_ns, begin_ns))
            spans[key] = (min(first, begin_ns), max(last, end_ns, begin_ns))
    origin = min((begin_ns for begin_ns, _ in spans.values()), default=0)
    return [
        OpTime(node=node, device=device, begin_s=(begin_ns - origin) * 1e-9, end_s=(end_ns - origin) * 1e-9)
        for (node, device), (begin_ns, end_ns) in spans.items()
    ]


def _add_nodes(graph_def: Any, program: Program, device: Mapping[str, str], order: Order) -> None:
    gate_of = {(gate.tensor, name): f"gdp_gate_{number}" for number, gate in enumerate(order.gates) for name in gate.consumers}
    for node in program.nodes:
        placed = graph_def.node.add()
        placed.CopyFrom(node)
        placed.device = device.get(node.name, "")
        inputs = [gate_of.get((one, node.name), one) for one in node.input]
        del placed.input[:]
        placed.input.extend([*inputs, *(f"^{one}" for one in order.waits.get(node.name, ()))])
        if node.name in program.input_handles:
            handle = graph_def.node.add(name=program.input_handles[node.name], op="VarHandleOp", device=placed.device)
            handle.attr["dtype"].CopyFrom(node.attr["dtype"])
            handle.attr["shared_name"].s = handle.name.encode()
            for extent in program.variables[handle.name].shape:
                handle.attr["shape"].shape.dim.add(size=extent)
    dtype = {node.name: node.attr["T"] for node in program.nodes}
    for number, gate in enumerate(order.gates):
        inputs = [gate.tensor, *(f"^{one}" for one in gate.waits)]
        added = graph_def.node.add(name=f"gdp_gate_{number}", op="Identity", device=device[gate.consumers[0]], input=inputs)
        added.attr["T"].CopyFrom(dtype[gate.consumers[0]])


def _sinks(graph: Any) -> list[Any]:
    """The operations that nothing waits for."""
    return [op for op in graph.get_operations() if not op._control_outputs and not any(tensor.consumers() for tensor in op.outputs)]
