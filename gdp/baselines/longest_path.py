"""When each op can start at the earliest, how much must follow it, and the longest path: what no placement undercuts even with devices without end.

The longest path of every op at its fastest device (the denominator of the schedule length ratio of Topcuoglu et al., IEEE TPDS 13, 2002) is sharpened in four ways that keep
it a bound: an op counts only the devices that can hold it; a path that changes device pays for the transfer (latency and bytes over that pair's link, without
contention); ops of one colocation group are on one device; and what such a group does on that device it does one op after the other.
"""

import dataclasses
import typing
from typing import NamedTuple

import numba
import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.baselines.indivisible import Indivisible
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.runtime.offsets import offsets


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Paths:
    """Seconds before and after every op on every device, at the least; infinite where the device cannot hold the op."""

    head_s: Float64[np.ndarray, "ops devices"]
    """from the start of the step until the op can start there."""
    tail_s: Float64[np.ndarray, "ops devices"]
    """from the end of the op there until the end of the step."""


class Edges(NamedTuple):
    """What the dynamic programs read."""

    seconds: Float64[np.ndarray, "ops devices"]
    """infinite where the device cannot hold the op."""
    unit: Int32[np.ndarray, " ops"]
    producer: Int32[np.ndarray, " tensors"]
    size: Int64[np.ndarray, " tensors"]
    in_start: Int64[np.ndarray, " ops_and_end"]
    in_tensor: Int32[np.ndarray, " edges"]
    out_start: Int64[np.ndarray, " ops_and_end"]
    use_start: Int64[np.ndarray, " tensors_and_end"]
    use_consumer: Int32[np.ndarray, " edges"]
    latency: Float64[np.ndarray, "devices devices"]
    bandwidth: Float64[np.ndarray, "devices devices"]


def edges_of(graph: Graph, cluster: Cluster, units: Indivisible) -> Edges:
    """The arrays of `graph` on `cluster`."""
    seconds = np.where(units.fits[units.unit_of_op], units.op_time_s, np.inf)[:, units.class_of_device]
    return Edges(
        seconds=np.ascontiguousarray(seconds),
        unit=units.unit_of_op,
        producer=graph.tensor_producer,
        size=graph.tensor_bytes,
        in_start=offsets(graph.edge_consumer, graph.num_ops),
        in_tensor=graph.edge_tensor[np.argsort(graph.edge_consumer, kind="stable")],
        out_start=offsets(graph.tensor_producer, graph.num_ops),
        use_start=offsets(graph.edge_tensor, graph.num_tensors),
        use_consumer=graph.edge_consumer[np.argsort(graph.edge_tensor, kind="stable")],
        latency=cluster.latency_s,
        bandwidth=cluster.bandwidth_bytes_per_s,
    )


def paths(graph: Graph, cluster: Cluster, units: Indivisible) -> Paths:
    """Heads and tails by dynamic programming over the edges, in `O(ops devices + tensors devices^2)`.

    For the head of `v` on `d`, every input may have come from whichever device makes it arrive first, chosen for each input by itself: a relaxation.
    """
    edges = edges_of(graph, cluster, units)
    nothing = np.zeros(edges.seconds.shape)
    return Paths(head_s=heads(edges, nothing), tail_s=tails(edges, nothing))


def heads(edges: Edges, floor_s: Float64[np.ndarray, "ops devices"]) -> Float64[np.ndarray, "ops devices"]:
    """The heads, where it is known that none is below `floor_s`."""
    arrays = (edges.seconds, edges.unit, edges.producer, edges.size, edges.in_start, edges.in_tensor, edges.out_start)
    return np.asarray(_heads(floor_s, *arrays, edges.latency, edges.bandwidth))


def tails(edges: Edges, floor_s: Float64[np.ndarray, "ops devices"]) -> Float64[np.ndarray, "ops devices"]:
    """The tails, where it is known that none is below `floor_s`."""
    arrays = (edges.seconds, edges.unit, edges.producer, edges.size, edges.use_start, edges.use_consumer)
    return np.asarray(_tails(floor_s, *arrays, edges.latency, edges.bandwidth))


def longest_path_s(units: Indivisible, found: Paths) -> float:
    """The most that some unit implies on the device that suits it best: its longest path, or its first head, all of its work, and its least tail.

    Infinite when a unit fits on no device.
    """
    through_s = found.head_s + units.op_time_s[:, units.class_of_device] + found.tail_s
    shape = (units.num_units, len(units.class_of_device))
    path_s, head_s, tail_s = np.full(shape, -np.inf), np.full(shape, np.inf), np.full(shape, np.inf)
    np.maximum.at(path_s, units.unit_of_op, through_s)
    np.minimum.at(head_s, units.unit_of_op, found.head_s)
    np.minimum.at(tail_s, units.unit_of_op, found.tail_s)
    serial_s = head_s + units.time_s[:, units.class_of_device] + tail_s
    return float(np.maximum(path_s, serial_s).min(axis=1).max())


@numba.njit(cache=True)
@typing.no_type_check
def _heads(floor, seconds, unit, producer, size, in_start, in_tensor, out_start, latency, bandwidth):
    num_ops, num_devices = seconds.shape
    head = floor.copy()
    arrival = np.empty((len(producer), num_devices))
    for op in range(num_ops):
        for d in range(num_devices):
            if seconds[op, d] == np.inf:
                head[op, d] = np.inf
                continue
            for edge in range(in_start[op], in_start[op + 1]):
                tensor = in_tensor[edge]
                source = producer[tensor]
                at = head[source, d] + seconds[source, d] if unit[source] == unit[op] else arrival[tensor, d]
                head[op, d] = max(head[op, d], at)
        for tensor in range(out_start[op], out_start[op + 1]):
            for d in range(num_devices):
                earliest = head[op, d] + seconds[op, d]
                for other in range(num_devices):
                    if other != d:
                        transfer = latency[other, d] + size[tensor] / bandwidth[other, d]
                        earliest = min(earliest, head[op, other] + seconds[op, other] + transfer)
                arrival[tensor, d] = earliest
    return head


@numba.njit(cache=True)
@typing.no_type_check
def _tails(floor, seconds, unit, producer, size, use_start, use_consumer, latency, bandwidth):
    num_ops, num_devices = seconds.shape
    tail = np.where(seconds == np.inf, np.inf, floor)
    elsewhere = np.empty(num_devices)
    for tensor in range(len(producer) - 1, -1, -1):
        source = producer[tensor]
        for use in range(use_start[tensor], use_start[tensor + 1]):
            op = use_consumer[use]
            for d in range(num_devices):
                elsewhere[d] = seconds[op, d] + tail[op, d]
            for d in range(num_devices):
                least = elsewhere[d]
                if unit[source] != unit[op]:
                    for other in range(num_devices):
                        if other != d:
                            transfer = latency[d, other] + size[tensor] / bandwidth[d, other]
                            least = min(least, transfer + elsewhere[other])
                tail[source, d] = max(tail[source, d], least)
    return tail
