"""A graph and a cluster as the arrays that the event kernel reads."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.runtime.roofline import op_time_s
from gdp.runtime.verdict import check_finite


class Plan(NamedTuple):
    """What stays the same from placement to placement. Edges are numbered by producer, tensor and consumer."""

    op_s: Float64[np.ndarray, "ops devices"]
    """seconds of each op on each device."""
    param_bytes: Int64[np.ndarray, " ops"]
    claimed_bytes: Int64[np.ndarray, " ops"]
    """claimed when an op starts: its scratch and its outputs."""
    returned_bytes: Int64[np.ndarray, " ops"]
    """given back when it ends: its scratch and the outputs that nobody consumes."""
    source: Int32[np.ndarray, " sources"]
    """the ops without inputs."""
    num_inputs: Int32[np.ndarray, " ops"]
    first_input: Int32[np.ndarray, " ops_and_one"]
    """where each op's edges begin in the order of consumers."""
    first_output: Int32[np.ndarray, " ops_and_one"]
    """where the edges that leave each op begin."""
    edge_consumer: Int32[np.ndarray, " edges"]
    edge_tensor: Int32[np.ndarray, " edges"]
    edge_input: Int32[np.ndarray, " edges"]
    """the place of each edge in the order of consumers."""
    tensor_producer: Int32[np.ndarray, " tensors"]
    tensor_bytes: Int64[np.ndarray, " tensors"]
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
    by_consumer = np.argsort(consumer, kind="stable")
    edge_input = np.empty(graph.num_edges, np.int32)
    edge_input[by_consumer] = np.arange(graph.num_edges, dtype=np.int32)
    num_inputs = np.bincount(consumer, minlength=graph.num_ops)
    num_outputs = np.bincount(graph.tensor_producer[tensor], minlength=graph.num_ops)
    consumed = np.zeros(graph.num_tensors, np.bool_)
    consumed[tensor] = True

    def per_op(bytes_of_tensor: np.ndarray) -> np.ndarray:
        total = np.zeros(graph.num_ops, np.int64)
        np.add.at(total, graph.tensor_producer, bytes_of_tensor)
        return total

    leader = np.arange(graph.num_ops, dtype=np.int32)
    grouped = np.flatnonzero(graph.colocation_group != Graph.NO_GROUP)
    _, first, member = np.unique(graph.colocation_group[grouped], return_index=True, return_inverse=True)
    leader[grouped] = grouped[first][member]
    return Plan(
        op_s=op_time_s(graph, cluster),
        param_bytes=graph.param_bytes,
        claimed_bytes=graph.temp_bytes + per_op(graph.tensor_bytes),
        returned_bytes=graph.temp_bytes + per_op(np.where(consumed, 0, graph.tensor_bytes)),
        source=np.flatnonzero(num_inputs == 0).astype(np.int32),
        num_inputs=num_inputs.astype(np.int32),
        first_input=np.concatenate([[0], np.cumsum(num_inputs)]).astype(np.int32),
        first_output=np.concatenate([[0], np.cumsum(num_outputs)]).astype(np.int32),
        edge_consumer=consumer,
        edge_tensor=tensor,
        edge_input=edge_input,
        tensor_producer=graph.tensor_producer,
        tensor_bytes=graph.tensor_bytes,
        latency_s=cluster.latency_s,
        bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s,
        channel=np.where(cluster.channel == Cluster.NO_CHANNEL, cluster.num_channels, cluster.channel).astype(np.int32),
        num_channels=cluster.num_channels,
        colocation_leader=leader,
    )
