"""A policy as a search: it proposes regions decided anew, what a step waits for is removed, and the simulator says what is kept."""

import dataclasses

import numpy as np
import torch
from jaxtyping import Int32

from gdp.baselines.local_search import LocalSearch
from gdp.baselines.search_result import SearchResult
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.features.featurize import featurize
from gdp.features.graph_tensors import GraphTensors
from gdp.graph import Graph
from gdp.measurement import Runtime
from gdp.placement import Origin, Placement
from gdp.policy.judge import judge_maker
from gdp.policy.placer import candidates
from gdp.policy.policy import Policy
from gdp.policy.region import RegionDecoder
from gdp.runtime.simulator import Simulator

_EVALUATIONS_PER_SAMPLE, _MOST_SAMPLES = 16, 16
"""A search starts from one sample in so many evaluations, and no more than these."""


@dataclasses.dataclass(frozen=True, eq=False)
class PolicySearch:
    """Local search for the step time from samples of a policy and simple placements; the policy proposes some moves, where it can hold groups, and judges, where it has a judge.

    Every placement tried counts, the starting points among them.
    """

    policy: Policy
    _: dataclasses.KW_ONLY
    runtime: Runtime
    predictor: Simulator
    """shows what a step waits for; how its devices choose what to run is what the policy sees."""
    evaluations: int
    seed: int
    name: str
    """of the policy, for `Origin`."""
    revision: str | None
    """of the policy, for `Origin`."""

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        return self.search(graph, cluster).placement

    def search(self, graph: Graph, cluster: Cluster) -> SearchResult:
        """The best placement, and the best time after each evaluation."""
        x = featurize(graph, cluster, coarsen(graph), self.policy.features, dispatch=self.predictor.dispatch)
        found = LocalSearch(
            runtime=self.runtime,
            evaluations=self.evaluations,
            seed=self.seed,
            predictor=self.predictor,
            redecide=(lambda graph, cluster: RegionDecoder(self.policy, x)) if self.policy.can_hold else None,
            judge=judge_maker(self.policy.judge),
        ).search(graph, cluster, own=sampled_starts(self.policy, graph, x, evaluations=self.evaluations, seed=self.seed))
        origin = Origin(
            placer="gdp-search", policy=self.name, revision=self.revision, seed=self.seed, evaluations=found.placement.origin.evaluations
        )
        return dataclasses.replace(found, placement=Placement(device=found.placement.device, origin=origin))


def sampled_starts(policy: Policy, graph: Graph, x: GraphTensors, *, evaluations: int, seed: int) -> Int32[np.ndarray, "starts ops"]:
    """Placements of a policy for a search with this budget to start from, beside the simple ones: the likeliest, then samples. `x` holds the groups of `coarsen(graph)`."""
    num_samples = max(1, min(evaluations // _EVALUATIONS_PER_SAMPLE, _MOST_SAMPLES))
    grouping = coarsen(graph)
    decided = candidates(policy, graph, grouping, x, num_samples=num_samples, generator=torch.Generator().manual_seed(seed))
    return grouping.expand(decided.numpy().astype(np.int32))
