import math

import numpy as np
import pytest

from gdp.runtime.timing import (
    MIN_PAIRS,
    Comparison,
    Protocol,
    alone,
    compare_times,
    effective_number,
    in_turn,
    in_two_looks,
    interval_rank,
    median_interval,
    warm_up,
)


@pytest.mark.parametrize(("num_values", "rank"), [(5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (15, 4), (20, 6), (25, 8), (50, 18), (100, 40)])
def test_ranks_are_those_of_the_tables(num_values, rank):
    """Ranks of the sign test's 95 % interval: Conover, Practical Nonparametric Statistics, table A3."""
    assert interval_rank(num_values) == rank


def test_ranks_of_very_many_values_are_those_of_the_normal_approximation():
    assert interval_rank(4000) == pytest.approx(2000 - 1.96 * math.sqrt(4000) / 2, abs=1)


def test_interval_of_known_values():
    interval = median_interval([3.0, 1.0, 2.0, 6.0, 5.0, 4.0, 9.0, 8.0, 7.0])
    assert (interval.low, interval.median, interval.high) == (2.0, 5.0, 8.0)


def test_few_values_say_nothing():
    interval = median_interval([1.0] * (MIN_PAIRS - 1))
    assert (interval.low, interval.median, interval.high) == (0.0, 1.0, math.inf)


@pytest.mark.parametrize("num_values", [6, 12, 25])
def test_coverage_is_the_binomial_one_whatever_the_noise(num_values):
    rank = interval_rank(num_values)
    exact = 1 - 2 * sum(math.comb(num_values, k) for k in range(rank)) / 2**num_values
    generator = np.random.default_rng(5)
    trials = 4000
    covered = 0
    for _ in range(trials):
        values = 1 + generator.pareto(1.5, num_values)  # heavy one-sided tail, as timings have; no variance
        interval = median_interval(values.tolist())
        covered += interval.low <= 2 ** (1 / 1.5) <= interval.high
    # 4 standard errors of the count of a Bernoulli sample
    assert abs(covered / trials - exact) < 4 * math.sqrt(exact * (1 - exact) / trials)


@pytest.mark.parametrize("correlation", [0.2, 0.5, 0.8])
def test_the_interval_of_correlated_noise_covers_too(correlation):
    """48 pairs of a first-order autoregressive process, heavy-tailed: independent ranks would cover 93, 84 and 60 %."""
    generator = np.random.default_rng(17)
    trials, covered = 1500, 0
    for _ in range(trials):
        noise = generator.standard_t(4, 100)
        for i in range(1, len(noise)):
            noise[i] += correlation * noise[i - 1]
        interval = median_interval((100 + noise[-48:]).tolist())
        covered += interval.low <= 100 <= interval.high
    assert covered / trials > 0.92


def test_the_effective_number_is_that_of_the_autoregressive_process():
    generator = np.random.default_rng(1)
    noise = generator.standard_normal(20_000)
    assert effective_number(noise.tolist()) == len(noise)
    for i in range(1, len(noise)):
        noise[i] += 0.5 * noise[i - 1]
    assert effective_number(noise.tolist()) / len(noise) == pytest.approx((1 - 0.5) / (1 + 0.5), rel=0.1)  # ranks correlate a little less
    assert effective_number([1.0] * 6) == effective_number([2.0, 1.0, 2.0, 1.0, 2.0, 1.0]) == 6


def test_a_speed_up_turns_the_interval_round():
    comparison = Comparison(ratio=0.5, low=0.4, high=0.8, num_pairs=9, candidate_s=1.0, incumbent_s=2.0)
    gain = comparison.speed_up
    assert (gain.low, gain.median, gain.high) == (1.25, 2.0, 2.5)
    unknown = Comparison(ratio=0.5, low=0.0, high=math.inf, num_pairs=9, candidate_s=1.0, incumbent_s=2.0).speed_up
    assert (unknown.low, unknown.high) == (0.0, math.inf)


def test_drift_and_stalls_that_hit_both_cancel():
    drift = np.linspace(1, 3, 20) * np.where(np.arange(20) % 7 == 3, 10.0, 1.0)
    comparison = compare_times((0.8 * drift).tolist(), drift.tolist())
    assert (comparison.ratio, comparison.low, comparison.high) == (pytest.approx(0.8), pytest.approx(0.8), pytest.approx(0.8))
    assert comparison.verdict == "faster"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.8, 0.99, "faster"), (1.01, 1.3, "slower"), (0.99, 1.01, "equal"), (0.9, 1.01, "too_noisy"), (0.99, 1.2, "too_noisy")],
)
def test_verdicts(low, high, verdict):
    comparison = Comparison(ratio=(low + high) / 2, low=low, high=high, num_pairs=9, candidate_s=1.0, incumbent_s=1.0)
    assert comparison.verdict == verdict


def test_equal_candidates_are_seldom_told_apart():
    generator = np.random.default_rng(11)
    wrong = 0
    for _ in range(400):
        candidate_s, incumbent_s = in_turn(
            lambda: float(generator.lognormal(0, 0.1)),
            lambda: float(generator.lognormal(0, 0.1)),
            Protocol(max_pairs=24),
            clock=lambda: 0.0,
        )
        wrong += compare_times(candidate_s, incumbent_s).verdict in ("faster", "slower")
    assert wrong / 400 < 0.15  # three looks of at most 5 % each


class Steps:
    """Records the order of calls; each step takes the next of `times`, the last one for ever."""

    def __init__(self, name: str, log: list[str], times: list[float]) -> None:
        self.name, self.log, self.times = name, log, times

    def __call__(self) -> float:
        self.log.append(self.name)
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]


def test_both_run_in_turn_until_the_interval_is_narrow():
    log: list[str] = []
    candidate_s, incumbent_s = in_turn(Steps("A", log, [2.0]), Steps("B", log, [2.0]), Protocol(max_warm_up=0), clock=lambda: 0.0)
    assert (len(candidate_s), len(incumbent_s)) == (6, 6)
    pairs = ["".join(log[i : i + 2]) for i in range(0, 12, 2)]
    assert set(pairs) == {"AB", "BA"}


def test_what_favours_the_second_step_of_a_pair_favours_neither():
    steps = [0]

    def step():
        steps[0] += 1
        return 1.0 if steps[0] % 2 else 0.8

    candidate_s, incumbent_s = in_turn(step, step, Protocol(max_warm_up=0, precision=0.0), clock=lambda: 0.0)
    comparison = compare_times(candidate_s, incumbent_s)
    assert comparison.low < 1 < comparison.high


def test_a_stall_in_every_fourth_step_is_charged_to_neither():
    """Of two equal placements; in the order A B B A ... a stall whenever the step's number is 0 or 3 of 4 would always be A's."""
    wrong = 0
    for seed in range(300):
        generator, steps = np.random.default_rng(seed), [seed]

        def step(generator=generator, steps=steps):
            steps[0] += 1
            return float(generator.lognormal(0, 0.02)) * (1.3 if steps[0] % 4 == 0 else 1.0)

        protocol = Protocol(max_warm_up=0, max_pairs=48, precision=0.0, clearly_slower=math.inf, seed=seed)
        wrong += compare_times(*in_turn(step, step, protocol, clock=lambda: 0.0)).verdict in ("faster", "slower")
    assert wrong <= 0.05 * 300 + 3 * math.sqrt(300 * 0.05 * 0.95)


def test_a_second_look_is_taken_only_where_the_first_was_too_noisy():
    asked: list[int] = []

    def pairs(scale: float, spread: float):
        generator = np.random.default_rng(1)

        def take(count: int):
            asked.append(count)
            return (scale * generator.lognormal(0, spread, count)).tolist(), generator.lognormal(0, spread, count).tolist()

        return take

    for scale, spread, verdict, counts in ((2.0, 0.1, "slower", [48]), (1.0, 0.001, "equal", [48]), (1.0, 0.5, "too_noisy", [48, 144])):
        asked.clear()
        comparison = in_two_looks(pairs(scale, spread), num_pairs=48)
        assert comparison is not None
        assert (comparison.verdict, asked, comparison.num_pairs) == (verdict, counts, sum(counts))
    answers = [([1.0, 3.0] * 12, [2.0, 1.0] * 12), None]
    assert in_two_looks(lambda count: None, num_pairs=24) is None
    assert in_two_looks(lambda count: answers.pop(0), num_pairs=24) is None


def test_two_looks_together_err_as_seldom_as_one():
    """Equal placements, far too noisy for `equal`, so that every comparison that does not err looks twice."""
    generator, wrong = np.random.default_rng(8), 0
    for _ in range(1000):
        seen = in_two_looks(
            lambda count: (generator.lognormal(0, 0.3, count).tolist(), generator.lognormal(0, 0.3, count).tolist()), num_pairs=48
        )
        assert seen is not None
        wrong += seen.verdict in ("faster", "slower")
    assert wrong <= 50


def test_the_noise_verdict_says_what_can_be_told_and_what_cannot():
    comparison = Comparison(ratio=1.03, low=0.97, high=1.09, num_pairs=48, candidate_s=1.0, incumbent_s=1.0)
    assert comparison.verdict == "too_noisy"
    assert comparison.noise_sentence == "this machine is too noisy to tell 3.0 % apart; 9.0 % can be told"
    even = Comparison(ratio=1.0, low=0.95, high=1.05, num_pairs=48, candidate_s=1.0, incumbent_s=1.0)
    assert even.noise_sentence == "this machine is too noisy to tell 2.0 % apart; 7.5 % can be told"
    few = Comparison(ratio=1.0, low=0.0, high=math.inf, num_pairs=5, candidate_s=1.0, incumbent_s=1.0)
    assert few.noise_sentence == "this machine is too noisy to tell 2.0 % apart; 5 pairs are too few to say what can be told"


def test_what_is_said_to_be_told_is_told_four_times_in_five():
    generator = np.random.default_rng(4)

    def compared(scale: float) -> Comparison:
        return compare_times((scale * generator.lognormal(0, 0.1, 48)).tolist(), generator.lognormal(0, 0.1, 48).tolist())

    tellable = float(np.median([compared(1.0).tellable for _ in range(300)]))
    told = sum(compared(1 + tellable).verdict == "slower" for _ in range(500)) / 500
    assert 0.7 < told < 0.9  # the order statistics' interval is a little wider than nominal, the normal quantiles are for its limit


def test_a_comparison_says_that_the_machine_s_speed_moved():
    generator = np.random.default_rng(6)
    speed = np.where(np.arange(48) < 20, 1.0, 1.25)
    candidate_s, incumbent_s = (generator.lognormal(0, 0.001, (2, 48)) * speed).tolist()
    moved = compare_times(candidate_s, incumbent_s)
    assert moved.drift == pytest.approx(0.25, abs=0.002) and moved.low < 1 < moved.high
    assert moved.drift_sentence == "the machine got 25 % slower meanwhile"
    assert compare_times(candidate_s[::-1], incumbent_s[::-1]).drift_sentence == "the machine got 20 % faster meanwhile"
    small = compare_times((1 + 0.01 * (speed - 1)).tolist(), [1.0] * 48)
    assert (small.drift, small.drift_sentence) == (0.0, "")


def test_a_clearly_slower_candidate_costs_six_pairs_a_close_one_all():
    generator = np.random.default_rng(3)
    for scale, pairs in ((2.0, 6), (1.0, 48)):
        candidate_s, _ = in_turn(
            lambda scale=scale: scale * float(generator.uniform(0.8, 1.2)),
            lambda: float(generator.uniform(0.8, 1.2)),
            Protocol(),
            clock=lambda: 0.0,
        )
        assert len(candidate_s) == pairs


def test_time_runs_out_only_after_enough_pairs():
    seconds = iter(range(1000))
    protocol = Protocol(max_time_s=8.0, precision=0.0)
    clock = lambda: float(next(seconds))  # noqa: E731
    log: list[str] = []
    candidate_s, _ = in_turn(Steps("A", log, [1.0]), Steps("B", log, [1.0]), protocol, clock=clock)
    assert len(candidate_s) == 9
    assert len(alone(Steps("A", log, [1.0]), Protocol(max_time_s=-1.0), clock=lambda: 0.0)) == MIN_PAIRS


def test_warming_up_ends_when_times_stop_falling():
    log: list[str] = []
    assert warm_up(Steps("A", log, [9.0, 5.0, 3.0, 2.0, 1.5, 1.0, 1.0, 1.0, 1.0, 1.0]), max_steps=20) == 9
    assert warm_up(Steps("A", log, [1.0]), max_steps=20) == 5
    assert warm_up(Steps("A", log, [2.0**-k for k in range(30)]), max_steps=10) == 10


def test_too_few_pairs_are_refused():
    with pytest.raises(ValueError, match="at least 6"):
        Protocol(max_pairs=5)


class Machine:
    """Time goes on with steps. In the first of every five seconds the candidate's steps take a third longer."""

    def __init__(self) -> None:
        self.now, self.num_steps = 0.0, 0

    def clock(self) -> float:
        return self.now

    def candidate(self) -> float:
        return self.step(0.016 if self.now % 5 < 1 else 0.012)

    def incumbent(self) -> float:
        return self.step(0.012)

    def step(self, seconds: float) -> float:
        self.now += seconds
        self.num_steps += 1
        return seconds


@pytest.mark.parametrize(("spread_s", "ratio"), [(0.0, 4 / 3), (10.0, 1.0)])
def test_pairs_that_are_spread_meet_more_than_one_state_of_the_machine(spread_s, ratio):
    machine, protocol = Machine(), Protocol(max_warm_up=0, max_pairs=24, precision=0.0, clearly_slower=math.inf, spread_s=spread_s)
    seen = compare_times(*in_turn(machine.candidate, machine.incumbent, protocol, clock=machine.clock))
    assert (seen.num_pairs, seen.ratio) == (24, pytest.approx(ratio))
    assert (seen.verdict == "slower") == (spread_s == 0)
    assert machine.now >= 0.8 * spread_s and (machine.num_steps == 48) == (spread_s == 0)


def test_a_placement_alone_is_spread_likewise_and_long_steps_all_count():
    machine = Machine()
    times = alone(machine.candidate, Protocol(max_warm_up=0, max_pairs=24, spread_s=10.0), clock=machine.clock)
    assert len(times) == 24 and np.median(times) == pytest.approx(0.012) and machine.now >= 8
    machine = Machine()
    step = lambda: machine.step(1.0)  # noqa: E731
    candidate_s, _ = in_turn(step, step, Protocol(max_warm_up=0, max_time_s=60.0, spread_s=10.0), clock=machine.clock)
    assert machine.num_steps == 2 * len(candidate_s)
