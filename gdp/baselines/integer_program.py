"""An integer program put together row by row, and what HiGHS proves of it in the time it is given."""

import dataclasses
from collections.abc import Sequence

import highspy
import numpy as np
from jaxtyping import Float64

from gdp.errors import InputError

_FEASIBLE = 1e-9
"""How far HiGHS may break a constraint, or be from an integer."""

_TOLERANCE = 1e-5
"""What it proves is taken for this much less, or for this share less, whichever is more: room for ten thousand such breaks. Scale the objective to about one."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Solved:
    """What the solver proved of a minimum."""

    bound: float
    """no solution has less; infinite when there is none, minus infinity when nothing is proven."""
    value: float
    """of the best solution found, infinite when there is none."""
    columns: Float64[np.ndarray, " columns"] | None


class IntegerProgram:
    """Columns with bounds, rows over them, and an objective that is one column, to be minimised."""

    def __init__(self) -> None:
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._integer: list[bool] = []
        self._row_columns: list[Sequence[int]] = []
        self._row_values: list[Sequence[float]] = []
        self._row_low: list[float] = []
        self._row_high: list[float] = []

    def column(self, lower: float, upper: float, *, integer: bool = False) -> int:
        """A new column; its number."""
        self._lower.append(lower)
        self._upper.append(upper)
        self._integer.append(integer)
        return len(self._lower) - 1

    def row(self, columns: Sequence[int], values: Sequence[float], *, low: float = -np.inf, high: float = np.inf) -> None:
        """`low <= sum of values * columns <= high`; no column twice."""
        assert len(columns) == len(values)
        self._row_columns.append(columns)
        self._row_values.append(values)
        self._row_low.append(low)
        self._row_high.append(high)

    def minimise(self, column: int, *, time_limit_s: float, relative_gap: float, num_threads: int) -> Solved:
        """Solves until the gap is reached or the time is up. Raises `InputError` when the time is not positive."""
        if not 0 < time_limit_s < np.inf:
            raise InputError(f"the solver is given {time_limit_s} seconds; it needs a positive, finite time")
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self._lower), len(self._row_low)
        lp.col_cost_ = (np.arange(lp.num_col_) == column).astype(np.float64)
        lp.col_lower_, lp.col_upper_ = np.array(self._lower), np.array(self._upper)
        lp.row_lower_, lp.row_upper_ = np.array(self._row_low), np.array(self._row_high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(columns) for columns in self._row_columns])]).astype(np.int32)
        lp.a_matrix_.index_ = np.concatenate(self._row_columns).astype(np.int32)
        lp.a_matrix_.value_ = np.concatenate(self._row_values).astype(np.float64)
        lp.integrality_ = [highspy.HighsVarType.kInteger if each else highspy.HighsVarType.kContinuous for each in self._integer]
        solver = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.silent()
        solver.setOptionValue("time_limit", time_limit_s)
        solver.setOptionValue("threads", num_threads)
        solver.setOptionValue("mip_rel_gap", relative_gap)
        solver.setOptionValue("mip_abs_gap", 0.0)
        solver.setOptionValue("mip_feasibility_tolerance", _FEASIBLE)
        solver.setOptionValue("primal_feasibility_tolerance", _FEASIBLE)
        solver.passModel(lp)
        solver.run()
        if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return Solved(bound=np.inf, value=np.inf, columns=None)
        info = solver.getInfo()
        bound = float(info.mip_dual_bound) - _TOLERANCE * max(1.0, abs(float(info.mip_dual_bound)))
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Solved(bound=bound if np.isfinite(bound) else -np.inf, value=np.inf, columns=None)
        return Solved(bound=bound, value=float(info.objective_function_value), columns=np.array(solver.getSolution().col_value))
