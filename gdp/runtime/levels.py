"""Longest paths through a graph of timed ops, before and after every op."""

import numpy as np
from jaxtyping import Float64

from gdp.cluster import Cluster
from gdp.graph import Graph


def t_level(graph: Graph, time: Float64[np.ndarray, " ops"], transfer: Float64[np.ndarray, " edges"]) -> Float64[np.ndarray, " ops"]:
    """The longest path of times and transfers that ends just before each op (0 for sources).

    With mean times and mean transfers it is HEFT's downward rank (Topcuoglu et al., TPDS 2002, equation 10).
    """
    before = [0.0] * graph.num_ops
    seconds = time.tolist()
    order = np.argsort(graph.edge_consumer, kind="stable")
    edges = zip(graph.edge_producer[order].tolist(), graph.edge_consumer[order].tolist(), transfer[order].tolist(), strict=True)
    for producer, consumer, transfer_time in edges:
        length = before[producer] + seconds[producer] + transfer_time
        if length > before[consumer]:
            before[consumer] = length
    return np.array(before)


def b_level(graph: Graph, time: Float64[np.ndarray, " ops"], transfer: Float64[np.ndarray, " edges"]) -> Float64[np.ndarray, " ops"]:
    """The longest path of times and transfers that starts with each op, itself included.

    With mean times and mean transfers it is HEFT's upward rank (Topcuoglu et al., TPDS 2002, equation 8).
    """
    after = [0.0] * graph.num_ops
    seconds = time.tolist()
    order = np.argsort(-graph.edge_producer, kind="stable")
    edges = zip(graph.edge_producer[order].tolist(), graph.edge_consumer[order].tolist(), transfer[order].tolist(), strict=True)
    for producer, consumer, transfer_time in edges:
        length = after[consumer] + seconds[consumer] + transfer_time
        if length > after[producer]:
            after[producer] = length
    return np.asarray(np.array(after) + time)


def mean_transfer_s(cluster: Cluster, size_bytes: Float64[np.ndarray, " *sizes"]) -> Float64[np.ndarray, " *sizes"]:
    """Seconds of a transfer of each size, the mean over all ordered pairs of devices; none on a single device."""
    pairs = ~np.eye(cluster.num_devices, dtype=bool)
    if not pairs.any():
        return np.zeros_like(size_bytes)
    return np.asarray(cluster.latency_s[pairs].mean() + (1.0 / cluster.bandwidth_bytes_per_s[pairs]).mean() * size_bytes)
