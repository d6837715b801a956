"""Regions decided by a policy, and the search that asks for them."""

import numpy as np
import pytest
import torch
from policy_examples import cluster, layered_graph, policy, tensors

from gdp.baselines.local_search import starting_points_of_search
from gdp.capture.coarsening import coarsen
from gdp.errors import InputError
from gdp.features.featurize import featurize
from gdp.policy.region import RegionDecoder
from gdp.policy.search import PolicySearch, sampled_starts
from gdp.runtime.simulator import Simulator

ON = cluster(1e12, 5e11, 2e12)
OF = layered_graph(layers=10, width=4, seed=0)
X = tensors(OF, ON)


def test_only_free_groups_change():
    decode = RegionDecoder(policy(), X)
    generator = np.random.default_rng(0)
    for _ in range(100):
        device = generator.integers(3, size=OF.num_ops)
        free = generator.random(OF.num_ops) < 0.3
        decided = decode(device, free, generator)
        assert (decided[~free] == device[~free]).all()
    assert (decode(device, np.zeros(OF.num_ops, np.bool_), generator) == device).all()


def test_what_is_held_decides_what_is_free():
    """A group whose neighbours are all held on one device joins them: an untrained policy shuns transfers and knows no other reason here."""
    decode = RegionDecoder(
        policy(shaken=False), tensors(layered_graph(layers=10, width=1, seed=0, tensor_bytes=4_000_000), cluster(1e12, 1e12))
    )
    free = np.zeros(10, np.bool_)
    free[5] = True
    for home in (0, 1):
        device = np.full(10, home)
        device[5] = 1 - home
        assert [decode(device, free, np.random.default_rng(seed))[5] for seed in range(20)].count(home) >= 19


def test_log_prob_of_a_region_is_that_of_its_free_decisions():
    """Held groups are no decisions: the same free decisions are as likely whatever the policy thinks of the held ones, and frequencies agree."""
    gdp = policy(passes=1)
    small = tensors(layered_graph(layers=2, width=2, seed=0), cluster(1e12, 5e11))
    held = torch.tensor([[True, False, True, False]])
    every = torch.tensor([[[0, a, 1, b]] for a in (0, 1) for b in (0, 1)])
    log_prob, _ = gdp.evaluate(small, every, held=held.expand(4, -1))
    chance = (log_prob.detach()[:, 0] * ~held).sum(dim=1).exp()
    assert float(chance.sum()) == pytest.approx(1, abs=1e-5)


def test_a_policy_that_cannot_hold_says_so():
    for sizes in ({"decoding": "independent"}, {"passes": 2}):
        with pytest.raises(InputError, match="sequential decoding in one pass"):
            RegionDecoder(policy(**sizes), X)


def test_search_spends_its_budget_and_knows_its_origin():
    of = layered_graph(layers=20, width=5, seed=1)
    search = PolicySearch(
        policy(shaken=False), runtime=Simulator(), predictor=Simulator(), evaluations=120, seed=3, name="test", revision="abc"
    )
    found = search.search(of, ON)
    assert len(found.best_so_far_s) == found.placement.origin.evaluations == 120
    x = featurize(of, ON, coarsen(of), search.policy.features, dispatch="ready_order")
    own = sampled_starts(search.policy, of, x, evaluations=120, seed=3)
    simple = starting_points_of_search(of, ON, evaluations=120, seed=3)
    assert len(own) == 120 // 16
    for first in (simple, np.concatenate([simple, own])):
        assert found.best_so_far_s[len(first) - 1] == Simulator().batch(of, ON, first).step_time_s.min()
    assert (found.placement.origin.placer, found.placement.origin.policy, found.placement.origin.seed) == ("gdp-search", "test", 3)
    assert Simulator()(of, ON, found.placement).step_time_s == found.best_so_far_s[-1]
    again = search.search(of, ON)
    assert (again.placement.device == found.placement.device).all()
