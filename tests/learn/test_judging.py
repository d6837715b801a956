"""Teaching a judge: what is recorded is true, what is learned holds for graphs that were not among it."""

import dataclasses

import numpy as np
import pytest
import torch

from gdp.cluster import preset
from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.features.move_features import MOVE_FEATURES
from gdp.learn.judging import JudgedMoves, JudgingConfig, judged_moves, teach
from gdp.learn.task import Task, make_task
from gdp.policy.judge import JudgeNetwork
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered

CONFIG = JudgingConfig(
    rounds=1,
    tasks_per_round=6,
    min_ops=100,
    max_ops=400,
    min_evaluations=120,
    max_evaluations=200,
    steps=300,
    batch_size=256,
    learning_rate=3e-3,
)


def task(seed: int) -> Task:
    graph = layered(np.random.default_rng(seed), num_ops=400, training=True)
    return make_task(
        str(seed), graph, preset("p100x4"), runtime=Simulator(), features=FeatureConfig(), max_groups=64, objective="step_time"
    )


def network() -> JudgeNetwork:
    return JudgeNetwork(16, generator=torch.Generator().manual_seed(0))


def area_under_the_curve(score: np.ndarray, better: np.ndarray) -> float:
    """The probability that one that got better has a higher score than one that did not."""
    return float((score[better][:, None] > score[~better][None]).mean())


def correlation_within(graph: np.ndarray, score: np.ndarray, truth: np.ndarray) -> float:
    """Correlation once each graph's means are taken away: how much there is to gain in a graph is no skill of a judge of moves."""
    score, truth = (values - (np.bincount(graph, values) / np.bincount(graph))[graph] for values in (score, truth))
    return float(np.corrcoef(score, truth)[0, 1])


@pytest.fixture(scope="module")
def known() -> list[JudgedMoves]:
    return [judged_moves(task(seed), None, config=CONFIG, generator=np.random.default_rng(seed)) for seed in range(18)]


def test_what_was_taught_holds_for_other_graphs(known):
    judge = network()
    losses = [row["judge/improves_loss"] for row in teach(judge, known[:12], config=CONFIG, generator=torch.Generator().manual_seed(0))]
    assert len(losses) == CONFIG.steps and np.mean(losses[-50:]) < 0.8 * np.mean(losses[:10])
    inputs, gain = (np.concatenate([getattr(moves, field) for moves in known[12:]]) for field in ("inputs", "gain"))
    with torch.no_grad():
        better, log_gain = (score.numpy() for score in judge(torch.from_numpy(inputs)))
    improved = gain > 1e-7
    assert area_under_the_curve(better, improved) > 0.75
    graph = np.repeat(np.arange(6), [len(moves.gain) for moves in known[12:]])[improved]
    assert correlation_within(graph, log_gain[improved], np.log(gain[improved])) > 0.4


def test_the_same_seed_teaches_the_same(known):
    judges = [network(), network()]
    config = dataclasses.replace(CONFIG, steps=20)
    for judge in judges:
        list(teach(judge, known, config=config, generator=torch.Generator().manual_seed(1)))
    for one, other in zip(judges[0].state_dict().values(), judges[1].state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_what_is_recorded(known):
    moves = known[0]
    assert moves.inputs.shape == (len(moves.gain), 2 * len(MOVE_FEATURES)) and moves.inputs.dtype == np.float32
    assert np.isfinite(moves.inputs).all() and (moves.gain >= -1).all() and (moves.gain < 1).all()
    assert 0 < (moves.gain > 1e-7).mean() < 0.6
    again = judged_moves(task(0), None, config=CONFIG, generator=np.random.default_rng(0))
    np.testing.assert_array_equal(again.gain, moves.gain)
    judged = judged_moves(task(0), network(), config=CONFIG, generator=np.random.default_rng(0))
    assert len(judged.gain) != len(moves.gain) or (judged.gain != moves.gain).any(), "another judge leads elsewhere"


def test_nothing_to_learn_from_is_refused():
    stuck = JudgedMoves(inputs=np.zeros((4, 2 * len(MOVE_FEATURES)), np.float32), gain=np.zeros(4, np.float32))
    with pytest.raises(InputError, match="more tasks, or larger graphs"):
        next(teach(network(), [stuck, JudgedMoves.none()], config=CONFIG, generator=torch.Generator()))


def test_teaching_that_diverges_ends(known):
    one = network()
    with torch.no_grad():
        next(one.parameters()).mul_(1e38)
    with pytest.raises(InputError, match="teaching the judge has diverged"):
        for _ in teach(one, known, config=CONFIG, generator=torch.Generator()):
            pass


@pytest.mark.parametrize(
    "wrong", [{"rounds": -1}, {"tasks_per_round": 0}, {"max_ops": 50}, {"learning_rate": 0.0}, {"min_evaluations": 900}]
)
def test_a_configuration_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError, match="judging"):
        dataclasses.replace(CONFIG, **wrong)
