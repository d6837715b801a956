"""A policy as a search: it proposes regions decided anew, what a step waits for is removed, and the simulator says what is kept."""

import dataclasses

from gdp.baselines.local_search import LocalSearch
from gdp.baselines.search_result import SearchResult
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.features.featurize import featurize
from gdp.graph import Graph
from gdp.measurement import Runtime
from gdp.placement import Origin, Placement
from gdp.policy.judge import judge_maker
from gdp.policy.policy import Policy
from gdp.policy.region import RegionDecoder
from gdp.runtime.simulator import Simulator


@dataclasses.dataclass(frozen=True, eq=False)
class PolicySearch:
    """Local search for the step time whose moves a policy proposes in part, where it can hold groups, and judges, where it has a judge.

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
        found = LocalSearch(
            runtime=self.runtime,
            evaluations=self.evaluations,
            seed=self.seed,
            predictor=self.predictor,
            redecide=self._decoder if self.policy.can_hold else None,
            judge=judge_maker(self.policy.judge),
        ).search(graph, cluster)
        origin = Origin(
            placer="gdp-search", policy=self.name, revision=self.revision, seed=self.seed, evaluations=found.placement.origin.evaluations
        )
        return dataclasses.replace(found, placement=Placement(device=found.placement.device, origin=origin))

    def _decoder(self, graph: Graph, cluster: Cluster) -> RegionDecoder:
        return RegionDecoder(self.policy, featurize(graph, cluster, coarsen(graph), self.policy.features, dispatch=self.predictor.dispatch))
