"""What an anytime placer found, and how fast."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from gdp.baselines.score import CANNOT_RUN_S
from gdp.placement import Placement


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SearchResult:
    """The best placement found, and the best time after each evaluation."""

    placement: Placement
    best_so_far_s: Float64[np.ndarray, " evaluations"]
    """the lowest objective up to each evaluation; infinite as long as no placement could run."""

    @staticmethod
    def from_scores(placement: Placement, scores: Sequence[float]) -> "SearchResult":
        """`scores` are those of every evaluation in order, as `gdp.baselines.score` gives them."""
        best = np.minimum.accumulate(np.asarray(scores, np.float64))
        return SearchResult(placement=placement, best_so_far_s=np.where(best < CANNOT_RUN_S, best, np.inf))
