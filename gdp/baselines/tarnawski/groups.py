"""The groups of nodes that a split cannot part: what the exact solvers decide about."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Int32

from gdp.baselines.tarnawski.idle_nodes import join_idle
from gdp.capture.disjoint_sets import DisjointSets
from gdp.capture.tarnawski_instance import TarnawskiInstance


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """Groups of nodes, and who precedes whom."""

    group_of_node: Int32[np.ndarray, " nodes"]
    first_nodes: Bool[np.ndarray, " nodes"]
    """nodes that cost nothing anywhere and read nothing: they go with whatever part comes first, whatever their group, and precede nobody."""
    producers: tuple[tuple[int, ...], ...]
    """per group, the groups that its forward nodes read from."""
    consumers: tuple[tuple[int, ...], ...]

    @property
    def num_groups(self) -> int:
        return len(self.producers)


def colour_groups(instance: TarnawskiInstance) -> Groups:
    """One group per colour, and one per node without colour; the forward graph of the groups may be cyclic."""
    return _grouped(instance, _joined_by_colour(instance).labels(), np.zeros(instance.num_nodes, np.bool_))


def contiguous_groups(instance: TarnawskiInstance) -> Groups:
    """Groups for contiguous splits, numbered in topological order: the forward graph of colours with each of its cycles made one group.

    Nodes that lie on a cycle of colours lie between two nodes of one colour, so a contiguous part that holds one of them holds all. Groups whose place
    costs nothing are joined to a neighbour where that loses no optimum (`join_idle`).
    """
    sets = _joined_by_colour(instance)
    _join_cycles(instance, sets)
    first_nodes = join_idle(instance, sets)
    groups = _grouped(instance, sets.labels(), first_nodes)
    # Components come in reverse topological order.
    component = np.array(_strongly_connected(groups.consumers), np.int32)
    place = (groups.num_groups - 1 - component).astype(np.int32)
    return _grouped(instance, place[groups.group_of_node], first_nodes)


def _join_cycles(instance: TarnawskiInstance, sets: DisjointSets) -> None:
    groups = _grouped(instance, sets.labels(), np.zeros(instance.num_nodes, np.bool_))
    component = _strongly_connected(groups.consumers)
    first: dict[int, int] = {}
    for node, group in enumerate(groups.group_of_node.tolist()):
        sets.join(first.setdefault(component[group], node), node)


def _joined_by_colour(instance: TarnawskiInstance) -> DisjointSets:
    sets = DisjointSets(instance.num_nodes)
    first: dict[int, int] = {}
    for node, colour in enumerate(instance.colour.tolist()):
        if colour != TarnawskiInstance.NO_COLOUR:
            sets.join(first.setdefault(colour, node), node)
    return sets


def _grouped(instance: TarnawskiInstance, group_of_node: Int32[np.ndarray, " nodes"], first_nodes: Bool[np.ndarray, " nodes"]) -> Groups:
    count = int(group_of_node.max()) + 1
    forward = ~instance.backward[instance.edge_from] & ~instance.backward[instance.edge_to] & ~first_nodes[instance.edge_from]
    source, sink = group_of_node[instance.edge_from[forward]], group_of_node[instance.edge_to[forward]]
    producers: list[set[int]] = [set() for _ in range(count)]
    consumers: list[set[int]] = [set() for _ in range(count)]
    for one, other in zip(source.tolist(), sink.tolist(), strict=True):
        if one != other:
            producers[other].add(one)
            consumers[one].add(other)
    return Groups(
        group_of_node=group_of_node,
        first_nodes=first_nodes,
        producers=tuple(tuple(sorted(some)) for some in producers),
        consumers=tuple(tuple(sorted(some)) for some in consumers),
    )


def _strongly_connected(consumers: tuple[tuple[int, ...], ...]) -> list[int]:
    """The strongly connected component of every group, numbered in reverse topological order (Tarjan, SIAM J. Comput. 1, 1972)."""
    count = len(consumers)
    index, low, component = [-1] * count, [0] * count, [-1] * count
    path: list[int] = []
    visited = components = 0
    for root in range(count):
        if index[root] >= 0:
            continue
        stack = [(root, 0)]
        while stack:
            group, cursor = stack.pop()
            if cursor == 0:
                index[group] = low[group] = visited
                visited += 1
                path.append(group)
            else:
                low[group] = min(low[group], low[consumers[group][cursor - 1]])
            while cursor < len(consumers[group]):
                other = consumers[group][cursor]
                cursor += 1
                if index[other] < 0:
                    stack += [(group, cursor), (other, 0)]
                    break
                if component[other] < 0:
                    low[group] = min(low[group], index[other])
            else:
                if low[group] == index[group]:
                    while component[group] < 0:
                        component[path.pop()] = components
                    components += 1
    return component
