"""GDP-one: what it learns pays against samples of the policy as it was; every sample is an evaluation, and nothing else is tried."""

import copy
import dataclasses

import numpy as np
import torch

from gdp.cluster import preset
from gdp.compare.recorded import Recorded
from gdp.features.config import FeatureConfig
from gdp.learn.config import RewardConfig
from gdp.learn.sampling_search import SamplingSearch
from gdp.policy.policy import Policy
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered
from tests.learn.problems import SMALL, learn_config

SIMULATOR = Simulator(num_threads=1)
GRAPH, ON = layered(np.random.default_rng(3), num_ops=60, training=True), preset("p100x2")
INDEPENDENT = dataclasses.replace(SMALL, passes=1, decoding="independent", transfer_prior=0.0)


def searching(runtime: Recorded, *, evaluations: int, seed: int = 0, learning_rate: float = 1e-2) -> SamplingSearch:
    return SamplingSearch(
        Policy(INDEPENDENT, FeatureConfig(), generator=torch.Generator().manual_seed(seed)),
        runtime=runtime,
        dispatch="ready_order",
        evaluations=evaluations,
        seed=seed,
        config=learn_config(updates=1, samples_per_update=16, learning_rate=learning_rate),
        reward=RewardConfig(objective="step_time", invalid=-10.0),
        max_groups=65536,
    )


def test_the_budget_is_kept_and_the_best_sample_returned() -> None:
    for budget, spent in ((100, 96), (16, 16), (7, 7), (1, 1)):
        runtime = Recorded(SIMULATOR, objective="step_time")
        search = searching(runtime, evaluations=budget)
        before = copy.deepcopy(search.policy.state_dict())
        found = search(GRAPH, ON)
        assert runtime.evaluations == found.origin.evaluations == spent
        assert SIMULATOR(GRAPH, ON, found).step_time_s == runtime.best_s[-1]
        assert all(torch.equal(value, before[name]) for name, value in search.policy.state_dict().items())


def test_learning_pays_where_links_are_slow() -> None:
    slow = dataclasses.replace(ON, bandwidth_bytes_per_s=ON.bandwidth_bytes_per_s / 100)
    ratios = []
    for seed in range(3):
        learned, drawn = Recorded(SIMULATOR, objective="step_time"), Recorded(SIMULATOR, objective="step_time")
        searching(learned, evaluations=480, seed=seed)(GRAPH, slow)
        searching(drawn, evaluations=480, seed=seed, learning_rate=1e-12)(GRAPH, slow)
        ratios.append(learned.best_s[-1] / drawn.best_s[-1])
    assert max(ratios) < 0.7


def test_where_nothing_runs_there_is_still_a_placement() -> None:
    tight = dataclasses.replace(ON, devices=tuple(dataclasses.replace(device, memory_bytes=1) for device in ON.devices))
    found = searching(Recorded(SIMULATOR, objective="step_time"), evaluations=32)(GRAPH, tight)
    assert found.device.shape == (GRAPH.num_ops,)
