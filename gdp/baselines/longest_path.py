"""When each op can start at the earliest, how much must follow it, and the longest path: what no placement undercuts even with devices without end.

The longest path of every op at its fastest device (the denominator of the schedule length ratio of Topcuoglu et al., IEEE TPDS 13, 2002) is sharpened in four ways that keep
it a bound: an op counts only the devices that can hold it; a path that changes device pays for the transfer (latency and bytes over that pair's link, without
contention); ops of one colocation group are on one device; and what such a group does on that device it does one op after the other.
"""

import dataclasses
import typing

import numba
import numpy as np
from jaxtyping import Float64

from gdp.baselines.indivisible import Indivisible
from gdp.cluster import Cluster
from gdp.graph import Graph


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Paths:
    """Seconds before and after every op on every device, at the least; infinite where the device cannot hold the op."""

    head_s: Float64[np.ndarray, "ops devices"]
    """from the start of the step until the op can start there."""
    tail_s: Float64[np.ndarray, "ops devices"]
    """from the end of the op there until the end of the step."""


def paths(graph: Graph, cluster: Cluster, units: Indivisible) -> Paths:
    """Heads and tails by dynamic programming over the edges, in `O(ops devices + tensors devices^2)`.

    For the head of `v` on `d`, every input may have come from whichever device makes it arrive first, chosen for each input by itself: a relaxation.
    """
    seconds = np.where(units.fits[units.unit_of_op], units.op_time_s, np.inf)[:, units.class_of_device]
    by_consumer = np.argsort(graph.edge_consumer, kind="stable")
    by_tensor = np.argsort(graph.edge_tensor, kind="stable")
    links = (cluster.latency_s, cluster.bandwidth_bytes_per_s)
    unit = units.unit_of_op
    head_s = _heads(
        np.ascontiguousarray(seconds),
        unit,
        graph.tensor_producer,
        graph.tensor_bytes,
        _offsets(graph.edge_consumer, graph.num_ops),
        graph.edge_tensor[by_consumer],
        _offsets(graph.tensor_producer, graph.num_ops),
        *links,
    )
    tail_s = _tails(
        np.ascontiguousarray(seconds),
        unit,
        graph.tensor_producer,
        graph.tensor_bytes,
        _offsets(graph.edge_tensor, graph.num_tensors),
        graph.edge_consumer[by_tensor],
        *links,
    )
    return Paths(head_s=head_s, tail_s=tail_s)


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


def _offsets(keys: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))]).astype(np.int64)


@numba.njit(cache=True)
@typing.no_type_check
def _heads(seconds, unit, producer, size, in_start, in_tensor, out_start, latency, bandwidth):
    num_ops, num_devices = seconds.shape
    head = np.zeros((num_ops, num_devices))
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
def _tails(seconds, unit, producer, size, use_start, use_consumer, latency, bandwidth):
    num_ops, num_devices = seconds.shape
    tail = np.where(seconds == np.inf, np.inf, 0.0)
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
