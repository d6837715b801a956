"""Which ops of a TensorFlow graph must share a device."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int32

from gdp.capture.tensorflow_tensors import is_handle
from gdp.graph import Graph


def colocation_groups(ops: Sequence[Any], place: Mapping[str, int]) -> Int32[np.ndarray, " ops"]:
    """A number per set of ops that must share a device, in the order of their first ops; `Graph.NO_GROUP` for the free ones.

    Held together are a variable and every op that takes its handle, through however many hands, and ops that name one another in `_class` (`loc:@...`).

    Args:
        ops: the operations of a `tf.Graph` that are captured.
        place: the index in `ops` of each name.
    """
    root = list(range(len(ops)))

    def find(op: int) -> int:
        while root[op] != op:
            root[op] = root[root[op]]
            op = root[op]
        return op

    def unite(one: int, other: int) -> None:
        first, second = sorted((find(one), find(other)))
        root[second] = first

    # A group that is named after a node left out still holds its members together.
    absent: dict[str, int] = {}
    for number, op in enumerate(ops):
        for tensor in op.inputs:
            if is_handle(tensor, op):
                unite(place[tensor.op.name], number)
        for label in op.node_def.attr["_class"].list.s if "_class" in op.node_def.attr else ():
            other = label.decode().removeprefix("loc:@")
            unite(place[other] if other in place else absent.setdefault(other, number), number)
    sizes = Counter(find(op) for op in range(len(ops)))
    groups: dict[int, int] = {}
    return np.array(
        [groups.setdefault(find(op), len(groups)) if sizes[find(op)] > 1 else Graph.NO_GROUP for op in range(len(ops))], np.int32
    )
