"""How many moves a judge is given to choose from, learned from what came of it in the same search.

Of many moves a judge takes the one that gets better most surely, which is often a small one; of few, even the best may be a large change, as in a search without a judge.
Which is worth more differs from graph to graph, and while a search goes on. So the number is drawn from one of `RANGES`, each the likelier the more it has lately gained, in the
mean logarithm of the step time, and none ever forgotten: probability matching with a floor, a simple bandit (docs/experiments.md).
"""

import dataclasses

import numpy as np
from jaxtyping import Float64

RANGES = ((1, 1), (2, 4), (5, 16), (17, 64), (65, 256))
"""Within one, the logarithm of the number is uniform."""

_KEPT = 0.99
"""Of what is known, after every move that was judged."""

_PRIOR_TRIES = 10.0
"""Each range starts as if it had gained the mean of all of them in so many moves."""

_FLOOR = 0.2
"""The share of moves that all ranges have alike."""

_MOST_GAIN = 1.0
"""Larger gains, as of a placement that runs after one that did not, count as this."""


@dataclasses.dataclass
class CandidateCounts:
    """What each range has gained, the older the less."""

    gained: Float64[np.ndarray, " ranges"] = dataclasses.field(default_factory=lambda: np.zeros(len(RANGES)))
    tries: Float64[np.ndarray, " ranges"] = dataclasses.field(default_factory=lambda: np.zeros(len(RANGES)))

    def probabilities(self) -> Float64[np.ndarray, " ranges"]:
        """Of each range to be drawn from."""
        nothing = 1e-9
        mean = (self.gained.sum() + nothing) / (self.tries.sum() + nothing)
        rate = (self.gained + _PRIOR_TRIES * mean) / (self.tries + _PRIOR_TRIES)
        return np.asarray((1 - _FLOOR) * rate / rate.sum() + _FLOOR / len(RANGES))

    def draw(self, generator: np.random.Generator) -> tuple[int, int]:
        """How many moves to choose from, and which range that is of."""
        drawn = int(np.searchsorted(np.cumsum(self.probabilities()), generator.random(), side="right"))
        number = min(drawn, len(RANGES) - 1)
        fewest, most = RANGES[number]
        return int(np.exp(generator.uniform(np.log(fewest), np.log(most + 1)))), number

    def learn(self, number: int, *, before_s: float, after_s: float) -> None:
        """Takes note of what a move chosen from range `number` did to the step."""
        gain = np.log(before_s / after_s) if 0 < after_s < before_s else 0.0
        self.gained *= _KEPT
        self.tries *= _KEPT
        self.gained[number] += min(float(gain), _MOST_GAIN)
        self.tries[number] += 1
