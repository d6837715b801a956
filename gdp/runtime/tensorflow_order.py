"""The order in which a placed GraphDef's devices run their ops: control edges that make a TensorFlow device run one op at a time, in the program's order.

All logical CPU devices of a session share one pool of threads, and an executor hands every op that is ready to it: two ops of one device could run at once, and the device would
mean nothing. A control edge from each op to the next one of its device forbids that. All devices follow one linear order of the program, so none waits for another forever.

oneDNN, which TensorFlow's CPU build convolves with, merges some neighbours into one op after the graph has been cut by devices: `Pad` with `Conv2D`, `Conv2D` with
`BiasAdd`, `Conv2DBackpropFilter` with `BiasAddGrad` (`mkl_layout_pass.cc`). An op that must run between the two would wait for the merged op, and the merged op for it; and
ops that wait for control edges must not be merged, or TensorFlow ends the process. So such neighbours on one device are one unit of the order, nothing comes between them, and
the unit waits through a gate: an `Identity` of the tensor that it needs first.
"""

import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from typing import Any

SOURCES = frozenset({"Const", "VarHandleOp", "Placeholder", "NoOp"})
"""Ops that take no time and wait for nothing."""

_CONVOLUTIONS = ("Conv2D", "Conv2DBackpropFilter")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gate:
    """An `Identity` that lets a tensor pass once other nodes have run."""

    tensor: str
    consumers: tuple[str, ...]
    """the nodes that take the tensor from the gate."""
    waits: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What makes devices run one op at a time."""

    waits: Mapping[str, tuple[str, ...]]
    """for each node the nodes that it must wait for beside its inputs."""
    gates: tuple[Gate, ...]


def device_order(nodes: Sequence[Any], device: Sequence[int], *, merges: Sequence[bool]) -> Order:
    """The control edges and gates of a placed program.

    Args:
        nodes: the `NodeDef`s in program order; inputs from other nodes are no concern of the order.
        device: `[nodes]`
        merges: `[devices]` whether oneDNN may merge ops there.
    """
    before: dict[int, tuple[str, ...]] = {}
    waits: dict[str, tuple[str, ...]] = {}
    gates: list[Gate] = []
    for unit in _linear_order(nodes, device, merges):
        members = [nodes[member] for member in unit if nodes[member].op not in SOURCES]
        if not members:
            continue
        last = before.get(device[unit[0]], ())
        if len(members) > 1:
            tensor = _first_needed(members[0])
            heads = tuple(member.name for member in members if tensor in member.input)
            if not set(last) <= {_producer(tensor)}:
                gates.append(Gate(tensor=tensor, consumers=heads, waits=last))
        else:
            own = {_producer(one) for one in members[0].input}
            waits[members[0].name] = tuple(one for one in last if one not in own)
        before[device[unit[0]]] = tuple(member.name for member in members)
    return Order(waits=waits, gates=tuple(gates))


def at_their_convolutions(op_s: Mapping[str, float], nodes: Sequence[Any]) -> dict[str, float]:
    """Seconds by node of a program on one device, where a merged op goes by the name of its convolution, which does the work, and not by that of the bias or the padding."""
    op_s = dict(op_s)
    place = {node.name: number for number, node in enumerate(nodes)}
    pairs = [[nodes[member] for member in pair] for pair in _neighbours(nodes, [0] * len(nodes), place, [True])]
    for first, second in sorted(pairs, key=lambda pair: pair[1].op != "BiasAdd"):
        light, heavy = (second, first) if first.op in _CONVOLUTIONS else (first, second)
        if heavy.op in _CONVOLUTIONS and light.op not in _CONVOLUTIONS and light.name in op_s and heavy.name not in op_s:
            op_s[heavy.name] = op_s.pop(light.name)
    return op_s


def _first_needed(head: Any) -> str:
    """The input that the first op of a unit waits by: the one that all of its unit's heads share."""
    return str(head.input[2 if head.op == "Conv2DBackpropFilter" else 0])


def _linear_order(nodes: Sequence[Any], device: Sequence[int], merges: Sequence[bool]) -> list[list[int]]:
    """Units of nodes, each after what it needs and as near to its place in the program as that allows."""
    place = {node.name: number for number, node in enumerate(nodes)}
    edges = [(place[_producer(one)], number) for number, node in enumerate(nodes) for one in node.input if _producer(one) in place]
    unit_of = list(range(len(nodes)))
    for pair in _neighbours(nodes, device, place, merges):
        first, second = (_root(unit_of, member) for member in pair)
        unit_of[max(first, second)] = min(first, second)
    unit_of = [_root(unit_of, member) for member in range(len(nodes))]
    while True:
        order, stuck = _sorted_units(unit_of, edges)
        if not stuck:
            return order
        # Neighbours with an op between them that needs the one and feeds the other: oneDNN could not merge them either.
        unit_of = [number if unit in stuck else unit for number, unit in enumerate(unit_of)]


def _sorted_units(unit_of: Sequence[int], edges: Sequence[tuple[int, int]]) -> tuple[list[list[int]], set[int]]:
    """The units in order, and those that wait for each other in a circle."""
    members: dict[int, list[int]] = {}
    for number, unit in enumerate(unit_of):
        members.setdefault(unit, []).append(number)
    consumers: dict[int, list[int]] = {unit: [] for unit in members}
    waits = dict.fromkeys(members, 0)
    for producer, consumer in {(unit_of[a], unit_of[b]) for a, b in edges if unit_of[a] != unit_of[b]}:
        consumers[producer].append(consumer)
        waits[consumer] += 1
    ready = [(members[unit][-1], unit) for unit, count in waits.items() if not count]
    heapq.heapify(ready)
    order: list[list[int]] = []
    while ready:
        _, unit = heapq.heappop(ready)
        order.append(members[unit])
        for consumer in consumers[unit]:
            waits[consumer] -= 1
            if not waits[consumer]:
                heapq.heappush(ready, (members[consumer][-1], consumer))
    return order, {unit for unit, count in waits.items() if count}


def _neighbours(nodes: Sequence[Any], device: Sequence[int], place: Mapping[str, int], merges: Sequence[bool]) -> list[tuple[int, int]]:
    """Pairs of nodes that oneDNN may merge."""
    pairs = []
    of_gradient: dict[tuple[str, int], int] = {}
    for number, node in enumerate(nodes):
        if not merges[device[number]]:
            continue
        if node.op in ("BiasAdd", "Conv2D"):
            producer = place.get(_producer(node.input[0]), number)
            wanted = "Conv2D" if node.op == "BiasAdd" else "Pad"
            if nodes[producer].op == wanted and device[producer] == device[number]:
                pairs.append((producer, number))
        elif node.op in ("Conv2DBackpropFilter", "BiasAddGrad"):
            key = _first_needed(node), device[number]
            pairs.append((of_gradient.setdefault(key, number), number))
    return pairs


def _root(parent: Sequence[int], member: int) -> int:
    while parent[member] != member:
        member = parent[member]
    return member


def _producer(one: str) -> str:
    """The node that an input of a node (`^node`, `node` or `node:index`) comes from."""
    return one.removeprefix("^").partition(":")[0]
