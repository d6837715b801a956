"""A policy as a placer: one pass, or the best of a few simulated samples."""

import dataclasses

import numpy as np
import torch
from jaxtyping import Int64

from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.features.featurize import featurize
from gdp.features.graph_tensors import GraphTensors
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.policy.policy import Policy
from gdp.runtime.verdict import Dispatch

TEMPERATURES = (0.25, 0.5, 1.0)
"""Samples are drawn at these temperatures in equal parts: sharp ones are better on average, flat ones differ more (docs/policy.md)."""


def candidates(policy: Policy, x: GraphTensors, *, num_samples: int, generator: torch.Generator) -> Int64[torch.Tensor, "samples groups"]:
    """`num_samples` placements of the groups: the likeliest one first, then samples at each of `TEMPERATURES`."""
    found = [policy.greedy(x)[None]]
    for number, temperature in enumerate(TEMPERATURES):
        share = len(range(number, num_samples - 1, len(TEMPERATURES)))
        if share:
            found.append(policy.sample(x, num_samples=share, temperature=temperature, generator=generator).device[:, -1])
    return torch.cat(found)


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyPlacer:
    """Places with a policy: the likeliest placement, and, when `num_samples` is above 1, the best of `num_samples`, the likeliest among them."""

    policy: Policy
    _: dataclasses.KW_ONLY
    runtime: Runtime
    """judges the candidates in one batch; with a single one it is not called."""
    num_samples: int
    """candidates: the likeliest placement first, then samples."""
    seed: int
    """of the samples; without them nothing is random."""
    objective: Objective
    dispatch: Dispatch = "ready_order"
    """how the devices choose what to run, which the policy sees."""
    name: str
    """of the policy, for `Origin`."""
    revision: str | None
    """of the policy, for `Origin`."""

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise InputError(
                f"num_samples of the policy is {self.num_samples}; it must be at least 1, which is the likeliest placement alone"
            )

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        """The best candidate; the first of equals, the likeliest one when none can run. Colocation groups stay together."""
        grouping = coarsen(graph)
        x = featurize(graph, cluster, grouping, self.policy.features, dispatch=self.dispatch)
        decided = candidates(self.policy, x, num_samples=self.num_samples, generator=torch.Generator().manual_seed(self.seed))
        device, best = grouping.expand(decided.numpy().astype(np.int32)), 0
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
