"""Heads and tails that know that what lies between two ops of the critical path shares devices or pays for being apart: a sharpening of `longest_path.py`.

Let `x` and `y` be two ops of a longest path, and `B` all ops that depend on `x` and on which `y` depends: they run after the end of `x` and before the start
of `y`. With `x` on device `e` and `y` on `d` that takes `T` seconds, and each op `u` of `B` on device `q` needs of these `through_uq` = head from `x` + its
time + tail to `y`, by the dynamic programs of the longest path within `B`: away from `e` and `d` its inputs must be sent and its outputs sent back. So `u` is
on one of the devices with `through_uq <= T`, and where only one device `q` remains for several ops, they run there one after the other:

    T >= min head + sum of times + min tail over the ops that only `q` remains for,

and all of `B` must fit into what all devices have between their least head and least tail. The least `T` that satisfies this is `L(e, d)`. Blocks between
consecutive ops `x_1, x_2, ...` of the path follow each other, so

    head(x_{k+1}, d) >= min_e head(x_k, e) + time(x_k, e) + L_k(e, d),

likewise for tails, and all other heads and tails follow from these by the dynamic programs. Any cut of the path into blocks gives a bound. Tried are the cuts
that no branch beside at most so many ops of the path goes past, for a few such lengths.
"""

import dataclasses
import typing

import numba
import numpy as np
from jaxtyping import Float64, Int64

from gdp.baselines.indivisible import Indivisible
from gdp.baselines.longest_path import Edges, Paths, edges_of, heads, tails
from gdp.cluster import Cluster
from gdp.graph import Graph

_BRANCHES = (8, 32, 128, 512)
"""lengths of branches, in ops of the path beside them."""

_MOST_WORK = 400_000_000
"""Ops times devices cubed: more is not looked at."""


def fork_join_paths(graph: Graph, cluster: Cluster, units: Indivisible, found: Paths) -> Paths:
    """Heads and tails, nowhere below those given."""
    if graph.num_ops * cluster.num_devices**3 > _MOST_WORK or cluster.num_devices == 1:
        return found
    edges = edges_of(graph, cluster, units)
    path = _longest_chain(graph, units)
    before, after = _beside(graph, path)
    best = found
    for length in _BRANCHES:
        cuts = _cuts(before, after, len(path), length)
        if len(cuts) > 1:
            best = _sharpened(edges, path, cuts, before, after, best)
    return best


def _longest_chain(graph: Graph, units: Indivisible) -> Int64[np.ndarray, " path"]:
    """A longest path, each op at its fastest device and transfers for nothing."""
    least_s = np.where(units.fits[units.unit_of_op], units.op_time_s, np.inf).min(axis=1)
    order = np.argsort(graph.edge_consumer, kind="stable")
    return np.asarray(_chain(least_s, graph.edge_producer[order], graph.edge_consumer[order]))


@numba.njit(cache=True)
@typing.no_type_check
def _chain(least_s, producer, consumer):
    end = least_s.copy()
    came_from = np.full(len(least_s), -1, np.int64)
    for edge in range(len(producer)):  # by consumer, and ops are in topological order
        source, op = producer[edge], consumer[edge]
        if end[source] + least_s[op] > end[op]:
            end[op] = end[source] + least_s[op]
            came_from[op] = source
    op = int(end.argmax())
    path = [op]
    while came_from[op] >= 0:
        op = came_from[op]
        path.append(op)
    return np.array(path[::-1])


def _beside(graph: Graph, path: Int64[np.ndarray, " path"]) -> tuple[Int64[np.ndarray, " ops"], Int64[np.ndarray, " ops"]]:
    """For every op the last op of the path before it, and the first one after it, by their places in the path; -1 and the path's length where there is none.

    For ops of the path it is their own place.
    """
    place = np.full(graph.num_ops, -1, np.int64)
    place[path] = np.arange(len(path))
    order = np.argsort(graph.edge_consumer, kind="stable")
    by_producer = np.argsort(-graph.edge_producer.astype(np.int64), kind="stable")
    before = _last_before(place, graph.edge_producer[order], graph.edge_consumer[order])
    after = _first_after(place, len(path), graph.edge_producer[by_producer], graph.edge_consumer[by_producer])
    return before, after


@numba.njit(cache=True)
@typing.no_type_check
def _last_before(place, producer, consumer):
    before = place.copy()
    for edge in range(len(producer)):
        if place[consumer[edge]] < 0:
            before[consumer[edge]] = max(before[consumer[edge]], before[producer[edge]])
    return before


@numba.njit(cache=True)
@typing.no_type_check
def _first_after(place, length, producer, consumer):
    after = np.where(place < 0, length, place)
    for edge in range(len(producer)):
        if place[producer[edge]] < 0:
            after[producer[edge]] = min(after[producer[edge]], after[consumer[edge]])
    return after


def _cuts(before: Int64[np.ndarray, " ops"], after: Int64[np.ndarray, " ops"], length: int, most: int) -> Int64[np.ndarray, " cuts"]:
    """The places in the path that no branch of up to `most` ops of the path goes past."""
    branch = (before >= 0) & (after < length) & (after - before <= most) & (after > before + 1)
    covered = np.zeros(length + 1, np.int64)
    np.add.at(covered, before[branch] + 1, 1)
    np.add.at(covered, after[branch], -1)
    return np.flatnonzero(np.cumsum(covered)[:length] == 0)


def _sharpened(
    edges: Edges,
    path: Int64[np.ndarray, " path"],
    cuts: Int64[np.ndarray, " cuts"],
    before: Int64[np.ndarray, " ops"],
    after: Int64[np.ndarray, " ops"],
    found: Paths,
) -> Paths:
    """Heads and tails with the blocks between consecutive cuts."""
    block = np.searchsorted(cuts, before, side="right") - 1
    inside = (before >= 0) & (after < len(path)) & (block >= 0) & (block < len(cuts) - 1)
    inside &= after <= cuts[np.minimum(block + 1, len(cuts) - 1)]
    inside[path[cuts]] = False
    members = np.flatnonzero(inside)
    members = members[np.argsort(block[members], kind="stable")]
    first = np.searchsorted(block[members], np.arange(len(cuts)))
    block = np.where(inside, block, -1)
    spine = path[cuts]
    apart_s = _blocks(edges, spine, members, first, block)
    head_s, tail_s = found.head_s[spine].copy(), found.tail_s[spine].copy()
    own_s = edges.seconds[spine]
    for k in range(len(spine) - 1):
        through = (head_s[k] + own_s[k])[:, np.newaxis] + apart_s[k]
        head_s[k + 1] = np.maximum(head_s[k + 1], through.min(axis=0))
    for k in range(len(spine) - 2, -1, -1):
        through = apart_s[k] + (own_s[k + 1] + tail_s[k + 1])[np.newaxis, :]
        tail_s[k] = np.maximum(tail_s[k], through.min(axis=1))
    head_floor, tail_floor = found.head_s.copy(), found.tail_s.copy()
    head_floor[spine], tail_floor[spine] = head_s, tail_s
    return dataclasses.replace(found, head_s=heads(edges, head_floor), tail_s=tails(edges, tail_floor))


def _blocks(
    edges: Edges,
    spine: Int64[np.ndarray, " cuts"],
    members: Int64[np.ndarray, " members"],
    first: Int64[np.ndarray, " cuts"],
    block: Int64[np.ndarray, " ops"],
) -> Float64[np.ndarray, "blocks devices devices"]:
    """`L` of every block, from below."""
    return np.asarray(_lengths(*edges, spine, members, first, block))


@numba.njit(cache=True)
@typing.no_type_check
def _lengths(
    seconds, unit, producer, size, in_start, in_tensor, out_start, use_start, use_consumer, latency, bandwidth, spine, members, first, block
):
    """`[blocks, devices, devices]` of the text above: a block's ops are `members[first[k]:first[k + 1]]`, and `block` says which block an op is in, -1 for none."""
    num_ops, num_devices = seconds.shape
    lengths = np.zeros((len(spine) - 1, num_devices, num_devices))
    head = np.zeros((num_ops, num_devices))
    tail = np.zeros((num_ops, num_devices))
    for k in range(len(spine) - 1):
        x, y = spine[k], spine[k + 1]
        inner = members[first[k] : first[k + 1]]
        from_x = np.zeros((num_devices, len(inner) + 1, num_devices))
        to_y = np.zeros((num_devices, len(inner), num_devices))
        for e in range(num_devices):
            for at in range(len(inner) + 1):
                op = inner[at] if at < len(inner) else y
                for q in range(num_devices):
                    least = 0.0
                    if seconds[op, q] == np.inf:
                        least = np.inf
                    else:
                        for edge in range(in_start[op], in_start[op + 1]):
                            tensor = in_tensor[edge]
                            source = producer[tensor]
                            if source == x:
                                arrival = 0.0 if q == e else latency[e, q] + size[tensor] / bandwidth[e, q]
                                if q != e and unit[source] == unit[op]:
                                    arrival = np.inf
                            elif block[source] == k:
                                arrival = head[source, q] + seconds[source, q]
                                if unit[source] != unit[op]:
                                    for other in range(num_devices):
                                        if other != q:
                                            moved = latency[other, q] + size[tensor] / bandwidth[other, q]
                                            arrival = min(arrival, head[source, other] + seconds[source, other] + moved)
                            else:
                                continue
                            least = max(least, arrival)
                    from_x[e, at, q] = least
                if at < len(inner):
                    head[op, :] = from_x[e, at, :]
        for d in range(num_devices):
            for at in range(len(inner) - 1, -1, -1):
                op = inner[at]
                for q in range(num_devices):
                    most = np.inf if seconds[op, q] == np.inf else 0.0
                    if most == 0.0:
                        for tensor in range(out_start[op], out_start[op + 1]):
                            for use in range(use_start[tensor], use_start[tensor + 1]):
                                reader = use_consumer[use]
                                if reader == y:
                                    left = 0.0 if q == d else latency[q, d] + size[tensor] / bandwidth[q, d]
                                    if q != d and unit[reader] == unit[op]:
                                        left = np.inf
                                elif block[reader] == k:
                                    left = seconds[reader, q] + tail[reader, q]
                                    if unit[reader] != unit[op]:
                                        for other in range(num_devices):
                                            if other != q:
                                                moved = latency[q, other] + size[tensor] / bandwidth[q, other]
                                                left = min(left, moved + seconds[reader, other] + tail[reader, other])
                                else:
                                    continue
                                most = max(most, left)
                    to_y[d, at, q] = most
                tail[op, :] = to_y[d, at, :]
        for e in range(num_devices):
            for d in range(num_devices):
                lengths[k, e, d] = _length(seconds, inner, from_x[e], to_y[d], from_x[e, len(inner), d])
    return lengths


@numba.njit(cache=True)
@typing.no_type_check
def _length(seconds, inner, head, tail, path_s):
    """The least T of the text above, from below; `path_s` is the longest path from x to y."""
    num_devices = seconds.shape[1]
    low = path_s
    if low == np.inf:
        return low
    high = low
    for at in range(len(inner)):
        least, longest = np.inf, 0.0
        for q in range(num_devices):
            through = head[at, q] + seconds[inner[at], q] + tail[at, q]
            least = min(least, through)
            if seconds[inner[at], q] < np.inf:
                longest = max(longest, seconds[inner[at], q])
        low = max(low, least)
        high += longest
    if low == np.inf:
        return low
    if _possible(seconds, inner, head, tail, low):
        return low
    high = max(high, low) + low
    for _ in range(40):
        middle = (low + high) / 2
        if _possible(seconds, inner, head, tail, middle):
            high = middle
        else:
            low = middle
    return low


@numba.njit(cache=True)
@typing.no_type_check
def _possible(seconds, inner, head, tail, length):
    """Whether ops that one device remains for fit there, with none that has no device; what is possible stays possible when there is more time."""
    num_devices = seconds.shape[1]
    total = np.zeros(num_devices)
    first, last = np.full(num_devices, np.inf), np.full(num_devices, np.inf)
    may_first, may_last = np.full(num_devices, np.inf), np.full(num_devices, np.inf)
    work = 0.0
    for at in range(len(inner)):
        only, least = -1, np.inf
        for q in range(num_devices):
            own = seconds[inner[at], q]
            if head[at, q] + own + tail[at, q] <= length:
                only = q if only == -1 else -2
                least = min(least, own)
                may_first[q] = min(may_first[q], head[at, q])
                may_last[q] = min(may_last[q], tail[at, q])
        if only == -1:
            return False
        work += least
        if only >= 0:
            total[only] += least
            first[only] = min(first[only], head[at, only])
            last[only] = min(last[only], tail[at, only])
    room = 0.0
    for q in range(num_devices):
        if total[q] > 0.0 and first[q] + total[q] + last[q] > length:
            return False
        room += max(0.0, length - may_first[q] - may_last[q])
    return work <= room
