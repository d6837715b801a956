"""Learning from a search: on a problem whose answer is known, and to the same bits after a restart."""

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from gdp.baselines.local_search import Tried
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster, preset
from gdp.features.config import FeatureConfig
from gdp.features.graph_tensors import GraphTensors
from gdp.graph import Graph
from gdp.learn.config import RewardConfig
from gdp.learn.explore import Exploration, _alike
from gdp.learn.learner import Learner, new_learner
from gdp.learn.task import Task, make_task, relative_reward
from gdp.measurement import Measurement, MeasurementBatch, stack
from gdp.placement import Placement
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Policy
from gdp.policy.region import RegionDecision, RegionDecoder
from gdp.runtime.journal import Journal
from gdp.runtime.screened import ScreenedRuntime
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered
from tests.learn.problems import learn_config

SIMULATOR = Simulator(num_threads=1)
ON = preset("p100x4")
GRAPH = layered(np.random.default_rng(3), num_ops=300, training=True)
REWARD = relative_reward(RewardConfig(objective="step_time", invalid=-10.0))


def task() -> Task:
    return make_task("t", GRAPH, ON, runtime=SIMULATOR, features=FeatureConfig(), max_groups=None, objective="step_time")


def learner(seed: int = 0, *, judge_width: int = 0) -> Learner:
    sizes = PolicyConfig(
        hidden=16, type_embedding=4, heads=2, segment=32, feed_forward=32, head_width=8, context=8, judge_width=judge_width
    )
    policy = Policy(sizes, FeatureConfig(), generator=torch.Generator().manual_seed(seed))
    return new_learner(policy, parameters=policy.conditioning_and_heads(), seed=seed)


def exploration(of: Learner, *, updates: int, samples: int = 24, elite_weight: float = 0.1) -> Exploration:
    start = np.zeros((1, GRAPH.num_ops), np.int32)
    config = learn_config(updates=updates, samples_per_update=samples, elite_weight=elite_weight, learning_rate=1e-3)
    return Exploration(of, task(), runtime=SIMULATOR, predictor=SIMULATOR, evaluations=1 + updates * samples, config=config, start=start)


def test_it_counts_every_evaluation_and_keeps_the_best() -> None:
    state = learner()
    before = copy.deepcopy(state.policy.state_dict())
    updates = list(exploration(state, updates=8).updates(REWARD))
    assert [update.metrics["train/evaluations"] for update in updates] == [1 + 24 * number for number in range(1, 9)]
    found = state.found["t"]
    assert SIMULATOR.batch(GRAPH, ON, found.device[None]).step_time_s[0] == found.measurement.step_time_s
    best = [update.metrics["train/best_ratio"] for update in updates]
    assert best == sorted(best, reverse=True) and best[-1] == pytest.approx(found.measurement.step_time_s / task().reference_s)
    alone = SIMULATOR.batch(GRAPH, ON, np.zeros((1, GRAPH.num_ops), np.int32)).step_time_s[0]
    assert found.measurement.step_time_s < 0.7 * alone
    assert sum(update.metrics["explore/regions"] for update in updates) == pytest.approx(0.15 * 8 * 24, rel=0.4)
    moved = {name for name, value in state.policy.state_dict().items() if not torch.equal(value, before[name])}
    assert moved and all(name.startswith(("conditioner.", "head.", "device.")) or ".gate." in name for name in moved)


def region_log_prob(of: Learner, x: GraphTensors, decision: RegionDecision) -> float:
    device, free = torch.from_numpy(decision.device)[None, None], torch.from_numpy(decision.free)[None]
    with torch.no_grad():
        log_prob, _ = of.policy.evaluate(x, device, held=~free)
    return float((log_prob[:, 0] * free).sum())


def test_what_gained_becomes_likelier_and_what_lost_less_likely() -> None:
    state = learner()
    explored = exploration(state, updates=20, elite_weight=0.0)
    x, generator = task().tensors, np.random.default_rng(0)
    decoder = RegionDecoder(state.policy, x)
    decisions = []
    for first in range(0, 40, 2):
        free = np.zeros(x.num_groups, np.bool_)
        free[first : first + 4] = True
        decoder(np.zeros(x.num_groups, np.int64), free, generator)
        decisions.append(decoder.last)
    gain = np.where(np.arange(len(decisions)) % 2, 0.3, -0.3)
    before = np.array([region_log_prob(state, x, decision) for decision in decisions])
    assert before == pytest.approx([decision.log_prob[decision.free].sum() for decision in decisions], abs=1e-3)
    state.update = 1
    losses = explored._improve(decisions, gain, np.ones(len(decisions), np.bool_))
    change = np.array([region_log_prob(state, x, decision) for decision in decisions]) - before
    assert (gain * change).sum() > 0.01  # what the surrogate promises; regions overlap, so not each by itself
    assert float(losses[0].approx_kl) == pytest.approx(0, abs=1e-5)  # before the first step the ratios are 1


@pytest.mark.parametrize("judge_width", [0, 8])
def test_a_restored_exploration_continues_bit_for_bit(judge_width: int) -> None:
    whole, first = learner(judge_width=judge_width), learner(judge_width=judge_width)
    rest = [dict(update.metrics) for update in exploration(whole, updates=6).updates(REWARD)][3:]
    begun = exploration(first, updates=6)
    for update in begun.updates(REWARD):
        if update.number == 3:
            break
    second = learner(seed=1, judge_width=judge_width)
    continued = exploration(second, updates=6)
    second.policy.load_state_dict(first.policy.state_dict())
    second.optimizer.load_state_dict(copy.deepcopy(first.optimizer.state_dict()))
    second.numpy_generator.bit_generator.state = first.numpy_generator.bit_generator.state
    second.update, second.evaluations, second.history = first.update, first.evaluations, dict(first.history)
    second.incumbent, second.found, second.last_improvement = dict(first.incumbent), dict(first.found), first.last_improvement
    continued.restore(begun.state())
    again = [dict(update.metrics) for update in continued.updates(REWARD)]
    timeless = [[{name: value for name, value in row.items() if not name.startswith("time/")} for row in rows] for rows in (rest, again)]
    assert timeless[0] == timeless[1]
    for name, value in whole.policy.state_dict().items():
        assert torch.equal(value, second.policy.state_dict()[name]), name


class Machine:
    """Runs what the simulator predicts at the same speed, but all on device 0 in a third of it."""

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        return self.batch(graph, cluster, placement.device[None])[0]

    def batch(self, graph: Graph, cluster: Cluster, device: np.ndarray) -> MeasurementBatch:
        predicted = SIMULATOR.batch(graph, cluster, device)
        rows = [predicted[row].scaled(1 / 3 if (device[row] == 0).all() else 1.0) for row in range(len(device))]
        return stack([dataclasses.replace(row, num_runs=5) for row in rows])


def test_what_was_measured_counts_though_the_search_has_left_it(tmp_path: Path) -> None:
    """The first move leaves the placement that is really the fastest, for one that is predicted to be faster; both are measured."""
    state = learner()
    config = learn_config(updates=3, samples_per_update=24, learning_rate=1e-3)
    start = np.zeros((1, GRAPH.num_ops), np.int32)
    with Journal(tmp_path / "journal.jsonl") as journal:
        screened = ScreenedRuntime(predictor=SIMULATOR, runtime=Machine(), measured_per_batch=48, journal=journal)
        of = dataclasses.replace(task(), runtime=screened)
        explored = Exploration(state, of, runtime=SIMULATOR, predictor=SIMULATOR, evaluations=73, config=config, start=start)
        list(explored.updates(REWARD))
    assert (explored.best != 0).any(), "the search itself goes by predictions"
    best = screened.best
    assert best is not None and (best.device == 0).all()
    assert (state.found["t"].device == 0).all() and state.found["t"].measurement.step_time_s == best.measurement.step_time_s


def test_a_gain_is_of_two_measurements_or_of_two_predictions() -> None:
    grouping = coarsen(GRAPH)
    device = np.stack([np.zeros(GRAPH.num_ops, np.int32), grouping.expand(np.arange(grouping.num_groups, dtype=np.int32) % 4)])
    predicted = SIMULATOR.batch(GRAPH, ON, device)
    tried = Tried(
        device=device[:1],
        measurements=stack([predicted[0]]),
        before=device[1],
        measurement_before=predicted[1],
        by_region=np.ones(1, np.bool_),
    )
    corrected = [predicted[row].scaled(1.5) for row in (0, 1)]
    measured = [dataclasses.replace(predicted[row].scaled(factor), num_runs=4) for row, factor in ((0, 2.0), (1, 7.0))]
    assert _alike(measured[0], measured[1], tried) == (measured[0], measured[1])
    assert _alike(corrected[0], corrected[1], tried) == (corrected[0], corrected[1])
    for after, before in ((measured[0], corrected[1]), (corrected[0], measured[1])):
        found = _alike(after, before, tried)
        assert [one.step_time_s for one in found] == pytest.approx([one.step_time_s for one in corrected])
        assert {one.num_runs for one in found} == {0}
