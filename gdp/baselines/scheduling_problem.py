"""A graph, a cluster and a grouping as the arrays that the compiled schedulers read."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.runtime.floating import floating_ops
from gdp.runtime.levels import mean_transfer_s
from gdp.runtime.offsets import offsets
from gdp.runtime.roofline import op_time_s


class SchedulingProblem(NamedTuple):
    """What stays the same while ops are decided. The tensors that an op consumes, and the consumers of a tensor, lie together between two offsets."""

    op_s: Float64[np.ndarray, "ops devices"]
    group_of_op: Int32[np.ndarray, " ops"]
    group_s: Float64[np.ndarray, "groups devices"]
    """seconds of all ops of a group."""
    group_param_bytes: Int64[np.ndarray, " groups"]
    temp_bytes: Int64[np.ndarray, " ops"]
    tensor_producer: Int32[np.ndarray, " tensors"]
    tensor_bytes: Int64[np.ndarray, " tensors"]
    mean_transfer_s: Float64[np.ndarray, " tensors"]
    """seconds of the tensor's transfer, the mean over pairs of devices."""
    in_start: Int64[np.ndarray, " ops_and_end"]
    in_tensor: Int32[np.ndarray, " edges"]
    use_start: Int64[np.ndarray, " tensors_and_end"]
    use_consumer: Int32[np.ndarray, " edges"]
    out_start: Int64[np.ndarray, " ops_and_end"]
    """the tensors that an op produces."""
    floating: Bool[np.ndarray, " ops"]
    """those of `gdp.runtime.floating`."""
    memory_bytes: Int64[np.ndarray, " devices"]
    bandwidth_bytes_per_s: Float64[np.ndarray, "devices devices"]
    latency_s: Float64[np.ndarray, "devices devices"]
    channel: Int32[np.ndarray, "devices devices"]
    num_channels: int


@lru_cache(maxsize=8)
def scheduling_problem(graph: Graph, cluster: Cluster, grouping: Grouping) -> SchedulingProblem:
    """The arrays of `graph` on `cluster`, the groups of `grouping` to be decided as wholes. The last 8 answers are kept, by identity of the arguments."""
    seconds = op_time_s(graph, cluster)
    group_s = np.zeros((grouping.num_groups, cluster.num_devices))
    np.add.at(group_s, grouping.group_of_op, seconds)
    group_params = np.zeros(grouping.num_groups, np.int64)
    np.add.at(group_params, grouping.group_of_op, graph.param_bytes)
    by_consumer = np.argsort(graph.edge_consumer, kind="stable")
    by_tensor = np.argsort(graph.edge_tensor, kind="stable")
    return SchedulingProblem(
        op_s=seconds,
        group_of_op=grouping.group_of_op,
        group_s=group_s,
        group_param_bytes=group_params,
        temp_bytes=graph.temp_bytes,
        tensor_producer=graph.tensor_producer,
        tensor_bytes=graph.tensor_bytes,
        mean_transfer_s=mean_transfer_s(cluster, graph.tensor_bytes.astype(np.float64)),
        in_start=offsets(graph.edge_consumer, graph.num_ops),
        in_tensor=graph.edge_tensor[by_consumer],
        use_start=offsets(graph.edge_tensor, graph.num_tensors),
        use_consumer=graph.edge_consumer[by_tensor],
        out_start=offsets(graph.tensor_producer, graph.num_ops),
        floating=floating_ops(graph, seconds),
        memory_bytes=cluster.memory_bytes,
        bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s,
        latency_s=cluster.latency_s,
        channel=cluster.channel,
        num_channels=cluster.num_channels,
    )
