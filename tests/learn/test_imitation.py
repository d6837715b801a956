"""Imitation learns its targets, and equal tasks have equal ones."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from gdp.cluster import Cluster, preset
from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.learn.imitation import ImitationConfig, as_target, canonical, imitate, region_loss
from gdp.learn.learner import new_learner
from gdp.learn.random_cluster import RandomClusterConfig
from gdp.learn.regions import random_regions
from gdp.learn.sources import PretrainingConfig, PretrainingTasks
from gdp.learn.targets import Targets, imitation_order
from gdp.policy.judge import JudgeNetwork
from gdp.policy.policy import Policy
from tests.learn.problems import SMALL, task, two_chains, two_devices

ALIKE = preset("p100x4")


def renamed(cluster: Cluster, group_device: list[int]) -> list[int]:
    return canonical(np.array(group_device), cluster).tolist()


def test_interchangeable_devices_are_numbered_as_they_are_first_used() -> None:
    assert renamed(ALIKE, [3, 3, 1, 2, 0]) == [2, 2, 0, 3, 1]  # the two of a switch are alike, the switches are not


def test_devices_of_another_kind_or_memory_keep_their_numbers() -> None:
    unequal = preset("unequal")
    assert unequal.num_devices == 2 and renamed(unequal, [1, 0, 1]) == [1, 0, 1]


def test_devices_behind_different_roots_are_not_exchanged() -> None:
    even = dataclasses.replace(ALIKE, latency_s=np.full((4, 4), 1e-5))  # now only the channels tell the switches apart
    assert renamed(even, [1, 0, 1]) == [0, 1, 0]
    assert renamed(even, [2, 0, 2]) == [2, 0, 2]
    one_root = dataclasses.replace(even, channel=np.zeros((4, 4), np.int32), channel_name=("root",))
    assert renamed(one_root, [2, 0, 2]) == [0, 1, 0]


def learned(*, region_share: float, steps: int = 150) -> tuple[float, float]:
    """Minus the mean log-probability per decision of the known best of two chains, before and after imitation of it: everything free."""
    policy = Policy(dataclasses.replace(SMALL, passes=1), FeatureConfig(), generator=torch.Generator().manual_seed(0))
    state, only = new_learner(policy, parameters=list(policy.parameters()), seed=0), task(two_chains(), two_devices())
    target = as_target(only, np.array([0, 0, 1, 1], np.int32))
    config = ImitationConfig(
        steps=steps, search_evaluations=7, placements_per_step=4, region_share=region_share, learning_rate=1e-2, final_learning_rate=1e-3
    )
    everything = torch.ones(1, only.tensors.num_groups, dtype=torch.bool)
    before = float(region_loss(policy, only, target.group_device, everything).detach())
    metrics = list(imitate(state, [0] * steps, lambda number: (only, target), config=config, gradient_norm=1.0, objective="step_time"))
    assert len(metrics) == steps and state.imitation_step == steps
    assert state.evaluations == 7  # a target's search is counted once
    return before, float(region_loss(policy, only, target.group_device, everything).detach())


@pytest.mark.parametrize("region_share", [0.0, 0.7])
def test_imitation_learns_its_target(region_share: float) -> None:
    before, after = learned(region_share=region_share)
    assert before > 0.3 and after < 0.05


def test_a_region_loss_counts_free_groups_alone() -> None:
    policy = Policy(dataclasses.replace(SMALL, passes=1), FeatureConfig(), generator=torch.Generator().manual_seed(0))
    only = task(two_chains(), two_devices())
    groups = only.tensors.num_groups
    target = torch.arange(groups) % 2
    first = torch.zeros(1, groups, dtype=torch.bool)
    first[0, 0] = True
    log_prob, _ = policy.evaluate(only.tensors, target[None, None], held=~first)
    assert float(region_loss(policy, only, target, first).detach()) == pytest.approx(-float(log_prob[0, 0, 0].detach()))
    both = torch.cat([first, torch.ones_like(first)])
    apart = [float(region_loss(policy, only, target, row[None]).detach()) for row in both]
    assert float(region_loss(policy, only, target, both).detach()) == pytest.approx(np.mean(apart), rel=1e-5)


def test_a_task_on_which_nothing_runs_is_a_step_that_teaches_nothing() -> None:
    policy = Policy(SMALL, FeatureConfig(), generator=torch.Generator().manual_seed(0))
    state = new_learner(policy, parameters=list(policy.parameters()), seed=0)
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    config = ImitationConfig(
        steps=2, search_evaluations=1, placements_per_step=1, region_share=0.0, learning_rate=1e-3, final_learning_rate=1e-3
    )
    steps = imitate(state, [0, 0], lambda number: None, config=config, gradient_norm=1.0, objective="step_time")
    assert [(metrics, state.imitation_step) for metrics in steps] == [({}, 1), ({}, 2)]
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())


def test_a_policy_that_cannot_hold_groups_is_not_taught_regions() -> None:
    policy = Policy(SMALL, FeatureConfig(), generator=torch.Generator().manual_seed(0))
    assert SMALL.passes == 2
    state = new_learner(policy, parameters=list(policy.parameters()), seed=0)
    config = ImitationConfig(
        steps=1, search_evaluations=1, placements_per_step=1, region_share=0.5, learning_rate=1e-3, final_learning_rate=1e-3
    )
    with pytest.raises(InputError, match="region_share"):
        next(imitate(state, [0], lambda number: None, config=config, gradient_norm=1.0, objective="step_time"))


def test_regions_are_of_every_size_and_everything_is_free_in_the_rest() -> None:
    free = random_regions(90, count=2000, share=0.7, generator=np.random.default_rng(0))
    size = free.sum(axis=1)
    whole = size == 90
    assert 0.27 < whole.mean() < 0.33
    assert size[~whole].min() >= 2 and size[~whole].max() <= 30
    halves = np.log(size[~whole]) < np.log(2) + (np.log(30) - np.log(2)) / 2
    assert 0.4 < halves.mean() < 0.6  # the logarithm is uniform
    stretches = [np.diff(np.flatnonzero(row)).max() == 1 for row in free[~whole]]
    assert 0.65 < np.mean(stretches) < 0.8
    assert free[~whole].mean(axis=0).min() > 0.02
    assert random_regions(1, count=5, share=1.0, generator=np.random.default_rng(0)).any(axis=1).all()


def pool(folder: Path, *, num_tasks: int = 3, num_ops: int = 60) -> Targets:
    config = PretrainingConfig(
        num_tasks=num_tasks,
        synthetic_fraction=1.0,
        workloads=(),
        leave_out=(),
        min_ops=num_ops // 2,
        max_ops=num_ops,
        max_groups=16,
        presets=("p100x2",),
        preset_fraction=1.0,
        program_order_fraction=0.5,
        random_cluster=RandomClusterConfig(
            min_devices=2,
            max_devices=3,
            unequal_fraction=0.0,
            host_fraction=0.0,
            machines_fraction=0.0,
            min_bandwidth_bytes_per_s=1e9,
            max_bandwidth_bytes_per_s=1e10,
            min_latency_s=1e-6,
            max_latency_s=1e-5,
            tight_memory_fraction=0.0,
        ),
        cached_tasks=2,
    )
    source = PretrainingTasks(
        config, workloads=[], clusters=[ALIKE], fixed_cluster=None, num_threads=1, features=FeatureConfig(), objective="step_time", seed=5
    )
    return Targets(folder, source, evaluations=40, objective="step_time", seed=5)


def test_targets_are_found_once_and_are_the_same_in_any_order(tmp_path: Path) -> None:
    one, other = pool(tmp_path / "one"), pool(tmp_path / "other")
    assert one.missing([2, 0, 2]) == [0, 2]
    for number in (0, 2):
        one.search(number)
    assert one.missing([0, 1, 2]) == [1]
    for number in (2, 0):
        other.search(number)
    for number in (0, 2):
        assert (tmp_path / "one" / f"{number}.safetensors").read_bytes() == (tmp_path / "other" / f"{number}.safetensors").read_bytes()
        task_of, best = one(number)
        assert best.measurement.step_time_s <= 1.2 * task_of.reference_s
        assert (task_of.grouping.expand(best.group_device.numpy().astype(np.int32)) == best.device).all()


def test_a_judge_that_is_given_is_asked(tmp_path: Path) -> None:
    """The search is another with a judge than without, and with one that prefers otherwise; the same judge finds the same."""
    found = []
    for run, seed in enumerate((None, 0, 0, 1)):
        judge = None if seed is None else JudgeNetwork(8, generator=torch.Generator().manual_seed(seed))
        targets = pool(tmp_path / str(run), num_ops=200)
        for number in range(3):
            targets.search(number, judge=judge)
        found.append(b"".join((tmp_path / str(run) / f"{number}.safetensors").read_bytes() for number in range(3)))
    assert found[1] == found[2] and len(set(found)) == 3


def test_a_target_that_is_not_its_tasks_is_refused(tmp_path: Path) -> None:
    targets = pool(tmp_path)
    targets.search(1)
    num_ops = len(load_file(tmp_path / "1.safetensors")["device"])
    for wrong, told in ((np.zeros(num_ops + 1, np.int16), "of shape"), (np.full(num_ops, 99, np.int16), "does not fit task")):
        save_file({"device": wrong}, tmp_path / "1.safetensors")
        with pytest.raises(InputError, match=f"1.safetensors.* {told}"):
            targets(1)
    targets.search(1)
    assert targets(1) is not None


def test_every_task_is_imitated_before_one_is_again() -> None:
    order = imitation_order(10, steps=25, seed=3)
    assert sorted(order[:10]) == sorted(order[10:20]) == list(range(10)) and len(order) == 25
    assert order[:10] != order[10:20] and order != imitation_order(10, steps=25, seed=4)
    assert imitation_order(10, steps=12, seed=3) == order[:12]
