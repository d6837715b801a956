"""The graph of groups: what partitioners see after coarsening.

In the shape descriptions, `groups` and `links` are the numbers of groups and of tensors that one group sends another.
"""

import dataclasses

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster
from gdp.graph import Graph, Phase
from gdp.runtime.roofline import op_time_s


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Quotient:
    """Groups of ops with the work in each, and the tensors between them. It may be cyclic."""

    time_s: Float64[np.ndarray, "groups devices"]
    """seconds of a group's ops on each device."""
    param_bytes: Int64[np.ndarray, " groups"]
    link_from: Int32[np.ndarray, " links"]
    link_to: Int32[np.ndarray, " links"]
    """one link per tensor and consuming group other than the producer's."""
    link_bytes: Int64[np.ndarray, " links"]


def quotient(graph: Graph, cluster: Cluster, grouping: Grouping) -> Quotient:
    """The graph of the groups of `grouping`."""
    seconds = op_time_s(graph, cluster)
    time_s = np.stack(
        [np.bincount(grouping.group_of_op, seconds[:, d], minlength=grouping.num_groups) for d in range(cluster.num_devices)], axis=1
    )
    param_bytes = np.zeros(grouping.num_groups, np.int64)
    np.add.at(param_bytes, grouping.group_of_op, graph.param_bytes)
    target = grouping.group_of_op[graph.edge_consumer].astype(np.int64)
    tensor, link_to = np.divmod(np.unique(graph.edge_tensor.astype(np.int64) * grouping.num_groups + target), grouping.num_groups)
    link_from = grouping.group_of_op[graph.tensor_producer[tensor]]
    crosses = (link_from != link_to) & (graph.tensor_bytes[tensor] > 0)
    return Quotient(
        time_s=time_s,
        param_bytes=param_bytes,
        link_from=link_from[crosses],
        link_to=link_to[crosses].astype(np.int32),
        link_bytes=graph.tensor_bytes[tensor[crosses]],
    )


def resident_bytes(graph: Graph, grouping: Grouping) -> Int64[np.ndarray, " groups"]:
    """The parameters and outputs of each group: what a device holds that has the group, if it keeps every tensor until the end of the step."""
    total = np.zeros(grouping.num_groups, np.int64)
    np.add.at(total, grouping.group_of_op, graph.param_bytes)
    np.add.at(total, grouping.group_of_op[graph.tensor_producer], graph.tensor_bytes)
    return total


def stage_order(graph: Graph, grouping: Grouping) -> Int64[np.ndarray, " groups"]:
    """The groups in the order in which an expert would cut the model into stages: a backward op stands with the forward op whose activation it reads.

    An op's place is its number in topological order; a later phase's op that reads forward tensors takes the last of their producers' places, one that
    reads none takes the last place among its producers. A group's place is the mean of its ops' places, weighted by their accessed bytes.
    """
    place = np.arange(graph.num_ops, dtype=np.float64)
    later = (graph.phase == Phase.BACKWARD) | (graph.phase == Phase.UPDATE)
    if later.any():
        forward, other = np.full(graph.num_ops, -1.0), np.full(graph.num_ops, -1.0)
        order = np.argsort(graph.edge_consumer, kind="stable")
        for producer, consumer in zip(graph.edge_producer[order].tolist(), graph.edge_consumer[order].tolist(), strict=True):
            if not later[consumer]:
                continue
            if later[producer]:
                inherited = forward[producer] if forward[producer] >= 0 else other[producer]
                other[consumer] = max(other[consumer], inherited)
            else:
                forward[consumer] = max(forward[consumer], place[producer])
        place = np.where(later & (forward >= 0), forward, np.where(later & (other >= 0), other, place))
    weight = graph.accessed_bytes + 1.0
    total = np.bincount(grouping.group_of_op, weight, minlength=grouping.num_groups)
    mean = np.bincount(grouping.group_of_op, weight * place, minlength=grouping.num_groups) / total
    return np.argsort(mean, kind="stable")
