import numpy as np
import pytest

from gdp.runtime.drift import MAX_FALSE_ALARMS, speed_change


def test_a_step_is_found_with_its_size():
    times = [1.0, 1.01, 0.99, 1.0, 1.02, 0.98] * 2 + [1.2, 1.21, 1.19, 1.2, 1.22, 1.18] * 2
    assert speed_change(times) == pytest.approx(0.2, abs=1e-9)
    assert speed_change([1 / time for time in times]) == pytest.approx(1 / 1.2 - 1, abs=1e-9)


def test_the_statistic_is_that_of_all_pairs():
    """U_t counts, over all pairs across t, which is greater (Pettitt 1979, equation 2.2): the limits of the p-value, by brute force."""
    generator = np.random.default_rng(2)
    alarms = 0
    for _ in range(300):
        times = generator.integers(1, 6, 24).astype(float)  # with ties
        times[16:] += generator.uniform(0, 4)
        largest = max(abs(sum(np.sign(a - b) for a in times[:t] for b in times[t:])) for t in range(1, 24))
        surely = 2 * np.exp(-6 * largest**2 / (24**3 + 24**2)) <= MAX_FALSE_ALARMS
        alarms += surely
        assert (speed_change(times.tolist()) != 0) == surely
    assert 50 < alarms < 290


def test_even_machines_raise_few_alarms():
    generator = np.random.default_rng(3)
    alarms = sum(speed_change((1 + generator.pareto(2.0, 48)).tolist()) != 0 for _ in range(1000))
    assert alarms <= 20  # 10 expected at most; the formula is on the safe side


def test_few_or_equal_times_say_nothing():
    assert speed_change([1.0]) == speed_change([1.0, 9.0]) == speed_change([2.0] * 50) == 0.0
