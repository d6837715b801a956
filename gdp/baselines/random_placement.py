"""A uniformly random device for every group of ops."""

import dataclasses

import numpy as np

from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.placement import Origin, Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomPlacement:
    """Independent uniform devices for the groups of the coarsened graph."""

    seed: int

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        grouping = coarsen(graph)
        group_device = np.random.default_rng(self.seed).integers(cluster.num_devices, size=grouping.num_groups, dtype=np.int32)
        return Placement(device=grouping.expand(group_device), origin=Origin(placer="random", seed=self.seed))
