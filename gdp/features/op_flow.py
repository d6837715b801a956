"""The ops behind the groups, as a schedule that is drawn up op by op reads them: whatever the grain of the decisions, time passes op by op."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.runtime.floating import floating_ops
from gdp.runtime.offsets import offsets


class OpFlow(NamedTuple):
    """Times are in units of an ideal step, as in `GraphTensors`. The tensors that an op consumes or makes, and the consumers of a tensor, lie together between two offsets."""

    time: Float64[np.ndarray, "ops devices"]
    group_of_op: Int32[np.ndarray, " ops"]
    first_op: Int64[np.ndarray, " groups"]
    """the first op of each group in the program's order."""
    floating: Bool[np.ndarray, " ops"]
    """those of `gdp.runtime.floating`."""
    tensor_producer: Int32[np.ndarray, " tensors"]
    tensor_bytes: Float64[np.ndarray, " tensors"]
    in_start: Int64[np.ndarray, " ops_and_end"]
    in_tensor: Int32[np.ndarray, " edges"]
    out_start: Int64[np.ndarray, " ops_and_end"]
    out_tensor: Int32[np.ndarray, " tensors"]
    use_start: Int64[np.ndarray, " tensors_and_end"]
    use_consumer: Int32[np.ndarray, " edges"]
    temp_bytes: Float64[np.ndarray, " ops"]
    memory_bytes: Float64[np.ndarray, " devices"]
    latency: Float64[np.ndarray, "devices devices"]
    time_per_byte: Float64[np.ndarray, "devices devices"]
    channel: Int32[np.ndarray, "devices devices"]
    """-1 where transfers do not wait for each other."""
    num_channels: int


def op_flow(graph: Graph, cluster: Cluster, grouping: Grouping, *, op_s: Float64[np.ndarray, "ops devices"], unit_s: float) -> OpFlow:
    """The ops of `graph` on `cluster`, in units of `unit_s` seconds; `op_s` are their seconds."""
    by_consumer, by_tensor = np.argsort(graph.edge_consumer, kind="stable"), np.argsort(graph.edge_tensor, kind="stable")
    same = np.eye(cluster.num_devices, dtype=bool)
    time_per_byte = np.zeros_like(cluster.bandwidth_bytes_per_s)
    time_per_byte[~same] = 1.0 / cluster.bandwidth_bytes_per_s[~same]
    return OpFlow(
        time=np.ascontiguousarray(op_s / unit_s),
        group_of_op=grouping.group_of_op,
        first_op=np.unique(grouping.group_of_op, return_index=True)[1],
        floating=floating_ops(graph, op_s),
        tensor_producer=graph.tensor_producer,
        tensor_bytes=graph.tensor_bytes.astype(np.float64),
        in_start=offsets(graph.edge_consumer, graph.num_ops),
        in_tensor=graph.edge_tensor[by_consumer],
        out_start=offsets(graph.tensor_producer, graph.num_ops),
        out_tensor=np.argsort(graph.tensor_producer, kind="stable").astype(np.int32),
        use_start=offsets(graph.edge_tensor, graph.num_tensors),
        use_consumer=graph.edge_consumer[by_tensor],
        temp_bytes=graph.temp_bytes.astype(np.float64),
        memory_bytes=np.maximum(cluster.memory_bytes, 1).astype(np.float64),
        latency=np.where(same, 0.0, cluster.latency_s) / unit_s,
        time_per_byte=time_per_byte / unit_s,
        channel=cluster.channel,
        num_channels=cluster.num_channels,
    )
