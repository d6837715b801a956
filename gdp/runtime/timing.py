"""How a candidate's step time is told apart from the incumbent's on a machine whose speed drifts.

Both run in turn, A B B A A B ..., and the unit of evidence is the ratio of a candidate's step to the incumbent's step beside it: what slows both cancels, and so does what
favours the step that comes second. The median ratio has a distribution-free confidence interval from order statistics: the k-th smallest and k-th largest of n independent
values enclose the median of their distribution with probability 1 - 2 P(Binomial(n, 1/2) < k) (Conover, Practical Nonparametric Statistics, section 3.2).

Slow drift is correlated noise, and pairing removes most of it. What correlation is left between neighbouring ratios makes n of them worth less: with correlation r of neighbours,
as much as n (1 - r) / (1 + r) independent ones (a first-order autoregressive process; Wilks, Statistical Methods in the Atmospheric Sciences, section 5.2.4). The ranks are those
of so many, spread over the n. A correlation that chance explains (below 1.645 / sqrt(n)) counts as none.

Evidence is looked at after 6, 12, 24, ... pairs. Stopping where it suffices makes the nominal 95 % of the last interval a few percent optimistic; a verdict that matters
deserves a comparison of a fixed number of pairs (`precision=0`).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Literal

import numpy as np

MIN_PAIRS = 6
"""With fewer values, no two of them enclose the median with 95 % confidence."""

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
    tail, rank = 0.0, 0
    while rank < num_values // 2:
        tail += math.comb(num_values, rank) * 0.5**num_values
        if 1 - 2 * tail < confidence:
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


def compare_times(candidate_s: Sequence[float], incumbent_s: Sequence[float]) -> Comparison:
    """Compares times taken in turn: the i-th of one beside the i-th of the other."""
    interval = median_interval([a / b for a, b in zip(candidate_s, incumbent_s, strict=True)])
    return Comparison(
        ratio=interval.median,
        low=interval.low,
        high=interval.high,
        num_pairs=len(candidate_s),
        candidate_s=float(np.median(candidate_s)),
        incumbent_s=float(np.median(incumbent_s)),
    )


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
    begin, look = clock(), MIN_PAIRS
    while len(candidate_s) < protocol.max_pairs:
        both = [(candidate, candidate_s), (incumbent, incumbent_s)]
        for run, times in both if len(candidate_s) % 2 == 0 else reversed(both):
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
        times.append(step())
    return times
