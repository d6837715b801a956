"""The moves of local search."""

import numpy as np
from jaxtyping import Int32

from gdp.baselines.quotient import quotient, stage_order
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.graph import Graph

_BLOCK_COUNTS = (512, 128, 32, 8)


class Neighbourhood:
    """Random changes of a placement that keep every group of the coarsened graph on one device."""

    def __init__(self, graph: Graph, cluster: Cluster) -> None:
        grouping = coarsen(graph)
        self.group_of_op = grouping.group_of_op
        self.num_groups = grouping.num_groups
        self.num_devices = cluster.num_devices
        _, self.first_op = np.unique(grouping.group_of_op, return_index=True)
        self.order = stage_order(graph, grouping)
        whole = quotient(graph, cluster, grouping)
        self.time_s = whole.time_s
        self.link_from, self.link_to = whole.link_from, whole.link_to
        self.link_weight = np.cumsum(np.sqrt(whole.link_bytes.astype(np.float64)))
        self.works = np.flatnonzero(whole.time_s.sum(axis=1) > 0)
        if not len(self.works):
            self.works = np.arange(self.num_groups)
        self.blocks = [_members(np.arange(self.num_groups), self.num_groups)]
        for count in _BLOCK_COUNTS:
            if count < self.num_groups:
                coarse = coarsen(graph, max_groups=count)
                self.blocks.append(_members(coarse.group_of_op[self.first_op], coarse.num_groups))
        self.block_of_group = []
        for members in self.blocks:
            block = np.empty(self.num_groups, np.int64)
            for number, groups in enumerate(members):
                block[groups] = number
            self.block_of_group.append(block)

    def propose(self, device: Int32[np.ndarray, " ops"], generator: np.random.Generator) -> Int32[np.ndarray, " ops"]:
        """A changed copy; every op of it may be where it was only if there is a single device or group to choose from."""
        group_device = device[self.first_op]
        for _ in range(20):
            changed = self._move(group_device.copy(), generator)
            if (changed != group_device).any():
                break
        return np.asarray(changed[self.group_of_op])

    def _move(self, group_device: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        move = generator.random()
        if move < 0.30:
            self.put(group_device, int(generator.choice(self.works)), int(generator.integers(self.num_devices)), generator)
        elif move < 0.65 and len(self.link_from):
            self._join_neighbours(group_device, generator)
        elif move < 0.80:
            busy_s = np.bincount(group_device, self.time_s[np.arange(self.num_groups), group_device], minlength=self.num_devices)
            there = self.works[group_device[self.works] == busy_s.argmax()]
            if len(there):
                self.put(group_device, int(generator.choice(there)), int(generator.integers(self.num_devices)), generator)
        elif move < 0.92:
            first = int(generator.integers(self.num_groups))
            length = 1 + int(self.num_groups * generator.random() ** 3 / 2)
            group_device[self.order[first : first + length]] = generator.integers(self.num_devices)
        else:
            one, other = generator.choice(self.works, size=2)
            group_device[[one, other]] = group_device[[other, one]]
        return group_device

    def put(self, group_device: np.ndarray, group: int, to: int, generator: np.random.Generator) -> None:
        """In place: moves a block of a random size around `group`: those of its members that are where the group is."""
        level = int(generator.integers(len(self.blocks)))
        members = self.blocks[level][self.block_of_group[level][group]]
        group_device[members[group_device[members] == group_device[group]]] = to

    def _join_neighbours(self, group_device: np.ndarray, generator: np.random.Generator) -> None:
        """Brings one end of a heavy link that crosses devices to the other end's device."""
        for _ in range(8):
            link = int(np.searchsorted(self.link_weight, generator.random() * self.link_weight[-1], side="right"))
            ends = (int(self.link_from[link]), int(self.link_to[link]))
            if group_device[ends[0]] != group_device[ends[1]]:
                moved = int(generator.integers(2))
                self.put(group_device, ends[moved], int(group_device[ends[1 - moved]]), generator)
                return


def _members(block_of_group: np.ndarray, num_blocks: int) -> list[np.ndarray]:
    order = np.argsort(block_of_group, kind="stable")
    return np.split(order, np.cumsum(np.bincount(block_of_group, minlength=num_blocks))[:-1])
