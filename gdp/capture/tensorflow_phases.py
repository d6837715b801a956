"""Which part of a training step each op of a TensorFlow graph belongs to.

1. *Backward*: ops under a scope that TensorFlow gives to gradients (`gradient_tape`, `gradients`, `gradients_1`), ops on a data path between two of those, and
   sums (`AddN`) of backward ops alone.
2. *Update*: ops downstream of the backward ones that write a variable or lead to such a write (clipping, momentum, the assignment); and writes that depend
   on no input of the step, with what feeds them (the iteration counter).
3. Other ops downstream of the backward ones (a gradient that is returned) are *backward*, too.
4. *Other*: `NoOp`, which only orders.
5. *Forward*: the rest. Constants, variables, inputs, and what is computed from constants and variables alone, belong to the earliest phase that consumes them.
"""

import re
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Int8, Int64

from gdp.graph import Phase

_GRADIENT_SCOPE = re.compile(r"(?:^|/)(?:gradient_tape|gradients(?:_\d+)?)/")


def phases(
    op_type: Sequence[str], name: Sequence[str], writes: Bool[np.ndarray, " ops"], edges: Int64[np.ndarray, "edges 2"]
) -> Int8[np.ndarray, " ops"]:
    """A `Phase` per op of a graph in topological order.

    Args:
        op_type: `[ops]`
        name: `[ops]`
        writes: which ops write a variable.
        edges: rows `(producer, consumer)` that carry data.
    """
    producers, consumers = _neighbours(len(op_type), edges)
    gradient = [_GRADIENT_SCOPE.search(one) is not None for one in name]
    order = range(len(op_type))

    after, fed, varies = list(gradient), list(gradient), [False] * len(op_type)
    for op in order:
        after[op] = gradient[op] or any(after[producer] for producer in producers[op])
        varies[op] = op_type[op].startswith("Placeholder") or any(varies[producer] for producer in producers[op])
    leads_to_write = writes.tolist()
    for op in reversed(order):
        fed[op] = gradient[op] or any(fed[consumer] for consumer in consumers[op])
        leads_to_write[op] = leads_to_write[op] or any(leads_to_write[consumer] for consumer in consumers[op])

    phase = [Phase.FORWARD] * len(op_type)
    for op in order:
        if op_type[op] == "NoOp":
            phase[op] = Phase.OTHER
        elif gradient[op] or (after[op] and fed[op]):
            phase[op] = Phase.BACKWARD
        elif after[op]:
            summed = op_type[op] == "AddN" and all(phase[producer] == Phase.BACKWARD for producer in producers[op])
            phase[op] = Phase.UPDATE if leads_to_write[op] and not summed else Phase.BACKWARD
        elif writes[op] and not varies[op] and any(gradient):
            phase[op] = Phase.UPDATE
    for op in reversed(order):
        source = not varies[op] or op_type[op].startswith("Placeholder")
        if phase[op] == Phase.FORWARD and source and consumers[op]:
            phase[op] = min(phase[consumer] for consumer in consumers[op])
    return np.array(phase, np.int8)


def _neighbours(num_ops: int, edges: np.ndarray) -> tuple[list[list[int]], list[list[int]]]:
    producers: list[list[int]] = [[] for _ in range(num_ops)]
    consumers: list[list[int]] = [[] for _ in range(num_ops)]
    for producer, consumer in edges.tolist():
        producers[consumer].append(producer)
        consumers[producer].append(consumer)
    return producers, consumers
