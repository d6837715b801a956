"""Which ops of a TensorFlow graph must share a device."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int32

from gdp.capture.disjoint_sets import DisjointSets
from gdp.capture.tensorflow_tensors import is_handle
from gdp.graph import Graph


def colocation_groups(ops: Sequence[Any], place: Mapping[str, int]) -> Int32[np.ndarray, " ops"]:
    """A number per set of ops that must share a device, in the order of their first ops; `Graph.NO_GROUP` for the free ones.

    Held together are a variable and every op that takes its handle, through however many hands, and ops that name one another in `_class` (`loc:@...`).

    Args:
        ops: the operations of a `tf.Graph` that are captured.
        place: the index in `ops` of each name.
    """
    together = DisjointSets(len(ops))
    # A group that is named after a node left out still holds its members together.
    absent: dict[str, int] = {}
    for number, op in enumerate(ops):
        for tensor in op.inputs:
            if is_handle(tensor, op):
                together.join(place[tensor.op.name], number)
        for label in op.node_def.attr["_class"].list.s if "_class" in op.node_def.attr else ():
            other = label.decode().removeprefix("loc:@")
            together.join(place[other] if other in place else absent.setdefault(other, number), number)
    labels = together.labels()
    shared = np.bincount(labels)[labels] > 1
    groups = np.full(len(ops), Graph.NO_GROUP, np.int32)
    _, groups[shared] = np.unique(labels[shared], return_inverse=True)
    return groups
