"""GDP's own search as a placer: PPO on whole placements of one graph (GDP-one of arXiv 1910.01578 from a new policy, its fine-tuning from a pretrained one)."""

import copy
import dataclasses

import numpy as np
import torch

from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.features.featurize import featurize
from gdp.graph import Graph
from gdp.learn.config import LearnConfig, RewardConfig
from gdp.learn.learner import new_learner
from gdp.learn.loop import learn
from gdp.learn.sources import FixedTasks
from gdp.learn.task import Task, relative_reward
from gdp.measurement import Runtime
from gdp.placement import Origin, Placement
from gdp.policy.policy import Policy
from gdp.runtime.roofline import op_time_s
from gdp.runtime.verdict import Dispatch


@dataclasses.dataclass(frozen=True, eq=False)
class SamplingSearch:
    """The best placement that a copy of a policy samples while all of it learns; nothing but its own samples is tried.

    Deviation: rewards are relative to the time of all ops one after another on the fastest device, not to a placement that would cost an evaluation.
    """

    policy: Policy
    _: dataclasses.KW_ONLY
    runtime: Runtime
    dispatch: Dispatch
    """how the runtime's devices choose what to run, which the policy sees."""
    evaluations: int
    """at least 1; what is left of them after whole updates is not spent."""
    seed: int
    config: LearnConfig
    """its updates end with the evaluations; there is one task."""
    reward: RewardConfig
    max_groups: int
    """decisions; a larger graph is grouped more coarsely."""

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        policy, grouping = copy.deepcopy(self.policy), coarsen(graph, max_groups=self.max_groups)
        learner = new_learner(policy, parameters=list(policy.parameters()), seed=self.seed)
        task = Task(
            name=graph.source,
            graph=graph,
            cluster=cluster,
            grouping=grouping,
            tensors=featurize(graph, cluster, grouping, policy.features, dispatch=self.dispatch),
            runtime=self.runtime,
            reference_s=float(op_time_s(graph, cluster).sum(axis=0).min()),
        )
        samples = min(self.config.samples_per_update, self.evaluations)
        config = dataclasses.replace(
            self.config,
            updates=self.evaluations // samples,
            samples_per_update=samples,
            tasks_per_update=1,
            minibatches=min(self.config.minibatches, samples),
        )
        for _ in learn(learner, FixedTasks(tasks=(task,)), relative_reward(self.reward), config=config, objective=self.reward.objective):
            pass
        found = learner.found.get(task.name)
        origin = Origin(placer="gdp-one", seed=self.seed, evaluations=learner.evaluations)
        if found is not None:
            return Placement(device=found.device.copy(), origin=origin)
        with torch.no_grad():
            likeliest = policy.greedy(task.tensors)
        return Placement(device=grouping.expand(likeliest.numpy().astype(np.int32)), origin=origin)
