"""A policy as a placer: one pass, or the best of a few simulated samples."""

import dataclasses

import numpy as np
import torch

from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.features.featurize import featurize
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.policy.policy import Policy

MAX_GROUPS = 4096
"""Graphs with more groups than this are coarsened further before they are placed."""


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyPlacer:
    """Places with a policy: the likeliest placement, and, when `num_samples` is above 1, the best of it and `num_samples - 1` drawn ones."""

    policy: Policy
    _: dataclasses.KW_ONLY
    runtime: Runtime
    """judges the candidates in one batch; with a single one it is not called."""
    num_samples: int
    """candidates: the likeliest placement first, then samples."""
    seed: int
    """of the samples; without them nothing is random."""
    objective: Objective
    name: str
    """of the policy, for `Origin`."""
    revision: str | None
    """of the policy, for `Origin`."""
    max_groups: int = MAX_GROUPS

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise InputError(
                f"num_samples of the policy is {self.num_samples}; it must be at least 1, which is the likeliest placement alone"
            )

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        """The best candidate; the first of equals, the likeliest one when none can run. Colocation groups stay together."""
        grouping = coarsen(graph, max_groups=self.max_groups)
        x = featurize(graph, cluster, grouping, self.policy.features).to(next(self.policy.parameters()).device)
        candidates = self.policy.greedy(x)[None]
        if self.num_samples > 1:
            generator = torch.Generator().manual_seed(self.seed)
            drawn = self.policy.sample(x, num_samples=self.num_samples - 1, temperature=1.0, generator=generator)
            candidates = torch.cat([candidates, drawn.device[:, -1]])
        device = grouping.expand(candidates.cpu().numpy().astype(np.int32))
        best = 0
        if self.num_samples > 1:
            best = int(np.argmin(self.runtime.batch(graph, cluster, device).objective_s(self.objective)))
        origin = Origin(
            placer="gdp",
            policy=self.name,
            revision=self.revision,
            seed=self.seed if self.num_samples > 1 else None,
            evaluations=self.num_samples if self.num_samples > 1 else 0,
        )
        return Placement(device=device[best].copy(), origin=origin)
