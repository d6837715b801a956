"""An exported program cut by a placement into pieces: runs of ops of one device, each one FX module.

Every device runs its ops in the order of the program (dispatch `program_order` of the simulator). A run ends where going on could cost time: before an op
that needs something of another device for which the device has not waited yet, and after an op that another device waits for. So a piece
never waits for an input that its first ops could have started without, and nobody waits for a piece longer than for the op that matters; with that, pieces
are as long as they can be, and since they keep the order of the program, they cannot wait for each other in a circle.
"""

import dataclasses
import operator
from collections.abc import Mapping

import torch
from torch import fx

from gdp.errors import InputError


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


def cut(program: torch.export.ExportedProgram, device_of_op: Mapping[str, int]) -> list[Piece]:
    """Cuts `program` into pieces, in an order in which they can run.

    `device_of_op` names a device for every op by its FX node name; placeholders need none. The results of a multi-output op (`getitem`) stay with it, whatever
    the mapping says; a node that the mapping leaves out goes where its latest input is. Raises `InputError` when the program is not functional.
    """
    nodes = _ops(program)
    device = _device_of_node(nodes, device_of_op)
    return _pieces(program, _runs(nodes, device), device)


def cut_every_op(program: torch.export.ExportedProgram) -> list[Piece]:
    """Cuts `program` into pieces of one op each, with the `getitem` nodes that read it, all on device 0."""
    runs: dict[fx.Node, list[fx.Node]] = {}
    for node in _ops(program):
        first = next(iter(node.all_input_nodes)) if node.target is operator.getitem else node
        runs.setdefault(first if first in runs or first is node else node, []).append(node)
    return _pieces(program, list(runs.values()), {node: 0 for run in runs.values() for node in run})


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


def _runs(nodes: list[fx.Node], device: Mapping[fx.Node, int]) -> list[list[fx.Node]]:
    """The ops of each piece; pieces in the order of their first ops."""
    index = {node: number for number, node in enumerate(nodes)}
    awaited = {value for node in nodes for value in node.all_input_nodes if value in index and device[value] != device[node]}
    waited: dict[tuple[int, int], int] = {}
    open_run: dict[int, list[fx.Node]] = {}
    closing: set[int] = set()
    runs: list[list[fx.Node]] = []
    for node in nodes:
        home = device[node]
        must_wait = False
        for value in node.all_input_nodes:
            if value in index and device[value] != home and index[value] > waited.get((device[value], home), -1):
                waited[device[value], home] = index[value]
                must_wait = True
        if home not in open_run or must_wait or (home in closing and node.target is not operator.getitem):
            open_run[home] = []
            runs.append(open_run[home])
            closing.discard(home)
        open_run[home].append(node)
        if node in awaited:
            closing.add(home)
    return runs


def _pieces(program: torch.export.ExportedProgram, runs: list[list[fx.Node]], device: Mapping[fx.Node, int]) -> list[Piece]:
    run_of = {node: number for number, run in enumerate(runs) for node in run}
    results = set(program.graph.output_node().all_input_nodes)
    pieces = []
    for number, run in enumerate(runs):
        graph = fx.Graph()
        copies: dict[fx.Node, fx.Node] = {}
        taken = dict.fromkeys(value for node in run for value in node.all_input_nodes if run_of.get(value) != number)
        inputs = [value for value in taken if value.op != "get_attr"]
        for value in inputs:
            copies[value] = graph.placeholder(value.name)
        for value in taken:
            if value.op == "get_attr":
                copies[value] = graph.node_copy(value)
        for node in run:
            copies[node] = graph.node_copy(node, copies.__getitem__)
        outputs = [node for node in run if node in results or any(run_of.get(user, number) != number for user in node.users)]
        graph.output(tuple(copies[node] for node in outputs))
        pieces.append(
            Piece(
                device=device[run[0]],
                module=fx.GraphModule(program.graph_module, graph),
                ops=tuple(node.name for node in run),
                inputs=tuple(value.name for value in inputs),
                outputs=tuple(node.name for node in outputs),
            )
        )
    return pieces


def _ops(program: torch.export.ExportedProgram) -> list[fx.Node]:
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    if not nodes:
        raise InputError("the exported program calls no operator: there is nothing to run; export a program that computes something")
    for node in nodes:
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            raise InputError(
                f"op {node.name!r} ({node.target}) of the exported program writes into its input, so its ops cannot be spread over devices; "
                "make the program functional with run_decompositions({})"
            )
    return nodes
