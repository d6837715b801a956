"""Queues of ops and of transfers, compiled.

Items come at moments that never decrease. A queue is therefore a linked list that is appended to, and a skew heap (Sleator and Tarjan, SIAM J. Comput.
1986) for the rare item that comes before the tail: same moment, lower tie. The links and keys are fields of the items' own records (`plan.OP`, `scratch.TRANSFER`).
"""

from typing import no_type_check

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
    if items[other].key < items[one].key or (items[other].key == items[one].key and items[other].tie < items[one].tie):
        one, other = other, one
    root = one
    while True:
        rest = items[one].right
        items[one].right = items[one].left
        if rest == NONE:
            items[one].left = other
            return root
        if items[other].key < items[rest].key or (items[other].key == items[rest].key and items[other].tie < items[rest].tie):
            rest, other = other, rest
        items[one].left = rest
        one = rest


@compile_kernel
@no_type_check
def insert(root, item, items):
    items[item].left = NONE
    items[item].right = NONE
    return meld(root, item, items)


@compile_inline
@no_type_check
def append(queues, queue, item, now, items):
    """Puts an item into a queue at a moment that is not before the last one's."""
    items[item].key = now
    if queues[queue].head == NONE:
        queues[queue].head = item
        queues[queue].tail = item
    elif now > items[queues[queue].tail].key or items[item].tie > items[queues[queue].tail].tie:
        items[queues[queue].tail].right = item
        queues[queue].tail = item
    else:
        queues[queue].root = insert(queues[queue].root, item, items)


@compile_inline
@no_type_check
def take(queues, queue, items):
    """Takes the least (moment, tie) out of a queue; `NONE` when it is empty."""
    item = queues[queue].head
    early = queues[queue].root
    if early != NONE and (
        item == NONE or items[early].key < items[item].key or (items[early].key == items[item].key and items[early].tie < items[item].tie)
    ):
        item = early
        queues[queue].root = meld(items[early].left, items[early].right, items)
    elif item != NONE:
        queues[queue].head = NONE if item == queues[queue].tail else items[item].right
    return item


@compile_inline
@no_type_check
def arrive(consumer, at, now, dispatch, devices, ops):
    """One input of an op has arrived."""
    ops[consumer].missing -= 1
    if ops[consumer].missing == 0:
        if dispatch == READY_ORDER:
            append(devices, at, consumer, now, ops)
        elif dispatch == PRIORITY:
            devices[at].root = insert(devices[at].root, consumer, ops)
