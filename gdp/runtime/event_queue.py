"""Queues of ops and of transfers, compiled.

Items come at moments that never decrease. A queue is therefore a linked list that is appended to, and a skew heap (Sleator and Tarjan, SIAM J. Comput.
1986) for the rare item that comes before the tail: same moment, lower number. The links and keys are fields of the items' own records (`plan.OP`, `scratch.TRANSFER`).
An index that numba knows to be unsigned costs one instruction, any other three: hence `uintp`.
"""

from typing import no_type_check

from numpy import uintp

from gdp.runtime.numba_options import compile_inline, compile_kernel

NONE = -1
"""No item."""

READY_ORDER, PROGRAM_ORDER, PRIORITY = 0, 1, 2
"""`Dispatch` as the kernel reads it."""


@compile_kernel
@no_type_check
def meld(one, other, items):
    """The skew heap of two; the least (key, number) is at its root."""
    if one == NONE:
        return other
    if other == NONE:
        return one
    if items[uintp(other)].key < items[uintp(one)].key or (items[uintp(other)].key == items[uintp(one)].key and other < one):
        one, other = other, one
    root = one
    while True:
        rest = items[uintp(one)].right
        items[uintp(one)].right = items[uintp(one)].left
        if rest == NONE:
            items[uintp(one)].left = other
            return root
        if items[uintp(other)].key < items[uintp(rest)].key or (items[uintp(other)].key == items[uintp(rest)].key and other < rest):
            rest, other = other, rest
        items[uintp(one)].left = rest
        one = rest


@compile_kernel
@no_type_check
def insert(root, item, items):
    items[uintp(item)].left = NONE
    items[uintp(item)].right = NONE
    return meld(root, item, items)


@compile_inline
@no_type_check
def append(queues, queue, item, now, items):
    """Puts an item into a queue at a moment that is not before the last one's."""
    items[uintp(item)].key = now
    tail = queues[uintp(queue)].tail
    if queues[uintp(queue)].head == NONE:
        queues[uintp(queue)].head = item
        queues[uintp(queue)].tail = item
    elif item > tail or now > items[uintp(tail)].key:
        items[uintp(tail)].right = item
        queues[uintp(queue)].tail = item
    else:
        queues[uintp(queue)].root = insert(queues[uintp(queue)].root, item, items)


@compile_inline
@no_type_check
def take(queues, queue, items):
    """Takes the least (moment, number) out of a queue; `NONE` when it is empty."""
    item = queues[uintp(queue)].head
    early = queues[uintp(queue)].root
    if early != NONE and (
        item == NONE
        or items[uintp(early)].key < items[uintp(item)].key
        or (items[uintp(early)].key == items[uintp(item)].key and early < item)
    ):
        item = early
        queues[uintp(queue)].root = meld(items[uintp(early)].left, items[uintp(early)].right, items)
    elif item != NONE:
        queues[uintp(queue)].head = NONE if item == queues[uintp(queue)].tail else items[uintp(item)].right
    return item
