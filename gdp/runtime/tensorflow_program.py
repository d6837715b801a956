"""A flat TensorFlow program as files: the GraphDef, and the values of its inputs and variables. Written by the runtime, read by its worker; no pickle.

What has no fixed result is given one, or refused: random ops without a seed get one each, so that every session draws the same numbers.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from gdp.errors import InputError
from gdp.plain_array import plain_array
from gdp.runtime.tensorflow_session import Program

_NO_TWO_RUNS_EQUAL = frozenset(
    {"NonDeterministicInts", "Timestamp", "PyFunc", "PyFuncStateless", "EagerPyFunc", "IteratorGetNext", "IteratorV2"}
)
_BRANCHES = frozenset({"Switch", "Merge", "RefSwitch", "RefMerge"})
_REFERENCES = frozenset({"Variable", "VariableV2"})
_PLACEHOLDERS = ("Placeholder", "PlaceholderWithDefault", "PlaceholderV2")
_VARIABLES = ("VarHandleOp",)
_HANDLES = (20, 21)
"""`DT_RESOURCE` and `DT_VARIANT`."""


@runtime_checkable
class FlatProgram(Protocol):
    """What `gdp.capture.tensorflow_lowering.lower` gives."""

    @property
    def graph_def(self) -> Any:
        """a GraphDef without function calls."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """names of `Placeholder` nodes."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """tensor names, `node:index`."""

    @property
    def variables(self) -> tuple[tuple[str, Any], ...]:
        """each `VarHandleOp` node with its variable or array."""

    @property
    def captured(self) -> tuple[tuple[str, Any], ...]:
        """each `Placeholder` node that is no argument with its value."""


def write_program(program: FlatProgram, example_inputs: Sequence[Any], graph_path: Path, values_path: Path) -> frozenset[str]:
    """Writes the GraphDef and the values; returns the names of the nodes. Raises `InputError` when the program cannot be measured."""
    nodes = {node.name: node for node in program.graph_def.node}
    if len(example_inputs) != len(program.inputs):
        raise InputError(
            f"there are {len(example_inputs)} example inputs, but the program has {len(program.inputs)}; give one for each of {', '.join(program.inputs)}"
        )
    _refuse_values_of_other_nodes(program, nodes)
    _refuse_what_cannot_be_measured(program, nodes)
    values = {
        name: _array(name, value, nodes[name])
        for name, value in (*zip(program.inputs, example_inputs, strict=True), *program.captured, *program.variables)
    }
    unfed = [
        name
        for name, node in nodes.items()
        if node.op.startswith("Placeholder") and node.op != "PlaceholderWithDefault" and name not in values
    ]
    if unfed:
        raise InputError(f"the placeholder {unfed[0]!r} of the program is none of its inputs; name it among them and give it a value")
    graph_path.write_bytes(program.graph_def.SerializeToString())
    shapes = json.dumps({"outputs": list(program.outputs), "shape": {name: list(value.shape) for name, value in values.items()}})
    octets = {f"v{place}": np.frombuffer(value.tobytes(), np.uint8) for place, value in enumerate(values.values())}
    with open(values_path, "wb") as file:
        np.savez(file, allow_pickle=False, shapes=np.frombuffer(shapes.encode(), np.uint8), **octets)
    return frozenset(nodes)


def read_program(graph_path: Path, values_path: Path, ops: Sequence[str]) -> Program:
    """The nodes that are `ops`, in that order; inputs read variables that hold them, and random ops have seeds."""
    import tensorflow as tf

    graph_def = tf.compat.v1.GraphDef.FromString(graph_path.read_bytes())
    with np.load(values_path, allow_pickle=False) as file:
        document = json.loads(file["shapes"].tobytes())
        octets = [file[f"v{place}"] for place in range(len(document["shape"]))]
    nodes = {node.name: node for node in graph_def.node}
    variables: dict[str, np.ndarray] = {}
    input_handles: dict[str, str] = {}
    for (name, shape), raw in zip(document["shape"].items(), octets, strict=True):
        dtype = tf.as_dtype(nodes[name].attr["dtype"].type).as_numpy_dtype
        if nodes[name].op != "VarHandleOp":
            input_handles[name] = f"gdp_value_of/{name}"
            _read_variable(nodes[name], input_handles[name])
        variables[input_handles.get(name, name)] = np.frombuffer(raw.tobytes(), dtype).reshape(shape)
    chosen = [nodes[name] for name in ops]
    present = set(ops)
    for place, node in enumerate(chosen):
        node.attr.pop("_class", None)
        node.attr.pop("_output_shapes", None)
        _give_seed(node, place)
    return Program(
        nodes=tuple(chosen),
        versions=graph_def.versions,
        outputs=tuple(document["outputs"]),
        variables={name: value for name, value in variables.items() if name in present or name in input_handles.values()},
        input_handles={name: handle for name, handle in input_handles.items() if name in present},
    )


def _refuse_values_of_other_nodes(program: FlatProgram, nodes: Mapping[str, Any]) -> None:
    inputs = ((name, "input", _PLACEHOLDERS) for name in (*program.inputs, *(name for name, _ in program.captured)))
    variables = ((name, "variable", _VARIABLES) for name, _ in program.variables)
    for name, what, types in (*inputs, *variables):
        if name not in nodes:
            raise InputError(f"the {what} {name!r} is no node of the program; give values for nodes of type {types[0]} that it has")
        if nodes[name].op not in types:
            raise InputError(f"the {what} {name!r} is a {nodes[name].op} in the program; give values for nodes of type {types[0]} alone")


def _refuse_what_cannot_be_measured(program: FlatProgram, nodes: Mapping[str, Any]) -> None:
    owned = {name for name, _ in program.variables}
    storage: dict[bytes, str] = {}
    for name, node in nodes.items():
        if node.op in _NO_TWO_RUNS_EQUAL:
            raise InputError(
                f"node {name!r} of the program is a {node.op}, which gives another result in every run, so a placement cannot be checked; give its result as an input"
            )
        if node.op in _BRANCHES:
            raise InputError(
                f"node {name!r} of the program is a {node.op}: what runs after it depends on data, so it cannot be run in a fixed order; make the condition a Python value"
            )
        if node.op in _REFERENCES:
            raise InputError(
                f"node {name!r} is a variable of TensorFlow 1 ({node.op}); build the program with tf.compat.v1.enable_resource_variables()"
            )
        if node.op == "Placeholder" and node.attr["dtype"].type in _HANDLES:
            raise InputError(
                f"the program uses the resource {name!r}, which is no variable and cannot be handed to a measuring process; leave tables and iterators outside"
            )
        if node.op != "VarHandleOp":
            continue
        if name not in owned:
            raise InputError(f"variable {name!r} of the program has no value; give one")
        other = storage.setdefault(node.attr["shared_name"].s or name.encode(), name)
        if other != name:
            raise InputError(f"nodes {other!r} and {name!r} are one variable under two names; use one VarHandleOp")


def _array(name: str, value: Any, node: Any) -> np.ndarray:
    import tensorflow as tf

    dtype = np.dtype(tf.as_dtype(node.attr["dtype"].type).as_numpy_dtype)
    given = plain_array(value, f"the value of {name!r}")
    if dtype.kind in "OSU" or given.dtype.kind in "OSU":
        raise InputError(f"{name!r} holds text or objects, which cannot be handed to a measuring process; give numbers")
    if given.dtype != dtype and not np.can_cast(given.dtype, dtype, "same_kind"):
        raise InputError(f"the value of {name!r} is {given.dtype}, but the program wants {dtype}; give such a one")
    shape = node.attr["shape"].shape
    extents = [axis.size for axis in shape.dim]
    known = node.attr["shape"].HasField("shape") and not shape.unknown_rank
    if known and (len(extents) != given.ndim or any(one not in (-1, own) for one, own in zip(extents, given.shape, strict=True))):
        raise InputError(f"the value of {name!r} has the shape {list(given.shape)}, but the program wants {extents}; give such a one")
    return given.astype(dtype)


def _read_variable(placeholder: Any, handle: str) -> None:
    dtype = placeholder.attr["dtype"].type
    placeholder.op = "ReadVariableOp"
    placeholder.ClearField("attr")
    placeholder.ClearField("input")
    placeholder.attr["dtype"].type = dtype
    placeholder.input.append(handle)


def _give_seed(node: Any, number: int) -> None:
    """Fixed seeds for an op that would draw others in every session."""
    if "seed" in node.attr and "seed2" in node.attr and not node.attr["seed"].i and not node.attr["seed2"].i:
        node.attr["seed"].i, node.attr["seed2"].i = 1, number + 1
