import dataclasses

import numpy as np
import pytest
import torch

from gdp.errors import InputError
from gdp.learn.config import RewardConfig
from gdp.learn.loop import learn
from gdp.learn.ppo import ppo_loss
from gdp.learn.sources import FixedTasks
from gdp.learn.task import Task, make_task, relative_reward
from gdp.measurement import Status
from gdp.runtime.simulator import Simulator
from tests.learn.problems import learn_config, learner, task, two_chains, two_devices

REWARD = relative_reward(RewardConfig(objective="step_time", invalid=-10.0))


def _updates(state, tasks: list[Task], config) -> list:  # type: ignore[no-untyped-def]
    return list(learn(state, FixedTasks(tasks=tasks), REWARD, config=config, objective="step_time"))


def test_reference_is_the_best_simple_placement() -> None:
    assert task(two_chains(), two_devices()).reference_s == pytest.approx(2.0)


def _four_decisions() -> Task:
    """The two chains with every op its own decision, as an untrained policy would have to face them."""
    from gdp.capture.coarsening import Grouping
    from gdp.features.config import FeatureConfig
    from gdp.features.featurize import featurize

    graph, cluster = two_chains(), two_devices()
    grouping = Grouping(group_of_op=np.arange(4, dtype=np.int32), num_groups=4)
    return Task(
        name="four",
        graph=graph,
        cluster=cluster,
        grouping=grouping,
        tensors=featurize(graph, cluster, grouping, FeatureConfig()),
        runtime=Simulator(),
        reference_s=2.0,
    )


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_policy_finds_the_known_best_placement_and_then_prefers_it(seed: int) -> None:
    state = learner(seed)
    problem = _four_decisions()
    _updates(state, [problem], learn_config(updates=60))
    assert state.incumbent["four"].measurement.step_time_s == pytest.approx(2.0)
    greedy = state.policy.greedy(problem.tensors)
    device = problem.grouping.expand(greedy.numpy().astype(np.int32))
    assert Simulator().batch(problem.graph, problem.cluster, device[None]).step_time_s[0] == pytest.approx(2.0)


def test_before_the_first_step_ratios_are_one_and_nothing_is_clipped() -> None:
    state, problem = learner(0), _four_decisions()
    decisions = state.policy.sample(problem.tensors, num_samples=8, temperature=1.0, generator=torch.Generator().manual_seed(1))
    log_prob, entropy = state.policy.evaluate(problem.tensors, decisions.device)
    torch.testing.assert_close(log_prob, decisions.log_prob, rtol=1e-5, atol=1e-5)  # float32 sums in another order
    result = ppo_loss(log_prob, decisions.log_prob, torch.ones(8), entropy, clip=0.2, entropy_weight=0.0)
    assert float(result.clip_fraction) == 0.0
    assert float(result.approx_kl) == pytest.approx(0.0, abs=1e-6)


def test_two_runs_are_equal_to_the_last_bit() -> None:
    first, second = (_updates(learner(3), [_four_decisions()], learn_config(updates=5, elite_weight=0.1)) for _ in range(2))
    untimed = [{name: value for name, value in update.metrics.items() if not name.startswith("time/")} for update in first]
    assert untimed == [{name: value for name, value in update.metrics.items() if not name.startswith("time/")} for update in second]
    assert len(untimed) == 5


def test_a_run_that_diverges_ends_before_its_weights_are_spoilt() -> None:
    state = learner(0)
    with torch.no_grad():
        next(state.policy.parameters()).mul_(1e38)
    before = [parameter.clone() for parameter in state.policy.parameters()]
    with pytest.raises(InputError, match="training has diverged: after 0 steps of imitation and 1 updates"):
        _updates(state, [_four_decisions()], learn_config(updates=3))
    assert all(torch.equal(old, new) for old, new in zip(before, state.policy.parameters(), strict=True))


def test_patience_ends_a_run_that_has_found_its_best() -> None:
    updates = _updates(learner(0), [task(two_chains(), two_devices())], learn_config(updates=50, patience_updates=4))
    assert 4 < len(updates) < 50


def test_placements_that_cannot_run_get_the_invalid_reward_and_no_incumbent() -> None:
    graph, cluster = two_chains(), two_devices()
    tight = type(cluster)(
        name="tight",
        devices=tuple(
            type(d)(name=d.name, kind=d.kind, memory_bytes=1, flops_per_s=d.flops_per_s, memory_bytes_per_s=1e15, op_overhead_s=0.0)
            for d in cluster.devices
        ),
        bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s,
        latency_s=cluster.latency_s,
        channel=cluster.channel,
        channel_name=cluster.channel_name,
    )
    roomy = _four_decisions()
    problem = dataclasses.replace(roomy, name="tight", cluster=tight)
    state = learner(0)
    (update,) = _updates(state, [problem], learn_config(updates=1))
    assert update.metrics["train/reward_mean"] == -10.0
    assert update.metrics["train/invalid_fraction"] == 1.0
    assert state.incumbent == {}
    assert Simulator().batch(graph, tight, np.zeros((1, 4), np.int32)).status[0] == Status.OUT_OF_MEMORY


def test_that_nothing_can_run_is_told_unless_there_is_a_time_to_be_relative_to() -> None:
    from gdp.errors import InputError
    from gdp.features.config import FeatureConfig

    cluster = two_devices()
    tiny = type(cluster)(
        name="tiny",
        devices=tuple(
            type(d)(name=d.name, kind=d.kind, memory_bytes=1, flops_per_s=d.flops_per_s, memory_bytes_per_s=1e15, op_overhead_s=0.0)
            for d in cluster.devices
        ),
        bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s,
        latency_s=cluster.latency_s,
        channel=cluster.channel,
        channel_name=cluster.channel_name,
    )
    with pytest.raises(InputError, match="no placement of the graph"):
        make_task("t", two_chains(), tiny, runtime=Simulator(), features=FeatureConfig(), max_groups=64, objective="step_time")
    known = make_task(
        "t", two_chains(), tiny, runtime=Simulator(), features=FeatureConfig(), max_groups=64, objective="step_time", reference_s=2.0
    )
    assert known.reference_s == 2.0
