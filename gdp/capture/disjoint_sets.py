"""Disjoint sets of numbers, joined two by two (union by size with path halving)."""

import numpy as np
from jaxtyping import Int32


class DisjointSets:
    """The sets {0}, {1}, ..., {size - 1} to begin with."""

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))
        self._size = [1] * size

    def root(self, item: int) -> int:
        """The member that stands for the set of `item`; it may change when the set is joined to another."""
        parent = self._parent
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, one: int, other: int) -> int:
        """Makes the sets of two items one, and returns the member that stands for it."""
        one, other = self.root(one), self.root(other)
        if one == other:
            return one
        if (self._size[one], -one) < (self._size[other], -other):
            one, other = other, one
        self._parent[other] = one
        self._size[one] += self._size[other]
        return one

    def labels(self) -> Int32[np.ndarray, " items"]:
        """The set of each item; the sets are numbered from 0 by their first item."""
        roots = np.array([self.root(item) for item in range(len(self._parent))], np.int64)
        _, first, inverse = np.unique(roots, return_index=True, return_inverse=True)
        number = np.empty(len(first), np.int32)
        number[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
        return number[inverse]
