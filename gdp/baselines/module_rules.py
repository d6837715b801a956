"""From devices of some ops to a whole placement: what modules do not say follows the data, and colocation groups stay together."""

import numpy as np
from jaxtyping import Int32

from gdp.graph import Graph, Phase

UNSAID = -1
"""The device of an op of which nothing is said."""


def follow_data(graph: Graph, device: Int32[np.ndarray, " ops"]) -> Int32[np.ndarray, " ops"]:
    """The same devices, with one for every op.

    An op of which nothing is said goes where its largest input is, a backward or update op where its largest forward input is, as frameworks place gradients; one
    without such an input, where its first consumer is; one without either, on device 0. A colocation group goes where its member with most parameters is, of equals the first.
    """
    found = device.tolist()
    later = ((graph.phase == Phase.BACKWARD) | (graph.phase == Phase.UPDATE)).tolist()
    size, producers, consumers = graph.tensor_bytes[graph.edge_tensor], graph.edge_producer, graph.edge_consumer
    heaviest = [(False, -1)] * graph.num_ops
    order = np.lexsort((producers, consumers))
    for producer, consumer, count in zip(producers[order].tolist(), consumers[order].tolist(), size[order].tolist(), strict=True):
        if device[consumer] == UNSAID and found[producer] != UNSAID:
            weight = (later[consumer] and not later[producer], count)
            if weight > heaviest[consumer]:
                heaviest[consumer], found[consumer] = weight, found[producer]
    order = np.lexsort((-consumers, -producers))
    for producer, consumer in zip(producers[order].tolist(), consumers[order].tolist(), strict=True):
        if heaviest[producer] == (False, -1) and device[producer] == UNSAID and found[consumer] != UNSAID:
            found[producer] = found[consumer]
    whole = np.maximum(np.array(found, np.int32), 0)
    members = np.flatnonzero(graph.colocation_group != Graph.NO_GROUP)
    members = members[np.lexsort((members, -graph.param_bytes[members], graph.colocation_group[members]))]
    groups, first = np.unique(graph.colocation_group[members], return_index=True)
    whole[members] = whole[members[first]][np.searchsorted(groups, graph.colocation_group[members])]
    return whole


def path_parts(path: str) -> tuple[str, ...]:
    """The names in a dotted module path, or in a scope with `/`."""
    return tuple(part for part in path.replace("/", ".").split(".") if part)
