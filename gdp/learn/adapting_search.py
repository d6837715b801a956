"""Fine-tuning in the simulator as a placer: a policy that searches, and learns from what its regions gained while it does."""

import copy
import dataclasses

import numpy as np

from gdp.baselines.local_search import starting_points_of_search
from gdp.baselines.search_result import SearchResult
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.features.featurize import featurize
from gdp.graph import Graph
from gdp.learn.config import LearnConfig, RewardConfig
from gdp.learn.explore import Exploration
from gdp.learn.learner import new_learner
from gdp.learn.task import Task, relative_reward
from gdp.measurement import Runtime
from gdp.placement import Origin, Placement
from gdp.policy.policy import Policy
from gdp.policy.search import sampled_starts
from gdp.runtime.roofline import op_time_s
from gdp.runtime.simulator import Simulator


@dataclasses.dataclass(frozen=True, eq=False)
class AdaptingSearch:
    """`gdp.policy.search.PolicySearch` with a copy of a policy whose conditioning layers and heads are moved, update by update, on the one graph.

    Every placement tried counts, the starting points among them.
    """

    policy: Policy
    _: dataclasses.KW_ONLY
    runtime: Runtime
    predictor: Simulator
    """shows what a step waits for; how its devices choose what to run is what the policy sees."""
    evaluations: int
    seed: int
    config: LearnConfig
    """its updates end with the evaluations, however long nothing gets better."""
    reward: RewardConfig
    name: str
    """of the policy, for `Origin`."""
    revision: str | None
    """of the policy, for `Origin`."""

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        return self.search(graph, cluster).placement

    def search(self, graph: Graph, cluster: Cluster) -> SearchResult:
        """The best placement, and the best time after each evaluation."""
        policy, grouping = copy.deepcopy(self.policy), coarsen(graph)
        learner = new_learner(policy, parameters=policy.conditioning_and_heads(), seed=self.seed)
        task = Task(
            name=graph.source,
            graph=graph,
            cluster=cluster,
            grouping=grouping,
            tensors=featurize(graph, cluster, grouping, policy.features, dispatch=self.predictor.dispatch),
            runtime=self.runtime,
            reference_s=float(op_time_s(graph, cluster).sum(axis=0).min()),
        )
        own = sampled_starts(policy, graph, task.tensors, evaluations=self.evaluations, seed=self.seed)
        simple = starting_points_of_search(graph, cluster, evaluations=self.evaluations, seed=self.seed)
        exploration = Exploration(
            learner,
            task,
            runtime=self.runtime,
            predictor=self.predictor,
            evaluations=self.evaluations if cluster.num_devices > 1 else 1,
            config=dataclasses.replace(self.config, patience_updates=0),
            start=np.concatenate([simple, own])[: self.evaluations] if cluster.num_devices > 1 else simple,
        )
        for _ in exploration.updates(relative_reward(self.reward)):
            pass
        origin = Origin(
            placer="gdp-fine-tuned", policy=self.name, revision=self.revision, seed=self.seed, evaluations=len(exploration.tried_s)
        )
        return SearchResult.from_scores(Placement(device=np.array(exploration.best), origin=origin), exploration.tried_s)
