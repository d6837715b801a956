"""A graph and a cluster as the arrays that the event kernel reads."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32

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
        ("param_bytes", np.int64),
        ("tie", np.int32),  # its number
        ("left", np.int32),
        ("right", np.int32),
        ("missing", np.int32),  # inputs that have not arrived
        ("hold", np.int32),  # the list of its inputs that others need as well
        ("first_output", np.int32),  # the edges that leave it
        ("last_output", np.int32),
        ("first_tensor", np.int32),
        ("num_tensors", np.int32),
    ],
    align=True,
)
"""An op while it is simulated: all that is read together lies together."""

EDGE = np.dtype([("bytes", np.int64), ("consumer", np.int32), ("tensor", np.int32)], align=True)


class Plan(NamedTuple):
    """What stays the same from placement to placement. Edges are in the order of producer, tensor and consumer."""

    op_s: Float64[np.ndarray, "ops devices"]
    """seconds of each op on each device."""
    ops: np.ndarray
    """`[ops]` records of `OP`: how every op begins, but for its device's seconds."""
    edges: np.ndarray
    """`[edges]` records of `EDGE`."""
    source: Int32[np.ndarray, " sources"]
    """the ops without inputs."""
    most_tensors: int
    """the most tensors that any op produces."""
    latency_s: Float64[np.ndarray, "devices devices"]
    bandwidth_bytes_per_s: Float64[np.ndarray, "devices devices"]
    channel: Int32[np.ndarray, "devices devices"]
    """`num_channels` where a pair has none."""
    num_channels: int
    colocation_leader: Int32[np.ndarray, " ops"]
    """the first op of each op's colocation group; itself when it has none."""


@lru_cache(maxsize=64)
def plan_of(graph: Graph, cluster: Cluster) -> Plan:
    """The plan of a graph on a cluster. The last 64 are kept, by identity of the arguments. Raises `InputError` as `check_finite`."""
    check_finite(graph, cluster)
    order = np.lexsort((graph.edge_consumer, graph.edge_tensor))
    consumer, tensor = graph.edge_consumer[order], graph.edge_tensor[order]
    num_inputs = np.bincount(consumer, minlength=graph.num_ops)
    num_outputs = np.bincount(graph.tensor_producer[tensor], minlength=graph.num_ops)
    consumed = np.zeros(graph.num_tensors, np.bool_)
    consumed[tensor] = True

    def per_op(bytes_of_tensor: np.ndarray) -> np.ndarray:
        total = np.zeros(graph.num_ops, np.int64)
        np.add.at(total, graph.tensor_producer, bytes_of_tensor)
        return total

    ops = np.zeros(graph.num_ops, OP)
    ops["claimed_bytes"] = graph.temp_bytes + per_op(graph.tensor_bytes)
    ops["returned_bytes"] = graph.temp_bytes + per_op(np.where(consumed, 0, graph.tensor_bytes))
    ops["param_bytes"] = graph.param_bytes
    ops["tie"] = np.arange(graph.num_ops)
    ops["left"] = ops["right"] = ops["hold"] = -1
    ops["missing"] = num_inputs
    ops["last_output"] = np.cumsum(num_outputs)
    ops["first_output"] = ops["last_output"] - num_outputs
    ops["num_tensors"] = np.bincount(graph.tensor_producer, minlength=graph.num_ops)
    ops["first_tensor"] = np.cumsum(ops["num_tensors"]) - ops["num_tensors"]
    edges = np.zeros(graph.num_edges, EDGE)
    edges["consumer"], edges["tensor"], edges["bytes"] = consumer, tensor, graph.tensor_bytes[tensor]
    leader = np.arange(graph.num_ops, dtype=np.int32)
    grouped = np.flatnonzero(graph.colocation_group != Graph.NO_GROUP)
    _, first, member = np.unique(graph.colocation_group[grouped], return_index=True, return_inverse=True)
    leader[grouped] = grouped[first][member]
    return Plan(
        op_s=op_time_s(graph, cluster),
        ops=ops,
        edges=edges,
        source=np.flatnonzero(num_inputs == 0).astype(np.int32),
        most_tensors=int(ops["num_tensors"].max()),
        latency_s=cluster.latency_s,
        bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s,
        channel=np.where(cluster.channel == Cluster.NO_CHANNEL, cluster.num_channels, cluster.channel).astype(np.int32),
        num_channels=cluster.num_channels,
        colocation_leader=leader,
    )
