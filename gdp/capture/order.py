"""A topological order that leaves a captured program as it was traced, as far as its data dependencies allow."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from gdp.errors import InputError

_UNSEEN, _OPEN, _DONE = 0, 1, 2
_SHOWN = 6


def topological_order(num_ops: int, edges: Int64[np.ndarray, "edges 2"], names: Sequence[str]) -> Int64[np.ndarray, " {num_ops}"]:
    """Every op after the ops it depends on: `order[i]` is the op that stands at place `i`.

    The ops are taken as they are numbered, and each is preceded by those of its producers that have not been placed yet, depth first, in the order
    of `edges`. So an order that is already topological comes back unchanged, and where it is not, producers land right before their first consumer.

    Args:
        num_ops: how many ops there are.
        edges: rows `(producer, consumer)`; repeated rows are harmless.
        names: of the ops, for the error.

    Raises:
        InputError: when the ops depend on each other in a circle; the message names them.
    """
    grouped = np.argsort(edges[:, 1], kind="stable")
    producers = edges[grouped, 0].tolist()
    first = np.searchsorted(edges[grouped, 1], np.arange(num_ops + 1)).tolist()
    state = bytearray(num_ops)
    cursor = first[:-1]
    order: list[int] = []
    for root in range(num_ops):
        if state[root] != _UNSEEN:
            continue
        state[root] = _OPEN
        stack = [root]
        while stack:
            op = stack[-1]
            place = cursor[op]
            if place == first[op + 1]:
                state[op] = _DONE
                order.append(op)
                stack.pop()
                continue
            cursor[op] = place + 1
            producer = producers[place]
            if state[producer] == _UNSEEN:
                state[producer] = _OPEN
                stack.append(producer)
            elif state[producer] == _OPEN:
                raise _cyclic(stack[stack.index(producer) :], names)
    return np.array(order, np.int64)


def _cyclic(stack: Sequence[int], names: Sequence[str]) -> InputError:
    """The ops of `stack` each consume the next, and the last consumes the first."""
    circle = [names[op] for op in reversed(stack)]
    shown = circle if len(circle) <= _SHOWN else [*circle[: _SHOWN - 1], f"({len(circle) - _SHOWN} more)", circle[-1]]
    return InputError(
        f"the ops depend on each other in a circle, {' -> '.join([*shown, circle[0]])}: a cyclic graph cannot be placed; "
        "capture the body of the loop, or unroll it"
    )
