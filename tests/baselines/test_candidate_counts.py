"""How many moves a judge chooses from: what is drawn, and what is learned of it."""

import numpy as np
import pytest

from gdp.baselines.candidate_counts import RANGES, CandidateCounts


def taught(counts: CandidateCounts, gaining: int, *, moves: int, generator: np.random.Generator) -> None:
    """Moves of one range make the step a thousandth shorter, those of the others longer."""
    for _ in range(moves):
        _, number = counts.draw(generator)
        counts.learn(number, before_s=1.0, after_s=0.999 if number == gaining else 1.1)


def test_at_first_every_range_is_drawn_alike_and_every_count_is_of_its_range():
    counts, generator = CandidateCounts(), np.random.default_rng(0)
    np.testing.assert_allclose(counts.probabilities(), 1 / len(RANGES))
    drawn = [counts.draw(generator) for _ in range(5000)]
    np.testing.assert_allclose(np.bincount([number for _, number in drawn]) / 5000, 0.2, atol=0.02)
    for number, (fewest, most) in enumerate(RANGES):
        of = [count for count, one in drawn if one == number]
        assert min(of) == fewest and most * 0.98 <= max(of) <= most
    wide = np.log([count for count, number in drawn if number == 4])
    assert np.mean(wide) == pytest.approx((np.log(65) + np.log(257)) / 2, abs=0.05), "uniform in the logarithm"


@pytest.mark.parametrize("gaining", range(len(RANGES)))
def test_the_range_that_gains_is_drawn_most_and_none_is_forgotten(gaining):
    counts, generator = CandidateCounts(), np.random.default_rng(gaining)
    taught(counts, gaining, moves=300, generator=generator)
    others = np.delete(counts.probabilities(), gaining)
    assert counts.probabilities()[gaining] > max(0.4, 2 * others.max())
    assert others.min() > 0.04
    assert counts.probabilities().sum() == pytest.approx(1)


def test_what_has_gained_long_ago_counts_less():
    counts, generator = CandidateCounts(), np.random.default_rng(0)
    taught(counts, 4, moves=300, generator=generator)
    taught(counts, 0, moves=400, generator=generator)
    assert counts.probabilities()[0] > 0.4 > 0.2 > counts.probabilities()[4]


def test_what_runs_after_what_did_not_is_a_gain_like_others():
    counts = CandidateCounts()
    counts.learn(1, before_s=1e30, after_s=1.0)
    counts.learn(2, before_s=0.0, after_s=0.0)
    counts.learn(3, before_s=1.0, after_s=np.inf)
    assert counts.gained == pytest.approx([0, 0.99**2, 0, 0, 0])
    assert counts.tries == pytest.approx([0, 0.99**2, 0.99, 1, 0])
