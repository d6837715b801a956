"""Which ops are decided together: a graph's ops in groups, so that one decision places a group.

Four stages, each keeping what the one before joined:

1. Ops of one colocation group are one.
2. An op without work (a view, a constant, bookkeeping) joins the producer of its heaviest input, or, having none, the consumer of its heaviest output.
   It joins one neighbour alone, so no two ops that work come together here.
3. `v` joins `u` when `u` is the only one that `v` waits for and `v` the only one that waits for `u`, looking through ops without work, as long as
   what is joined, but for its heaviest part, has no more than `CHAIN_SHARE` of the graph's work, and of its memory. A cut beside a light op gains nothing; but a chain that
   fills a device must be cut somewhere, and so must one whose ends suit different devices, or whose steps are pipelined. Parallel branches stay apart.
4. While there are more than `max_groups`: the lightest group joins the neighbour with which it shares the heaviest tensors, preferring one that does not outgrow
   `LARGEST_SHARE` times the average group.

Grouping ops that must or may as well share a device is common to the field (Mirhoseini et al., 2017, section 3.1). The graph of the groups may have cycles,
since a colocation group can be read at the start of a step and written at its end.
"""

import dataclasses
import heapq
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from gdp.capture.disjoint_sets import DisjointSets
from gdp.errors import InputError
from gdp.graph import Graph

FLOPS_PER_BYTE = 20.0
"""The machine balance by which work is weighed here, where no device is known."""

LARGEST_SHARE = 2.0

CHAIN_SHARE = 1 / 128
"""Of all work, and of all parameters and outputs: what is joined to an op can tip the balance of 16 devices by an eighth."""

_NONE, _SEVERAL = -1, -2


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Grouping:
    """A partition of a graph's ops into groups 0 to `num_groups` - 1, none of them empty."""

    group_of_op: Int32[np.ndarray, " ops"]
    """groups stand in the topological order of their op with most work."""
    num_groups: int

    def __post_init__(self) -> None:
        present = np.unique(self.group_of_op)
        if len(present) != self.num_groups or present[0] != 0 or present[-1] != self.num_groups - 1:
            raise InputError(f"a grouping into {self.num_groups} groups must use each of 0..{self.num_groups - 1}, and no other number")
        self.group_of_op.flags.writeable = False

    def expand(self, group_device: Int32[np.ndarray, "*batch groups"]) -> Int32[np.ndarray, "*batch ops"]:
        """The device of every op, from the device of every group."""
        return np.asarray(group_device[..., self.group_of_op])


@lru_cache(maxsize=64)
def coarsen(graph: Graph, *, max_groups: int | None = None) -> Grouping:
    """Groups the ops of `graph`; the same graph always gives the same groups, in near-linear time. Remembered, since every scheduler asks for the same few grains.

    Args:
        graph: what to group.
        max_groups: the most groups there may be; `None` leaves them as they are after the third stage.

    Raises:
        InputError: when `max_groups` is less than one.
    """
    if max_groups is not None and max_groups < 1:
        raise InputError(f"max_groups is {max_groups}; a graph has at least one group, so give 1 or more")
    sets = DisjointSets(graph.num_ops)
    _join_colocated(graph, sets)
    _join_ops_without_work(graph, sets)
    weight = op_weight(graph)
    _join_chains(graph, sets, weight)
    if max_groups is not None:
        _join_lightest(graph, sets, weight, max_groups)
    return _numbered(sets.labels(), weight)


def op_weight(graph: Graph) -> Float64[np.ndarray, " ops"]:
    """A device-free measure of each op's work, in FLOPs: what it computes or, if that takes longer, the bytes it accesses at `FLOPS_PER_BYTE`."""
    return np.asarray(np.maximum(graph.flops, FLOPS_PER_BYTE * graph.accessed_bytes))


def _join_colocated(graph: Graph, sets: DisjointSets) -> None:
    grouped = np.flatnonzero(graph.colocation_group != Graph.NO_GROUP)
    _, first, inverse = np.unique(graph.colocation_group[grouped], return_index=True, return_inverse=True)
    for op, leader in zip(grouped.tolist(), grouped[first[inverse]].tolist(), strict=True):
        sets.join(leader, op)


def _join_ops_without_work(graph: Graph, sets: DisjointSets) -> None:
    """In rounds, because an input and its views may first have to find each other; every round at least halves the sets that still look for a neighbour."""
    size_bytes = graph.tensor_bytes[graph.edge_tensor]
    while True:
        label = sets.labels()
        works = np.zeros(label.max() + 1, np.bool_)
        works[label[graph.works]] = True
        producer, consumer = label[graph.edge_producer], label[graph.edge_consumer]
        crossing = producer != consumer
        into = np.flatnonzero(crossing & ~works[consumer])
        searching_upwards = np.zeros(len(works), np.bool_)
        searching_upwards[consumer[into]] = True
        out_of = np.flatnonzero(crossing & ~works[producer] & ~searching_upwards[producer])
        if not len(into) and not len(out_of):
            return
        for edges, end in ((into, consumer), (out_of, producer)):
            for edge in _heaviest_edge_per_set(end[edges], size_bytes[edges], edges).tolist():
                sets.join(int(graph.edge_producer[edge]), int(graph.edge_consumer[edge]))


def _heaviest_edge_per_set(
    end: Int32[np.ndarray, " edges"], size_bytes: Int64[np.ndarray, " edges"], edges: Int64[np.ndarray, " edges"]
) -> Int64[np.ndarray, " sets"]:
    """For every set in `end`, the one of its `edges` with most bytes; among equals the first."""
    order = np.lexsort((edges, -size_bytes, end))
    _, first = np.unique(end[order], return_index=True)
    return edges[order[first]]


def _join_chains(graph: Graph, sets: DisjointSets, weight: Float64[np.ndarray, " ops"]) -> None:
    label = sets.labels()
    resident_bytes = graph.param_bytes + np.bincount(graph.tensor_producer, weights=graph.tensor_bytes, minlength=graph.num_ops)
    share = np.stack([np.bincount(label, weights=each) / max(float(each.sum()), 1.0) for each in (weight, resident_bytes)], axis=1)
    forwards = np.argsort(graph.edge_consumer, kind="stable")
    backwards = np.argsort(-graph.edge_producer, kind="stable")
    only_producer = _only_neighbour(label, graph.works, graph.edge_producer[forwards], graph.edge_consumer[forwards])
    only_consumer = _only_neighbour(label, graph.works, graph.edge_consumer[backwards], graph.edge_producer[backwards])
    member = np.zeros(len(only_producer), np.int64)
    member[label] = np.arange(graph.num_ops)
    follows = [u >= 0 and only_consumer[u] == v for v, u in enumerate(only_producer)]
    heads = [v for v in range(len(follows)) if not follows[v]]
    for link in heads:
        joined = heaviest = share[link]
        while (after := only_consumer[link]) >= 0 and follows[after] and only_producer[after] == link:
            joined, heaviest = joined + share[after], np.maximum(heaviest, share[after])
            if (joined - heaviest <= CHAIN_SHARE).all():
                sets.join(int(member[link]), int(member[after]))
            else:
                joined = heaviest = share[after]
            link = after


def _only_neighbour(
    label: Int32[np.ndarray, " ops"],
    works: Bool[np.ndarray, " ops"],
    source: Int32[np.ndarray, " edges"],
    target: Int32[np.ndarray, " edges"],
) -> list[int]:
    """For every set, the one other set that its working ops see over the edges, through ops without work; `_NONE` or `_SEVERAL`.

    The edges into an op must all stand before those out of it.
    """
    set_of, working = label.tolist(), works.tolist()
    seen = [_NONE] * (max(set_of) + 1)
    through = [_NONE] * len(set_of)
    for one, other in zip(source.tolist(), target.tolist(), strict=True):
        found = set_of[one] if working[one] else through[one]
        if found == _NONE:
            continue
        if not working[other]:
            through[other] = found if through[other] in (_NONE, found) else _SEVERAL
        elif found != set_of[other]:
            here = set_of[other]
            seen[here] = found if seen[here] in (_NONE, found) else _SEVERAL
    return seen


def _join_lightest(graph: Graph, sets: DisjointSets, weight: Float64[np.ndarray, " ops"], max_groups: int) -> None:
    label = sets.labels()
    count = int(label.max()) + 1
    if count <= max_groups:
        return
    heavy = np.bincount(label, weights=weight, minlength=count).tolist()
    largest = LARGEST_SHARE * sum(heavy) / max_groups
    shared_bytes = _shared_bytes(graph, label, count)
    member = np.zeros(count, np.int64)
    member[label] = np.arange(graph.num_ops)
    alive = [True] * count
    queue = [(heavy[group], group) for group in range(count)]
    heapq.heapify(queue)
    while count > max_groups:
        weighed, group = heapq.heappop(queue)
        if not alive[group] or weighed != heavy[group]:
            continue
        neighbours = shared_bytes[group]
        if neighbours:
            into = max(neighbours, key=lambda one: (heavy[one] + heavy[group] <= largest, neighbours[one], -heavy[one], -one))
        else:
            into = _next_lightest(queue, alive, heavy)
        kept, gone = (into, group) if len(shared_bytes[into]) >= len(neighbours) else (group, into)
        _absorb(shared_bytes, kept, gone)
        alive[gone] = False
        heavy[kept] += heavy[gone]
        heapq.heappush(queue, (heavy[kept], kept))
        sets.join(int(member[kept]), int(member[gone]))
        count -= 1


def _shared_bytes(graph: Graph, label: Int32[np.ndarray, " ops"], count: int) -> list[dict[int, int]]:
    """For every group its neighbours, each with the bytes of the tensors that pass between the two, either way; each tensor once."""
    crossing = label[graph.edge_producer] != label[graph.edge_consumer]
    rows = np.unique(np.stack([graph.edge_tensor[crossing], label[graph.edge_consumer[crossing]]], axis=1), axis=0)
    shared: list[dict[int, int]] = [{} for _ in range(count)]
    producers = label[graph.tensor_producer[rows[:, 0]]]
    for one, other, size in zip(producers.tolist(), rows[:, 1].tolist(), graph.tensor_bytes[rows[:, 0]].tolist(), strict=True):
        shared[one][other] = shared[one].get(other, 0) + size
        shared[other][one] = shared[other].get(one, 0) + size
    return shared


def _next_lightest(queue: list[tuple[float, int]], alive: list[bool], heavy: list[float]) -> int:
    """The lightest group left; the caller has taken one that has no neighbours, and another exists."""
    while True:
        weighed, group = heapq.heappop(queue)
        if alive[group] and weighed == heavy[group]:
            return group


def _absorb(shared_bytes: list[dict[int, int]], kept: int, gone: int) -> None:
    for one, size in shared_bytes[gone].items():
        del shared_bytes[one][gone]
        if one != kept:
            shared_bytes[one][kept] = shared_bytes[one].get(kept, 0) + size
            shared_bytes[kept][one] = shared_bytes[kept].get(one, 0) + size
    shared_bytes[gone] = {}


def _numbered(label: Int32[np.ndarray, " ops"], weight: Float64[np.ndarray, " ops"]) -> Grouping:
    """Numbers the groups by where their op with most work stands (among equals, the first)."""
    order = np.lexsort((np.arange(len(label)), -weight, label))
    _, first = np.unique(label[order], return_index=True)
    number = np.empty(len(first), np.int32)
    number[np.argsort(order[first])] = np.arange(len(first), dtype=np.int32)
    return Grouping(group_of_op=number[label], num_groups=len(first))
