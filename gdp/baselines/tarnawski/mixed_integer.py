"""A mixed-integer linear program, built row by row and solved by HiGHS."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import highspy
import numpy as np
from jaxtyping import Float64


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ProgramSolution:
    """What the solver found in its time, and what it proved."""

    value: Float64[np.ndarray, " variables"] | None
    """None when no solution was found."""
    bound: float
    """the objective is not below it; infinite when there is no solution."""


class MixedIntegerProgram:
    """`min c x` over real and integer variables within bounds, subject to `rows >= lower`."""

    def __init__(self) -> None:
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._cost: list[float] = []
        self._integer: list[bool] = []
        self._row_lower: list[float] = []
        self._row_upper: list[float] = []
        self._row_start = [0]
        self._row_variable: list[int] = []
        self._row_weight: list[float] = []

    def add_variable(self, lower: float, upper: float, *, cost: float = 0.0, integer: bool = False) -> int:
        """A variable's number."""
        self._lower.append(lower)
        self._upper.append(upper)
        self._cost.append(cost)
        self._integer.append(integer)
        return len(self._lower) - 1

    def add_row(self, terms: Iterable[tuple[int, float]], *, lower: float = -np.inf, upper: float = np.inf) -> None:
        """`lower <= sum of weight * variable over the terms (variable, weight) <= upper`; a variable may come more than once."""
        weights: dict[int, float] = {}
        for variable, weight in terms:
            weights[variable] = weights.get(variable, 0.0) + weight
        self._row_variable += weights.keys()
        self._row_weight += weights.values()
        self._row_start.append(len(self._row_variable))
        self._row_lower.append(lower)
        self._row_upper.append(upper)

    def solve(self, *, time_limit_s: float, start: Float64[np.ndarray, " variables"] | None = None) -> ProgramSolution:
        """Solves on one thread until the optimum is proven (relative gap below 1e-7) or the time is over; `start` is a solution to begin with."""
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("time_limit", float(time_limit_s))
        solver.setOptionValue("mip_rel_gap", 1e-7)
        solver.setOptionValue("mip_abs_gap", 0.0)
        program = highspy.HighsLp()
        program.num_col_, program.num_row_ = len(self._lower), len(self._row_lower)
        program.col_cost_, program.col_lower_, program.col_upper_ = map(np.array, (self._cost, self._lower, self._upper))
        program.row_lower_, program.row_upper_ = np.array(self._row_lower), np.array(self._row_upper)
        program.integrality_ = [highspy.HighsVarType.kInteger if integer else highspy.HighsVarType.kContinuous for integer in self._integer]
        program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        program.a_matrix_.start_ = np.array(self._row_start, np.int32)
        program.a_matrix_.index_ = np.array(self._row_variable, np.int32)
        program.a_matrix_.value_ = np.array(self._row_weight, np.float64)
        solver.passModel(program)
        if start is not None:
            given = highspy.HighsSolution()
            given.col_value = list(start)
            solver.setSolution(given)
        solver.run()
        info = solver.getInfo()
        if solver.getModelStatus() == highspy.HighsModelStatus.kInfeasible:
            return ProgramSolution(value=None, bound=float("inf"))
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        value = np.array(solver.getSolution().col_value) if found else None
        return ProgramSolution(value=value, bound=float(info.mip_dual_bound))
