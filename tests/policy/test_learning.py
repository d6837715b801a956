"""Small problems with known answers that the architecture must be able to learn, by the plainest policy gradient."""

import numpy as np
import pytest
import torch
from policy_examples import cluster, graph, policy, tensors

from gdp.cluster import Cluster
from gdp.features.graph_tensors import GraphTensors
from gdp.graph import Graph
from gdp.policy.policy import Policy
from gdp.runtime.simulator import Simulator


def reinforce(gdp: Policy, x: GraphTensors, of: Graph, on: Cluster, *, updates: int) -> list[float]:
    """REINFORCE with the batch's mean as baseline; the likeliest placement's time before and after."""
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.Adam(gdp.parameters(), lr=3e-3)

    def seconds(device: torch.Tensor) -> np.ndarray:
        return Simulator().batch(of, on, device.numpy().astype(np.int32)).step_time_s

    before = float(seconds(gdp.greedy(x)[None])[0])
    for _ in range(updates):
        decisions = gdp.sample(x, num_samples=16, temperature=1.0, generator=generator)
        reward = -torch.from_numpy(np.sqrt(seconds(decisions.device[:, -1]))).float()
        gain = (reward - reward.mean()) / (reward.std() + 1e-6)
        log_prob, _ = gdp.evaluate(x, decisions.device)
        optimiser.zero_grad()
        (-(gain[:, None, None] * log_prob).mean()).backward()
        optimiser.step()
    return [before, float(seconds(gdp.greedy(x)[None])[0])]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_keeps_together_what_a_slow_link_would_part(seed):
    # Two heavy chains, 0 -> 2 and 1 -> 3, whose tensors take 50 ms to send: each on a device of its own, 2 ms, is the one best placement.
    of = graph([(0, 2), (1, 3)], flops=[1e9] * 4, tensor_bytes=50_000_000)
    on = cluster(1e12, 1e12)
    _, after = reinforce(policy(seed=seed, passes=1), tensors(of, on), of, on, updates=60)
    assert after == pytest.approx(2e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_splits_two_equal_branches_between_equal_devices(seed):
    # A conditionally independent head samples the split half the time at best; sequential decisions are coordinated.
    # No prior: what the policy does, it has learned.
    branches = [(0, op) for op in (1, 2)] + [(op, op + 2) for op in range(1, 7)] + [(7, 9), (8, 9)]
    of = graph(branches, flops=[1e6, *[1e9] * 8, 1e6], tensor_bytes=100)
    on = cluster(1e12, 1e12)
    _, after = reinforce(policy(seed=seed, shaken=False, passes=1, finish_prior=0.0), tensors(of, on), of, on, updates=60)
    assert after < 4.1e-3  # four ops of 1 ms on each device


def test_finds_the_faster_device():
    of = graph([(0, 1), (1, 2), (2, 3)], flops=[1e9] * 4, tensor_bytes=1000)
    on = cluster(1e12, 4e12)
    before, after = reinforce(policy(shaken=False, passes=1, finish_prior=0.0), tensors(of, on), of, on, updates=40)
    assert after == pytest.approx(1e-3) and after <= before
