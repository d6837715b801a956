"""What an exact solver found, and what it proved."""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Int32


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Solution:
    """The best split found, its objective, and a proven lower bound of every split that was allowed."""

    split: Int32[np.ndarray, " nodes"] | None
    """device of each node (max-load) or its subgraph (latency); None when none was found."""
    objective_s: float
    """of `split` in the cost model; infinite without one."""
    bound_s: float
    """no allowed split is better; infinite when none is allowed."""
    solve_time_s: float

    @property
    def gap(self) -> float:
        """How far the objective may be above the optimum: a fraction of it. Zero when proven, infinite when nothing was found or bounded."""
        if self.objective_s == self.bound_s:
            return 0.0
        return self.objective_s / self.bound_s - 1.0 if 0 < self.bound_s < np.inf else float("inf")

    @property
    def proven(self) -> bool:
        """Whether the split is optimal within a part in a million, as far as floating-point solvers can tell."""
        return self.gap <= 1e-6

    @property
    def status(self) -> Literal["optimal", "not proven", "infeasible", "nothing found"]:
        """In a word; `not proven` and `nothing found` are what the time limit leaves."""
        if self.split is None:
            return "infeasible" if np.isinf(self.bound_s) else "nothing found"
        return "optimal" if self.proven else "not proven"
