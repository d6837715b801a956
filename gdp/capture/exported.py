"""The graph of a functional `torch.export` program, by the conventions that `gdp.capture.torch` states."""

import dataclasses
from collections.abc import Iterable, Mapping
from operator import getitem
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, TensorArgument
from torch.fx import Node

from gdp.capture.aten_flops import numel
from gdp.capture.costs import NO_WORK, OpCost, op_cost, stored_bytes
from gdp.capture.disjoint_sets import DisjointSets
from gdp.errors import InputError
from gdp.graph import Graph, Phase

INPUT = "input"
"""The op type of a tensor that the user hands in."""

COPIED_STATE_BYTES = 2**20
"""A buffer or constant of at most this size that is only read is kept by every op that reads it, and ties none of them together."""

_SYMBOL_DTYPE = {torch.SymInt: "int64", torch.SymFloat: "float64", torch.SymBool: "bool", int: "int64", float: "float64", bool: "bool"}
_SYMBOL_BYTES = {"int64": 8, "float64": 8, "bool": 1}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _State:
    """What is known of one tensor that the program keeps between steps."""

    storage: tuple[object, ...]
    """equal for two names of the same tensor."""
    size_bytes: int
    copied: bool
    """whether every consumer keeps a copy of its own."""


def graph_of(program: ExportedProgram, *, source: str, phase: Mapping[str, Phase] = MappingProxyType({})) -> Graph:
    """The ops, tensors and edges of `program`. Raises `InputError` when it computes nothing or holds control flow.

    `phase` is by node name; nodes that it leaves out are of the forward pass.
    """
    states = _states(program)
    nodes = [node for node in program.graph.nodes if _is_op(node, program)]
    if not any(node.op == "call_function" for node in nodes):
        raise InputError(f"{source} computes nothing: its forward calls no operation on tensors; capture a module that computes something")
    index = {node: number for number, node in enumerate(nodes)}

    tensors: list[tuple[int, Any]] = []
    tensor_of: dict[tuple[Node, tuple[Any, ...]], int] = {}
    edges: list[tuple[int, int]] = []
    costs: list[OpCost] = []
    for op, node in enumerate(nodes):
        if node.op == "call_function":
            _refuse_control_flow(node, source)
            costs.append(_cost(node))
            picked = dict.fromkeys(_picked(argument) for argument in node.all_input_nodes)
            read = dict.fromkeys(tensor for one in picked for tensor in _tensors_at(one, tensor_of))
            edges.extend((tensor, op) for tensor in read)
        else:
            costs.append(NO_WORK)
        for path, value in _outputs(node):
            tensor_of[node, path] = len(tensors)
            tensors.append((op, value))

    param_bytes, group = _resident(nodes, index, states, program)
    return Graph(
        op_type=tuple(_op_type(node) for node in nodes),
        name=tuple(node.name for node in nodes),
        module_path=tuple(_module_path(node) for node in nodes),
        flops=np.array([cost.flops for cost in costs], np.float64),
        accessed_bytes=np.array([cost.accessed_bytes for cost in costs], np.int64),
        param_bytes=param_bytes,
        temp_bytes=np.zeros(len(nodes), np.int64),
        phase=np.array([phase.get(node.name, Phase.FORWARD) for node in nodes], np.int8),
        colocation_group=group,
        tensor_producer=np.array([op for op, _ in tensors], np.int32),
        tensor_bytes=np.array([_bytes(value) for _, value in tensors], np.int64),
        tensor_shape=tuple(_shape(value) for _, value in tensors),
        tensor_dtype=tuple(_dtype(value) for _, value in tensors),
        edge_tensor=np.array([tensor for tensor, _ in edges], np.int32),
        edge_consumer=np.array([op for _, op in edges], np.int32),
        source=source,
    )


def _is_op(node: Node, program: ExportedProgram) -> bool:
    if node.op == "placeholder":
        return node.name in program.graph_signature.user_inputs and isinstance(node.meta.get("val"), torch.Tensor)
    return node.op == "call_function" and node.target is not getitem


def _states(program: ExportedProgram) -> Mapping[str, _State]:
    """By placeholder name."""
    written = set(program.graph_signature.buffers_to_mutate.values())
    placeholder = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    found = {}
    for given in program.graph_signature.input_specs:
        if given.kind == InputKind.USER_INPUT or isinstance(given.arg, ConstantArgument) or not isinstance(given.arg, TensorArgument):
            continue
        name = given.arg.name
        assert given.target is not None
        size_bytes = stored_bytes(placeholder[name].meta["val"])
        tensor = program.state_dict.get(given.target, program.constants.get(given.target))
        storage: tuple[object, ...] = (name,)
        if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and given.target not in written:
            storage = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        copied = given.kind != InputKind.PARAMETER and given.target not in written and size_bytes <= COPIED_STATE_BYTES
        found[name] = _State(storage=storage, size_bytes=size_bytes, copied=copied)
    return found


def _resident(
    nodes: list[Node], index: Mapping[Node, int], states: Mapping[str, _State], program: ExportedProgram
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of state that each op keeps, and the colocation groups that follow."""
    param_bytes = np.zeros(len(nodes), np.int64)
    together = DisjointSets(len(nodes))
    first_consumer: dict[tuple[object, ...], int] = {}
    state_views: set[Node] = set()
    for op, node in enumerate(nodes):
        if node.op != "call_function":
            continue
        sources = [_picked(argument)[0] for argument in node.all_input_nodes]
        for state in {states[one.name].storage: states[one.name] for one in sources if one.name in states}.values():
            if state.copied:
                param_bytes[op] += state.size_bytes
            elif state.storage in first_consumer:
                together.join(first_consumer[state.storage], op)
            else:
                first_consumer[state.storage] = op
                param_bytes[op] += state.size_bytes
        for one in sources:
            if one in state_views:
                together.join(index[one], op)
        kept = [one in state_views or (one.name in states and not states[one.name].copied) for one in sources]
        if kept and all(kept) and _cost(node) == NO_WORK:
            state_views.add(node)
    _keep_next_values_with_present(index, states, first_consumer, together, program)
    return param_bytes, _colocation_group(together)


def _keep_next_values_with_present(
    index: Mapping[Node, int],
    states: Mapping[str, _State],
    first_consumer: Mapping[tuple[object, ...], int],
    together: DisjointSets,
    program: ExportedProgram,
) -> None:
    by_name = {node.name: node for node in program.graph.nodes}
    placeholder = {given.target: given.arg.name for given in program.graph_signature.input_specs if isinstance(given.arg, TensorArgument)}
    for result in program.graph_signature.output_specs:
        if result.kind not in (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION):
            continue
        assert isinstance(result.arg, TensorArgument)
        writer = index.get(_picked(by_name[result.arg.name])[0])
        if result.kind == OutputKind.USER_INPUT_MUTATION:
            reader = index.get(by_name[str(result.target)])
        else:
            state = states[placeholder[result.target]]
            reader = first_consumer.get(state.storage)
        if writer is not None and reader is not None:
            together.join(writer, reader)


def _colocation_group(together: DisjointSets) -> np.ndarray:
    """`[ops]` int32: sets of two and more get a number, by their first op."""
    label = together.labels()
    shared = np.bincount(label) > 1
    return np.asarray(np.where(shared, np.cumsum(shared) - 1, Graph.NO_GROUP).astype(np.int32)[label])


def _picked(node: Node) -> tuple[Node, tuple[Any, ...]]:
    """The node that computes a value, and the path of `getitem`s to it."""
    path: tuple[Any, ...] = ()
    while node.op == "call_function" and node.target is getitem and isinstance(node.args[0], Node):
        path = (node.args[1], *path)
        node = node.args[0]
    return node, path


def _tensors_at(picked: tuple[Node, tuple[Any, ...]], tensor_of: Mapping[tuple[Node, tuple[Any, ...]], int]) -> Iterable[int]:
    """The tensors that a value consists of: one, or several when a whole list is handed on."""
    node, path = picked
    if picked in tensor_of:
        return (tensor_of[picked],)
    value = node.meta.get("val")
    for step in path:
        value = value[step] if isinstance(value, list | tuple) else None
    return [tensor_of[node, (*path, *rest)] for rest, _ in _leaves(value) if (node, (*path, *rest)) in tensor_of]


def _outputs(node: Node) -> list[tuple[tuple[Any, ...], Any]]:
    """What an op returns and somebody reads, each with its path; some kernels return more (saved statistics, of a size that differs by device)."""
    leaves = _leaves(node.meta.get("val"))
    if any(user.target is not getitem for user in node.users):
        return leaves
    read = {user.args[1] for user in node.users}
    return [(path, leaf) for path, leaf in leaves if not path or path[0] in read]


def _leaves(value: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The tensors and traced numbers in what an op returns, each with its path."""
    if isinstance(value, list | tuple):
        return [((number, *path), leaf) for number, one in enumerate(value) for path, leaf in _leaves(one)]
    return [((), value)] if isinstance(value, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool | int | float) else []


def _cost(node: Node) -> OpCost:
    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda one: one.meta.get("val"))
    outputs = [leaf for _, leaf in _outputs(node) if isinstance(leaf, torch.Tensor)]
    return op_cost(node.target, args, kwargs, outputs)


def _refuse_control_flow(node: Node, source: str) -> None:
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        raise InputError(
            f"{source} holds the operator {str(node.target)!r} in {_module_path(node) or 'its own forward'}, which runs a program of its own; "
            "ops are placed in programs without branches, loops and nested programs: unroll it, or write it with torch.where"
        )


def _op_type(node: Node) -> str:
    if node.op == "placeholder":
        return INPUT
    return str(node.target) if isinstance(node.target, torch._ops.OpOverload) else str(torch.typename(node.target))


def _module_path(node: Node) -> str:
    """The innermost module that an op comes from; repeated calls of one module are not told apart."""
    stack = node.meta.get("nn_module_stack")
    return str(list(stack.values())[-1][0]).split("@")[0] if stack else ""


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(size if isinstance(size, int) else -1 for size in value.shape) if isinstance(value, torch.Tensor) else ()


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else _SYMBOL_DTYPE[type(value)]


def _bytes(value: Any) -> int:
    """What a transfer carries: the whole shape."""
    return numel(value) * value.element_size() if isinstance(value, torch.Tensor) else _SYMBOL_BYTES[_dtype(value)]
