"""Ops that a schedule need not give a time."""

import numpy as np
from jaxtyping import Bool, Float64

from gdp.graph import Graph


def floating_ops(graph: Graph, seconds: Float64[np.ndarray, "ops devices"]) -> Bool[np.ndarray, " ops"]:
    """Ops that take no time and wait for none that does (a variable, a constant, a view of one): they are decided with whoever needs them first."""
    idle = (seconds == 0).all(axis=1)
    edges = np.flatnonzero(idle[graph.edge_consumer])
    edges = edges[np.argsort(graph.edge_consumer[edges], kind="stable")]
    floating = idle.tolist()
    for producer, consumer in zip(graph.edge_producer[edges].tolist(), graph.edge_consumer[edges].tolist(), strict=True):
        floating[consumer] = floating[consumer] and floating[producer]
    return np.array(floating, np.bool_)
