"""A binary heap of (moment, op) pairs on arrays that are handed to it; `heapq` allocates, which kernels without reference counts may not."""

from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float64, Int64

from gdp.runtime.numba_options import compile_kernel


class ReadyHeap(NamedTuple):
    """The earliest pair is at the root, of equal moments the one of the lower op."""

    moment: Float64[np.ndarray, " most"]
    op: Int64[np.ndarray, " most"]
    size: Int64[np.ndarray, " one"]


def ready_heap(most: int) -> ReadyHeap:
    """An empty heap with room for `most` pairs."""
    return ReadyHeap(np.empty(most), np.empty(most, np.int64), np.zeros(1, np.int64))


@compile_kernel
@no_type_check
def push(heap, moment, op):
    place = heap.size[0]
    heap.size[0] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if heap.moment[parent] < moment or (heap.moment[parent] == moment and heap.op[parent] < op):
            break
        heap.moment[place], heap.op[place] = heap.moment[parent], heap.op[parent]
        place = parent
    heap.moment[place], heap.op[place] = moment, op


@compile_kernel
@no_type_check
def pop(heap):
    """Takes the root out; returns its op."""
    taken = heap.op[0]
    heap.size[0] -= 1
    size = heap.size[0]
    moment, op = heap.moment[size], heap.op[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            heap.moment[right] < heap.moment[child] or (heap.moment[right] == heap.moment[child] and heap.op[right] < heap.op[child])
        ):
            child = right
        if moment < heap.moment[child] or (moment == heap.moment[child] and op < heap.op[child]):
            break
        heap.moment[place], heap.op[place] = heap.moment[child], heap.op[child]
        place = child
    if size > 0:
        heap.moment[place], heap.op[place] = moment, op
    return taken
