"""The judge of moves: promise, choice, and its place in a policy."""

import numpy as np
import pytest
import torch

from gdp.cluster import preset
from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.features.move_features import MOVE_FEATURES
from gdp.policy.config import PolicyConfig
from gdp.policy.judge import GraphJudge, JudgeNetwork, among_rivals, judge_maker
from gdp.policy.policy import Policy
from gdp.policy.search import PolicySearch
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered
from tests.learn.problems import SMALL
from tests.strategies import placement

GRAPH, ON = layered(np.random.default_rng(0), num_ops=100, training=True), preset("p100x4")


def network(seed: int = 0) -> JudgeNetwork:
    return JudgeNetwork(8, generator=torch.Generator().manual_seed(seed))


def test_the_promise_is_probability_times_gain():
    judge = network()
    x = torch.randn(5, 2 * len(MOVE_FEATURES), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        better, log_gain = judge(x)
    np.testing.assert_allclose(judge.log_promise(x).exp(), torch.sigmoid(better) * log_gain.exp(), rtol=1e-5)


def test_what_lies_far_outside_of_what_was_taught_counts_as_its_edge():
    judge = network()
    judge.mean.fill_(1.0)
    judge.deviation.fill_(0.5)
    far, edge = torch.full((1, 2 * len(MOVE_FEATURES)), 1e6), torch.full((1, 2 * len(MOVE_FEATURES)), 1 + 5 * 0.5)
    torch.testing.assert_close(judge(far), judge(edge))


def test_rivals_are_seen_by_their_mean():
    features = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(among_rivals(features), [[0, 1, 2, 3], [2, 3, 2, 3], [4, 5, 2, 3]])


def test_the_choice_is_the_most_promising_and_does_not_depend_on_the_order():
    simulator = Simulator(with_timeline=True)
    device = np.zeros(GRAPH.num_ops, np.int32)
    timeline = simulator(GRAPH, ON, placement(device)).timeline
    judge = GraphJudge(network(), GRAPH, ON)
    judge.see(device, timeline)
    generator = np.random.default_rng(0)
    candidates = np.where(generator.random((9, GRAPH.num_ops)) < 0.1, 1, device).astype(np.int32)
    chosen = candidates[judge.choose(candidates, np.zeros(9, np.bool_))]
    for _ in range(5):
        order = generator.permutation(9)
        np.testing.assert_array_equal(candidates[order][judge.choose(candidates[order], np.zeros(9, np.bool_))], chosen)


def test_a_policy_has_a_judge_where_its_configuration_says_so_and_searches_with_it():
    def policy(width: int) -> Policy:
        config = PolicyConfig(**{**vars(SMALL), "passes": 1, "judge_width": width})
        return Policy(config, FeatureConfig(), generator=torch.Generator().manual_seed(0))

    without, with_one = policy(0), policy(8)
    assert without.judge is None and judge_maker(without.judge) is None
    for name, value in without.state_dict().items():
        torch.testing.assert_close(with_one.state_dict()[name], value)
    assert not any(
        name.startswith("judge.")
        for name, value in with_one.named_parameters()
        if any(value is moved for moved in with_one.conditioning_and_heads())
    )
    curves = [
        PolicySearch(each, runtime=Simulator(), predictor=Simulator(), evaluations=60, seed=0, name="p", revision=None).search(GRAPH, ON)
        for each in (without, with_one, with_one)
    ]
    np.testing.assert_array_equal(curves[1].best_so_far_s, curves[2].best_so_far_s)
    assert (curves[0].placement.device != curves[1].placement.device).any()
    with pytest.raises(InputError, match="judge_width"):
        policy(-1)
