"""How a candidate's step time is told apart from the incumbent's on a machine whose speed drifts.

Both run in turn, in pairs, and the unit of evidence is the ratio of a candidate's step to the incumbent's step beside it: what slows both cancels. Which of the two goes first is
drawn by lot for every pair (Fisher, The Design of Experiments, section 9): between equal placements each ratio is then as likely above 1 as below, independently of all others,
whatever the machine does, be it that it drifts, bursts, or stalls in every fourth step. An order that repeats, A B B A say, would charge such a stall to one side for ever.

The median ratio has a distribution-free confidence interval from order statistics: the k-th smallest and k-th largest of n independent
values enclose the median of their distribution with probability 1 - 2 P(Binomial(n, 1/2) < k) (Conover, Practical Nonparametric Statistics, section 3.2).

The lot makes ratios independent of the machine's noise. What slows one side alone for a while leaves neighbouring ratios correlated, and makes n of them worth less: with
correlation r of neighbours,
as much as n (1 - r) / (1 + r) independent ones (a first-order autoregressive process; Wilks, Statistical Methods in the Atmospheric Sciences, section 5.2.4). The ranks are those
of so many, spread over the n. A correlation that chance explains (below 1.645 / sqrt(n)) counts as none.

Short steps are done before a state of the machine is over: on a virtual machine two cores were seen to share data a quarter slower for a second and then not, which no interval
from within that second can know. So pairs may be spread over a time (`Protocol.spread_s`).

`in_turn` looks at the evidence after 6, 12, 24, ... pairs. Stopping where it suffices makes the nominal 95 % of the last interval a few percent optimistic: good enough to choose
what is measured next. A verdict comes from `in_two_looks`, whose two intervals share the 5 %. `benchmarks/timing.py` measures the error rates of both.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Literal

import numpy as np

from gdp.runtime.drift import speed_change

MIN_PAIRS = 6
"""With fewer values, no two of them enclose the median with 95 % confidence."""

_PER_LOOK = 0.975
"""Confidence of the interval at each of two looks, so that both hold with 95 % (Bonferroni)."""

_GROUP = 3
"""Pairs that are taken one after the other, however far they are spread."""

_SEEN_4_OF_5 = 1.43
"""A difference of so many half-widths of a 95 % interval is seen in 80 % of comparisons: (1.96 + 0.84) / 1.96, quantiles of the normal distribution."""

Verdict = Literal["faster", "slower", "equal", "too_noisy"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """How much evidence is taken."""

    max_warm_up: int = 10
    """steps before timing, at most; warming up ends when steps no longer get faster."""
    max_pairs: int = 48
    precision: float = 0.01
    """no more pairs when the interval of the ratio is within this to either side, relatively."""
    clearly_slower: float = 1.1
    """no more pairs when the whole interval of the ratio is above this."""
    max_time_s: float = 10.0
    """no more pairs after this time, warming up left out, once there are `MIN_PAIRS`."""
    spread_s: float = 0.0
    """pairs are spread evenly over at least this time, in groups, with steps between that do not count: a state of the machine may last a second, in which quick steps fit."""
    seed: int = 0
    """draws which of a pair goes first."""

    def __post_init__(self) -> None:
        if self.max_pairs < MIN_PAIRS:
            raise ValueError(f"max_pairs is {self.max_pairs}; a 95 % interval of the median needs at least {MIN_PAIRS} pairs")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A median and its confidence interval, from 0 to infinity where there is not evidence enough for one."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """The bounds, for people."""
        return f"{self.low:.2f} to {self.high:.2f}" if math.isfinite(self.high) and self.low else "too noisy for an interval"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """A candidate's step time divided by the incumbent's."""

    ratio: float
    """median of the ratios of neighbouring steps; below 1 the candidate is faster."""
    low: float
    high: float
    """95 % confidence interval of `ratio`."""
    num_pairs: int
    candidate_s: float
    incumbent_s: float
    """median seconds of each, as they ran."""
    resolution: float = 0.02
    """differences up to this, relatively, count as none."""
    drift: float = 0.0
    """how much slower the machine got while both ran, relatively, negative where faster; 0 where no change that exceeds `resolution` is sure. The ratio does
    not suffer, the seconds do."""

    @property
    def tellable(self) -> float:
        """The smallest relative difference that so many pairs would tell on this machine in 80 % of all comparisons, and never less than what the interval leaves open."""
        half_width = max(self.high / self.ratio, self.ratio / self.low if self.low else math.inf) - 1
        return max(_SEEN_4_OF_5 * half_width, self.high - 1, 1 - self.low)

    @property
    def noise_sentence(self) -> str:
        """What this machine cannot tell apart and what it can, for a comparison that is `too_noisy`."""
        unseen = max(abs(self.ratio - 1), self.resolution)
        can = f"{self.tellable:.1%} can" if math.isfinite(self.tellable) else f"{self.num_pairs} pairs are too few to say what can"
        return f"this machine is too noisy to tell {unseen:.1%} apart; {can} be told".replace("%", " %")

    @property
    def drift_sentence(self) -> str:
        """That the machine's speed moved, and by how much; empty when it did not."""
        return (
            f"the machine got {abs(self.drift):.0%} {'slower' if self.drift > 0 else 'faster'} meanwhile".replace("%", " %")
            if self.drift
            else ""
        )

    @property
    def speed_up(self) -> Interval:
        """How many times as fast as the incumbent the candidate is."""
        return Interval(median=1 / self.ratio, low=1 / self.high, high=1 / self.low if self.low else math.inf)

    @property
    def verdict(self) -> Verdict:
        """`faster` or `slower` when the interval leaves out 1; else `equal` when it is within the resolution, and `too_noisy` when the machine cannot tell."""
        if self.high < 1:
            return "faster"
        if self.low > 1:
            return "slower"
        return "equal" if self.high - 1 <= self.resolution and 1 - self.low <= self.resolution else "too_noisy"


def interval_rank(num_values: int, *, confidence: float = 0.95) -> int:
    """The largest k for which the k-th smallest and the k-th largest value enclose the median with at least `confidence`; 0 when there is none."""
    outcomes, tail, rank = 2**num_values, 0, 0  # whole numbers, which no number of values overflows
    while rank < num_values // 2:
        tail += math.comb(num_values, rank)
        if 1 - 2 * tail / outcomes < confidence:
            break
        rank += 1
    return rank


def median_interval(values: Sequence[float], *, confidence: float = 0.95) -> Interval:
    """The median of `values`, given in the order in which they came, with its confidence interval; of less than `MIN_PAIRS` independent values' worth, the whole range of
    positive numbers."""
    ordered, effective = sorted(values), effective_number(values)
    median = float(np.median(ordered))
    rank = interval_rank(int(effective), confidence=confidence)
    if not rank:
        return Interval(median=median, low=0.0, high=math.inf)
    spread = max(1, int(rank * len(ordered) / effective))
    return Interval(median=median, low=float(ordered[spread - 1]), high=float(ordered[-spread]))


def effective_number(values: Sequence[float]) -> float:
    """How many independent values these, in the order in which they came, are worth: by the correlation of neighbours' ranks, at most all of them."""
    num_values, ordered = len(values), np.sort(values)
    ranks = (
        np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") - num_values
    ) / 2.0  # equal values share one
    correlation = float(ranks[:-1] @ ranks[1:]) / max(float(ranks @ ranks), 1.0)
    if correlation < 1.645 / math.sqrt(num_values):
        return float(num_values)
    return num_values * (1 - correlation) / (1 + correlation)


def compare_times(candidate_s: Sequence[float], incumbent_s: Sequence[float], *, confidence: float = 0.95) -> Comparison:
    """Compares times taken in turn: the i-th of one beside the i-th of the other."""
    interval = median_interval([a / b for a, b in zip(candidate_s, incumbent_s, strict=True)], confidence=confidence)
    comparison = Comparison(
        ratio=interval.median,
        low=interval.low,
        high=interval.high,
        num_pairs=len(candidate_s),
        candidate_s=float(np.median(candidate_s)),
        incumbent_s=float(np.median(incumbent_s)),
    )
    drift = speed_change([math.sqrt(a * b) for a, b in zip(candidate_s, incumbent_s, strict=True)])
    return dataclasses.replace(comparison, drift=drift) if abs(drift) > comparison.resolution else comparison


Times = tuple[Sequence[float], Sequence[float]]
"""Seconds of the candidate and of the incumbent, pair by pair."""


def in_two_looks(pairs: Callable[[int], Times | None], *, num_pairs: int) -> Comparison | None:
    """A verdict on two placements from `num_pairs` pairs, and from four times as many in all where those leave it too noisy to tell. `pairs` takes so many more of them;
    it answers None when one of the two did not run to the end, and then so does this."""
    first = pairs(num_pairs)
    if first is None:
        return None
    seen = compare_times(*first, confidence=_PER_LOOK)
    if seen.verdict != "too_noisy":
        return seen
    more = pairs(3 * num_pairs)
    return None if more is None else compare_times([*first[0], *more[0]], [*first[1], *more[1]], confidence=_PER_LOOK)


def warm_up(step: Callable[[], float], *, max_steps: int, max_time_s: float = math.inf) -> int:
    """Calls `step` until its times stop falling: the fastest of the last three is not 3 % below the fastest before. No more calls when they have taken `max_time_s`. Returns
    the number of calls."""
    times: list[float] = []
    while len(times) < max_steps and sum(times) < max_time_s:
        times.append(step())
        if len(times) >= 5 and min(times[-3:]) > 0.97 * min(times[:-3]):
            break
    return len(times)


def in_turn(
    candidate: Callable[[], float], incumbent: Callable[[], float], protocol: Protocol, *, clock: Callable[[], float] = perf_counter
) -> tuple[list[float], list[float]]:
    """Times of both, taken in turn until the protocol is satisfied. Each callable runs one step and returns its seconds."""
    for step in (candidate, incumbent):
        warm_up(step, max_steps=protocol.max_warm_up, max_time_s=protocol.max_time_s)
    candidate_s: list[float] = []
    incumbent_s: list[float] = []
    begin, look, lots = clock(), MIN_PAIRS, np.random.default_rng(protocol.seed)
    while len(candidate_s) < protocol.max_pairs:
        _run_on(len(candidate_s), (candidate, incumbent), protocol, lambda: clock() - begin)
        both = [(candidate, candidate_s), (incumbent, incumbent_s)]
        for run, times in both if lots.integers(2) else reversed(both):
            times.append(run())
        late = clock() - begin > protocol.max_time_s and len(candidate_s) >= MIN_PAIRS
        if late:
            break
        if len(candidate_s) == look:
            look *= 2
            seen = compare_times(candidate_s, incumbent_s)
            precise = max(seen.high - seen.ratio, seen.ratio - seen.low) < protocol.precision * seen.ratio
            if precise or seen.low > protocol.clearly_slower:
                break
    return candidate_s, incumbent_s


def alone(step: Callable[[], float], protocol: Protocol, *, clock: Callable[[], float] = perf_counter) -> list[float]:
    """Times of one placement by itself, for the anchor of a scale: as many as the protocol asks of a pair."""
    warm_up(step, max_steps=protocol.max_warm_up, max_time_s=protocol.max_time_s)
    times: list[float] = []
    begin = clock()
    while len(times) < protocol.max_pairs and (clock() - begin <= protocol.max_time_s or len(times) < MIN_PAIRS):
        _run_on(len(times), (step,), protocol, lambda: clock() - begin)
        times.append(step())
    return times


def _run_on(done: int, steps: Sequence[Callable[[], float]], protocol: Protocol, elapsed_s: Callable[[], float]) -> None:
    """Before a group of pairs: steps that do not count, until as much of `spread_s` is over as of the pairs is done. They keep the machine as busy as a program would."""
    due_s = protocol.spread_s * done / protocol.max_pairs
    while due_s and done % _GROUP == 0 and elapsed_s() < due_s:
        for step in steps:
            step()
