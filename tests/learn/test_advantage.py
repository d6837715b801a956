import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdp.learn.advantage import History, Trials, advantages

ALL = np.ones(2, bool)


@given(st.lists(st.lists(st.floats(-100, 100), max_size=5), min_size=1, max_size=5))
def test_trials_are_mean_and_deviation_of_everything(batches: list[list[float]]) -> None:
    trials = Trials()
    for batch in batches:
        trials = trials.with_rewards(np.array(batch, np.float64))
    everything = np.array([value for batch in batches for value in batch])
    assert trials.count == len(everything)
    if len(everything) > 1:
        assert trials.mean == pytest.approx(everything.mean(), abs=1e-9)
        assert trials.std == pytest.approx(everything.std(ddof=1), abs=1e-7)


def test_gdp_baseline_is_the_average_of_all_previous_trials() -> None:
    history = History().with_rewards(np.array([-1.0, -10.0]), np.array([True, False])).with_rewards(np.array([-4.0]), np.array([True]))
    result = advantages(np.array([-2.0, -5.0]), ALL, history, baseline="previous_trials", normalise=False, clip=np.inf)
    assert result == pytest.approx([3.0, 0.0])


def test_first_trials_are_compared_with_each_other() -> None:
    result = advantages(np.array([-1.0, -3.0]), ALL, History(), baseline="previous_trials", normalise=False, clip=np.inf)
    assert result == pytest.approx([2.0, -2.0])


def test_batch_baseline_leaves_the_trial_itself_out() -> None:
    result = advantages(np.array([-1.0, -2.0, -6.0]), np.ones(3, bool), History(), baseline="batch", normalise=False, clip=np.inf)
    assert result == pytest.approx([3.0, 1.5, -4.5])


def test_one_placement_that_cannot_run_does_not_drown_the_others() -> None:
    reward = np.array([-1.0, -1.1, -0.9, -1.0, -10.0])
    valid = reward > -10
    result = advantages(reward, valid, History(), baseline="batch", normalise=True, clip=3.0)
    alone = advantages(reward[:4], valid[:4], History(), baseline="batch", normalise=True, clip=3.0)
    assert result[:4] == pytest.approx(alone)
    assert result[4] == -3.0


@pytest.mark.parametrize("normalise", [True, False])
def test_when_all_are_alike_nothing_is_learned(normalise: bool) -> None:
    result = advantages(np.full(3, -10.0), np.zeros(3, bool), History(), baseline="batch", normalise=normalise, clip=3.0)
    assert result == pytest.approx(np.zeros(3))
