"""A graph and a cluster as the arrays that the event kernel reads."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int8, Int32, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.runtime.roofline import op_time_s
from gdp.runtime.verdict import check_finite

OP = np.dtype(
    [
        ("seconds", np.float64),
        ("key", np.float64),  # what its device's queue is ordered by: the moment it became ready, or the rank negated
        ("claimed_bytes", np.int64),  # claimed at its start: its scratch and its outputs
        ("returned_bytes", np.int64),  # given back at its end: its scratch, outputs that nobody consumes, and inputs that nobody else needs
        ("left", np.int32),
        ("right", np.int32),
        ("missing", np.int32),  # inputs that have not arrived
        ("first_here", np.int32),  # its consumers on its own device, in `receivers`
        ("stop_here", np.int32),
        ("first_transfer", np.int32),  # what it sends: from here to the next op's first
        ("first_shared", np.int32),  # its inputs that others need as well, in `shared`
        ("stop_shared", np.int32),
    ],
    align=True,
)
"""An op while it is simulated, all that is read together in one line of cache (64 bytes)."""

EDGE = np.dtype([("bytes", np.int64), ("consumer", np.int32), ("tensor", np.int32)], align=True)

NO_EDGE, ONE_EDGE, FEW_EDGES, MANY_EDGES = 0, 1, 2, 3
"""How an op's tensors are routed: it has no consumer, one, at most `FEW` of a single tensor, or any number."""

FEW = 8
"""Consumers: up to so many, looking at each of them once a device is faster than sorting them."""


class Plan(NamedTuple):
    """What stays the same from placement to placement. Edges are in the order of producer, tensor and consumer."""

    op_s: Float64[np.ndarray, "ops devices"]
    """seconds of each op on each device."""
    ops: np.ndarray
    """`[ops + 1]` records of `OP`: how every op begins, but for its device's seconds."""
    param_bytes: Int64[np.ndarray, " ops"]
    edges: np.ndarray
    """`[edges]` records of `EDGE`."""
    first_edge: Int32[np.ndarray, " ops_and_one"]
    """the edges that leave each op: from here to the next op's first."""
    routing: Int8[np.ndarray, " ops"]
    """`NO_EDGE` to `MANY_EDGES`."""
    first_tensor: Int32[np.ndarray, " ops_and_one"]
    source: Int32[np.ndarray, " sources"]
    """the ops without inputs."""
    most_tensors: int
    """the most tensors that any op produces."""
    latency_s: Float64[np.ndarray, "devices devices"]
    bandwidth_bytes_per_s: Float64[np.ndarray, "devices devices"]
    channel: Int32[np.ndarray, "devices devices"]
    """`num_channels` where a pair has none."""
    num_channels: int
    colocated: Int32[np.ndarray, " colocated"]
    """the ops that must be beside another."""
    leader: Int32[np.ndarray, " colocated"]
    """the first op of each one's colocation group."""


@lru_cache(maxsize=64)
def plan_of(graph: Graph, cluster: Cluster) -> Plan:
    """The plan of a graph on a cluster. The last 64 are kept, by identity of the arguments. Raises `InputError` as `check_finite`."""
    check_finite(graph, cluster)
    order = np.lexsort((graph.edge_consumer, graph.edge_tensor))
    consumer, tensor = graph.edge_consumer[order], graph.edge_tensor[order]
    num_inputs = np.bincount(consumer, minlength=graph.num_ops)
    num_outputs = np.bincount(graph.tensor_producer[tensor], minlength=graph.num_ops)
    num_tensors = np.bincount(graph.tensor_producer, minlength=graph.num_ops)
    consumed = np.zeros(graph.num_tensors, np.bool_)
    consumed[tensor] = True
    num_consumed = np.bincount(graph.tensor_producer[consumed], minlength=graph.num_ops)

    def per_op(bytes_of_tensor: np.ndarray) -> np.ndarray:
        total = np.zeros(graph.num_ops, np.int64)
        np.add.at(total, graph.tensor_producer, bytes_of_tensor)
        return total

    ops = np.zeros(graph.num_ops + 1, OP)
    real = ops[:-1]
    real["claimed_bytes"] = graph.temp_bytes + per_op(graph.tensor_bytes)
    real["returned_bytes"] = graph.temp_bytes + per_op(np.where(consumed, 0, graph.tensor_bytes))
    real["left"] = real["right"] = -1
    real["missing"] = num_inputs
    real["first_shared"] = real["stop_shared"] = _starts(num_inputs)[:-1]
    edges = np.zeros(graph.num_edges, EDGE)
    edges["consumer"], edges["tensor"], edges["bytes"] = consumer, tensor, graph.tensor_bytes[tensor]
    grouped = np.flatnonzero(graph.colocation_group != Graph.NO_GROUP)
    _, first, member = np.unique(graph.colocation_group[grouped], return_index=True, return_inverse=True)
    return Plan(
        op_s=op_time_s(graph, cluster),
        ops=ops,
        param_bytes=graph.param_bytes,
        edges=edges,
        first_edge=_starts(num_outputs),
        routing=np.select(
            [num_outputs == 0, num_outputs == 1, (num_consumed == 1) & (num_outputs <= FEW)], [NO_EDGE, ONE_EDGE, FEW_EDGES], MANY_EDGES
        ).astype(np.int8),
        first_tensor=_starts(num_tensors),
        source=np.flatnonzero(num_inputs == 0).astype(np.int32),
        most_tensors=int(num_tensors.max()),
        latency_s=cluster.latency_s,
        bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s,
        channel=np.where(cluster.channel == Cluster.NO_CHANNEL, cluster.num_channels, cluster.channel).astype(np.int32),
        num_channels=cluster.num_channels,
        colocated=grouped.astype(np.int32),
        leader=grouped[first][member].astype(np.int32),
    )


def _starts(lengths: np.ndarray) -> Int32[np.ndarray, " starts"]:
    """Where each of the ranges of these lengths begins when they stand one after the other, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
