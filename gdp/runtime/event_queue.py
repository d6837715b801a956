"""Queues of ops and of transfers, compiled.

Items come at moments that never decrease. A queue is therefore a linked list that is appended to, and a skew heap (Sleator and Tarjan, SIAM J. Comput.
1986) for the rare item that comes before the tail: same moment, lower tie. The links and keys are fields of the items' own records (`plan.OP`, `scratch.TRANSFER`).
"""

from typing import no_type_check

from numpy import uintp

from gdp.runtime.compiled import compile_inline, compile_kernel

NONE = -1
"""No item."""

READY_ORDER, PROGRAM_ORDER, PRIORITY = 0, 1, 2


@compile_kernel
@no_type_check
def meld(one, other, items):
    """The skew heap of two; the least (key, tie) is at its root."""
    if one == NONE:
        return other
    if other == NONE:
        return one
    if items[uintp(other)].key < items[uintp(one)].key or (
        items[uintp(other)].key == items[uintp(one)].key and items[uintp(other)].tie < items[uintp(one)].tie
    ):
        one, other = other, one
    root = one
    while True:
        rest = items[uintp(one)].right
        items[uintp(one)].right = items[uintp(one)].left
        if rest == NONE:
            items[uintp(one)].left = other
            return root
        if items[uintp(other)].key < items[uintp(rest)].key or (
            items[uintp(other)].key == items[uintp(rest)].key and items[uintp(other)].tie < items[uintp(rest)].tie
        ):
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
    if queues[uintp(queue)].head == NONE:
        queues[uintp(queue)].head = item
        queues[uintp(queue)].tail = item
    elif now > items[uintp(queues[uintp(queue)].tail)].key or items[uintp(item)].tie > items[uintp(queues[uintp(queue)].tail)].tie:
        items[uintp(queues[uintp(queue)].tail)].right = item
        queues[uintp(queue)].tail = item
    else:
        queues[uintp(queue)].root = insert(queues[uintp(queue)].root, item, items)


@compile_inline
@no_type_check
def take(queues, queue, items):
    """Takes the least (moment, tie) out of a queue; `NONE` when it is empty."""
    item = queues[uintp(queue)].head
    early = queues[uintp(queue)].root
    if early != NONE and (
        item == NONE
        or items[uintp(early)].key < items[uintp(item)].key
        or (items[uintp(early)].key == items[uintp(item)].key and items[uintp(early)].tie < items[uintp(item)].tie)
    ):
        item = early
        queues[uintp(queue)].root = meld(items[uintp(early)].left, items[uintp(early)].right, items)
    elif item != NONE:
        queues[uintp(queue)].head = NONE if item == queues[uintp(queue)].tail else items[uintp(item)].right
    return item


@compile_inline
@no_type_check
def arrive(consumer, at, now, dispatch, devices, ops):
    """One input of an op has arrived."""
    ops[uintp(consumer)].missing -= 1
    if ops[uintp(consumer)].missing == 0:
        if dispatch == READY_ORDER:
            append(devices, at, consumer, now, ops)
        elif dispatch == PRIORITY:
            devices[uintp(at)].root = insert(devices[uintp(at)].root, consumer, ops)
