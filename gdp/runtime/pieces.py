"""An exported program cut by a placement into pieces: runs of ops of one device, each one FX module.

Every device runs its ops in the order of the program (dispatch `program_order` of the simulator). A run ends where going on could cost time: before an op
that needs something of another device for which the device has not waited yet, and after an op that another device waits for. So a piece
never waits for an input that its first ops could have started without, and nobody waits for a piece longer than for the op that matters; with that, pieces
are as long as they can be, and since they keep the order of the program, they cannot wait for each other in a circle.

Ops that write into their inputs (`relu_`) keep their place among the readers of the same memory: aliases are read off the operators' schemas.
"""

import dataclasses
import operator
from collections.abc import Mapping

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from gdp.errors import InputError

_RETURN_THEIR_INPUT = ("aten::dropout", "aten::feature_dropout", "aten::alpha_dropout", "aten::feature_alpha_dropout")
"""Operators that may return their input itself (outside training) though their schema does not say so."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Piece:
    """Ops of one device that run without a break."""

    device: int
    module: fx.GraphModule
    """takes the values of `inputs` and returns a tuple of the values of `outputs`."""
    ops: tuple[str, ...]
    """FX node names of the ops, in order."""
    inputs: tuple[str, ...]
    """FX node names: placeholders of the program (parameters and buffers among them) and outputs of earlier pieces."""
    outputs: tuple[str, ...]
    """FX node names of what other pieces or the program's caller need."""
    after: tuple[int, ...]
    """earlier pieces of other devices, by number, whose end this one must wait for, though it takes no value from them."""


def cut(program: torch.export.ExportedProgram, device_of_op: Mapping[str, int]) -> list[Piece]:
    """Cuts `program` into pieces, in an order in which they can run.

    `device_of_op` names a device for every op by its FX node name; placeholders need none. The results of a multi-output op (`getitem`) stay with it, whatever
    the mapping says; a node that the mapping leaves out goes where its latest input is.
    """
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    if not nodes:
        raise InputError("the exported program calls no operator: there is nothing to run; export a program that computes something")
    device = _device_of_node(nodes, device_of_op)
    needs = _needs(nodes, program)
    runs = _runs(nodes, device, needs)
    run_of = {node: number for number, run in enumerate(runs) for node in run}
    results = {node for node in program.graph.output_node().all_input_nodes}
    return [_piece(program, number, runs, run_of, device, needs, results) for number in range(len(runs))]


def state_mutations(program: torch.export.ExportedProgram) -> list[str]:
    """Names of the ops that write into parameters, buffers or inputs of `program`: it would compute something else each time it runs."""
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    memory = _memory(nodes)
    own = {memory[node] for node in program.graph.nodes if node.op == "placeholder" and node in memory}
    return [node.name for node in nodes if any(memory[written] in own for written in _written(node))]


def random_ops(program: torch.export.ExportedProgram) -> list[str]:
    """Names of the ops of `program` that draw random numbers."""
    return [
        node.name
        for node in program.graph.nodes
        if isinstance(node.target, torch._ops.OpOverload)
        and torch.Tag.nondeterministic_seeded in node.target.tags
        and not _draws_nothing(node, node.target)
    ]


def state_names(program: torch.export.ExportedProgram) -> dict[str, str]:
    """FX placeholder name of each parameter, buffer and constant -> its name in the program's state."""
    held = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    return {spec.arg.name: spec.target for spec in program.graph_signature.input_specs if spec.kind in held and spec.target is not None}


def _draws_nothing(node: fx.Node, operator_: torch._ops.OpOverload) -> bool:
    """Dropout, attention and recurrent layers draw nothing with probability 0 or outside training."""
    arguments = dict(zip((argument.name for argument in operator_._schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    values = {argument.name: arguments.get(argument.name, argument.default_value) for argument in operator_._schema.arguments}
    return any(values.get(name, 1) == 0 for name in ("p", "dropout", "dropout_p", "train", "training"))


def _device_of_node(nodes: list[fx.Node], device_of_op: Mapping[str, int]) -> dict[fx.Node, int]:
    first = next((device_of_op[node.name] for node in nodes if node.name in device_of_op), 0)
    device: dict[fx.Node, int] = {}
    for node in nodes:
        placed_inputs = [device[producer] for producer in node.all_input_nodes if producer in device]
        if node.target is operator.getitem and placed_inputs:
            device[node] = placed_inputs[0]
        elif node.name in device_of_op:
            device[node] = device_of_op[node.name]
        else:
            device[node] = placed_inputs[-1] if placed_inputs else first
    return device


def _written(node: fx.Node) -> list[fx.Node]:
    """The inputs that `node` writes into."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable:
        return []
    written: list[fx.Node] = []
    for position, argument in enumerate(node.target._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
            fx.map_arg(value, written.append)
    return written


def _memory(nodes: list[fx.Node]) -> dict[fx.Node, fx.Node]:
    """For every node that makes or takes a value, one node that stands for the memory it may share with others."""
    parent: dict[fx.Node, fx.Node] = {}

    def find(node: fx.Node) -> fx.Node:
        parent.setdefault(node, node)
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node in nodes:
        find(node)
        aliased: list[fx.Node] = []
        if node.target is operator.getitem or not isinstance(node.target, torch._ops.OpOverload):
            aliased = list(node.all_input_nodes)
        else:
            schema = node.target._schema
            returns_input = schema.name in _RETURN_THEIR_INPUT
            for position, argument in enumerate(schema.arguments):
                if argument.alias_info is not None or (returns_input and position == 0):
                    value = node.args[position] if position < len(node.args) else node.kwargs.get(argument.name)
                    fx.map_arg(value, aliased.append)
        for other in node.all_input_nodes:
            find(other)
        for other in aliased:
            parent[find(other)] = find(node)
    return {node: find(node) for node in parent}


def _needs(nodes: list[fx.Node], program: torch.export.ExportedProgram) -> dict[fx.Node, list[fx.Node]]:
    """For every op the earlier ops that must have run: producers of its inputs, and users of memory that one of the two writes."""
    ops = set(nodes)
    needs = {node: [producer for producer in node.all_input_nodes if producer in ops] for node in nodes}
    writers = {node: written for node in nodes if (written := _written(node))}
    if not writers:
        return needs
    memory = _memory(nodes)
    changing = {memory[value] for written in writers.values() for value in written}
    since_write: dict[fx.Node, list[fx.Node]] = {block: [] for block in changing}
    for node in nodes:
        writes = {memory[value] for value in writers.get(node, [])}
        touches = {memory[value] for value in (node, *node.all_input_nodes) if value in memory} & changing
        for block in touches:
            history = since_write[block]
            needs[node] += history if block in writes else history[:1]
            if block in writes:
                since_write[block] = [node]
            elif history:
                history.append(node)
            else:
                since_write[block] = [node]
    return {node: list(dict.fromkeys(needed)) for node, needed in needs.items()}


def _runs(nodes: list[fx.Node], device: dict[fx.Node, int], needs: dict[fx.Node, list[fx.Node]]) -> list[list[fx.Node]]:
    """The ops of each piece; pieces in the order of their first ops."""
    index = {node: number for number, node in enumerate(nodes)}
    awaited = {needed for node in nodes for needed in needs[node] if device[needed] != device[node]}
    waited: dict[tuple[int, int], int] = {}
    open_run: dict[int, list[fx.Node]] = {}
    closing: set[int] = set()
    runs: list[list[fx.Node]] = []
    for node in nodes:
        home = device[node]
        must_wait = False
        for needed in needs[node]:
            pair = (device[needed], home)
            if device[needed] != home and index[needed] > waited.get(pair, -1):
                waited[pair] = index[needed]
                must_wait = True
        stays = node.target is operator.getitem and not must_wait
        if home not in open_run or must_wait or (home in closing and not stays):
            open_run[home] = []
            runs.append(open_run[home])
            closing.discard(home)
        open_run[home].append(node)
        if node in awaited:
            closing.add(home)
    return runs


def _piece(
    program: torch.export.ExportedProgram,
    number: int,
    runs: list[list[fx.Node]],
    run_of: dict[fx.Node, int],
    device: dict[fx.Node, int],
    needs: dict[fx.Node, list[fx.Node]],
    results: set[fx.Node],
) -> Piece:
    run = runs[number]
    inside = set(run)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    taken = [value for node in run for value in node.all_input_nodes if value not in inside]
    inputs = [value for value in dict.fromkeys(taken) if value.op != "get_attr"]
    for value in inputs:
        copies[value] = graph.placeholder(value.name)
    for value in dict.fromkeys(taken):
        if value.op == "get_attr":
            copies[value] = graph.node_copy(value)
    for node in run:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    outputs = [node for node in run if node in results or any(run_of.get(user) not in (number, None) for user in node.users)]
    graph.output(tuple(copies[node] for node in outputs))
    from_inputs = {run_of[value] for value in inputs if value in run_of}
    waits = {run_of[needed] for node in run for needed in needs[node] if device[needed] != device[node]}
    return Piece(
        device=device[run[0]],
        module=fx.GraphModule(program.graph_module, graph),
        ops=tuple(node.name for node in run),
        inputs=tuple(value.name for value in inputs),
        outputs=tuple(node.name for node in outputs),
        after=tuple(sorted(waits - from_inputs)),
    )
