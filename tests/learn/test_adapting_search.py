"""Fine-tuning as a placer: counts every placement, leaves the policy it was given alone, and is the same whenever it is asked."""

import copy

import numpy as np
import pytest
import torch

from gdp.baselines.local_search import starting_points_of_search
from gdp.cluster import preset
from gdp.features.config import FeatureConfig
from gdp.learn.adapting_search import AdaptingSearch
from gdp.learn.config import RewardConfig
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Policy
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered
from tests.learn.problems import learn_config

SIMULATOR = Simulator(num_threads=1)
GRAPH, ON = layered(np.random.default_rng(3), num_ops=200, training=True), preset("p100x4")
SIZES = PolicyConfig(hidden=16, type_embedding=4, heads=2, segment=32, feed_forward=32, head_width=8, context=8, judge_width=8)


def adapting(evaluations: int) -> AdaptingSearch:
    return AdaptingSearch(
        Policy(SIZES, FeatureConfig(), generator=torch.Generator().manual_seed(0)),
        runtime=SIMULATOR,
        predictor=SIMULATOR,
        evaluations=evaluations,
        seed=1,
        config=learn_config(updates=99, samples_per_update=20, elite_weight=0.1, learning_rate=1e-3),
        reward=RewardConfig(objective="step_time", invalid=-10.0),
        name="new",
        revision=None,
    )


def test_the_budget_is_spent_to_the_last_and_the_best_is_returned() -> None:
    search = adapting(150)
    before = copy.deepcopy(search.policy.state_dict())
    found = search.search(GRAPH, ON)
    start = starting_points_of_search(GRAPH, ON, evaluations=150, seed=1)
    own = 150 // 16  # samples
    assert (150 - len(start) - own) % 20, "the last update is shorter than the others"
    assert found.placement.origin.evaluations == len(found.best_so_far_s) == 150
    assert SIMULATOR(GRAPH, ON, found.placement).step_time_s == found.best_so_far_s[-1]
    assert found.best_so_far_s[len(start) - 1] == pytest.approx(SIMULATOR.batch(GRAPH, ON, start).step_time_s.min())
    assert found.best_so_far_s[-1] < found.best_so_far_s[len(start) - 1]
    assert all(torch.equal(value, before[name]) for name, value in search.policy.state_dict().items())
    again = search.search(GRAPH, ON)
    np.testing.assert_array_equal(found.best_so_far_s, again.best_so_far_s)
    np.testing.assert_array_equal(found.placement.device, again.placement.device)


def test_a_budget_that_the_starting_points_use_up_is_kept() -> None:
    found = adapting(7).search(GRAPH, ON)
    assert len(found.best_so_far_s) == found.placement.origin.evaluations == 7
