"""The work bound: how long the devices need for all ops, if every unit could be divided among them at will.

    min T   subject to   sum_c y_uc = 1 for every unit u,   sum_u w_uc y_uc <= n_c T   and   sum_u m_u y_uc <= n_c M_c   for every class c of n_c equal devices,

with the seconds `w`, the resident parameters `m`, and the memory `M` of one device. (Without memory: the relaxation of scheduling on unrelated machines of
Lenstra, Shmoys and Tardos, Mathematical Programming 46, 1990.) The program is not trusted with the bound: its dual values are only taken as multipliers
`l_c >= 0` with `sum_c n_c l_c = 1` and `k_c >= 0`, for all of which

    T >= sum_u min_c (l_c w_uc + k_c m_u) - sum_c n_c k_c M_c,

the minimum over the classes that can hold `u`. That sum is evaluated here, so the bound holds whatever the solver's tolerance. For the same reason a large program may be solved
with units of about the same proportions taken together; only the sum goes over all of them.
"""

import dataclasses

import highspy
import numpy as np
from jaxtyping import Bool, Float64, Int64

from gdp.baselines.indivisible import Indivisible

_MAX_COLUMNS = 20_000
"""Units times classes that are given to the solver as they are; of more, those of like proportions are merged."""

_LIKE = 0.01
"""Units are of like proportions when the logarithms of their seconds and bytes differ by no more."""

_TIME_LIMIT_S = 20.0

_TOO_LITTLE = 1e-6
"""Memory is called too little when the parameters exceed it by this share of it and more."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Multipliers:
    """What a second of work and a byte of parameters on each class weigh in the bound; any that are not negative, with `sum(class_size * work) = 1`, give a valid one."""

    work: Float64[np.ndarray, " classes"]
    memory_s_per_byte: Float64[np.ndarray, " classes"]


def work_bound_s(units: Indivisible) -> tuple[float, Multipliers]:
    """The work bound, and multipliers that prove it. Infinite when some unit fits on no device, or all of them not on all devices."""
    even = even_multipliers(units)
    if memory_is_too_little(units):
        return np.inf, even
    if units.num_classes == 1:
        return divided_s(units, units.time_s, even), even
    solved = work_multipliers(units, units.time_s)
    bounds = [(divided_s(units, units.time_s, each), each) for each in (even, solved)]
    return max(bounds, key=lambda bound: bound[0])


def even_multipliers(units: Indivisible) -> Multipliers:
    """All devices alike, memory for nothing."""
    work = np.full(units.num_classes, 1.0 / units.class_size.sum())
    return Multipliers(work=work, memory_s_per_byte=np.zeros(units.num_classes))


def divided_s(units: Indivisible, time_s: Float64[np.ndarray, "units classes"], multipliers: Multipliers) -> float:
    """The sum in the text above, for the work `time_s`."""
    memory = multipliers.memory_s_per_byte
    cost = time_s * multipliers.work + units.param_bytes[:, np.newaxis] * memory
    return float(np.where(units.fits, cost, np.inf).min(axis=1).sum() - (units.class_size * memory * units.memory_bytes).sum())


def memory_is_too_little(units: Indivisible) -> bool:
    """Whether it is proven that no placement fits: a unit that no device holds, more parameters than memory, or units that fit only where there is no room for all of them."""
    total = sum(size * memory for size, memory in zip(units.class_size.tolist(), units.memory_bytes.tolist(), strict=True))
    if not units.fits.any(axis=1).all() or sum(units.param_bytes.tolist()) > total:
        return True
    if units.fits.all():
        return False
    memory = _solve(units, units.time_s, overflow=True).memory_s_per_byte
    cost = np.where(units.fits, units.param_bytes[:, np.newaxis] * memory, np.inf).min(axis=1).sum()
    room = float((units.class_size * memory * units.memory_bytes).sum())
    return bool(cost - room > _TOO_LITTLE * (cost + room))


def work_multipliers(units: Indivisible, time_s: Float64[np.ndarray, "units classes"]) -> Multipliers:
    """The dual values of the program for the work `time_s`, made to satisfy the sign and the sum exactly; the even ones where the solver gives none."""
    return _solve(units, time_s, overflow=False)


def _solve(units: Indivisible, time_s: Float64[np.ndarray, "units classes"], *, overflow: bool) -> Multipliers:
    """Solves the program; with `overflow`, the one that minimises the bytes over capacity instead, for which only the memory multipliers mean anything."""
    fits, seconds, num_bytes = _merged(units, time_s)
    work_scale = float(np.where(fits, seconds, 0.0).max(axis=1).sum()) or 1.0
    memory_scale = float(num_bytes.sum()) or 1.0
    row, column = np.nonzero(fits)
    count, classes = len(row), units.num_classes
    # Columns: y of each unit and class that fit, then T, then the bytes over capacity. Rows: units, work of each class, memory of each class.
    work = np.concatenate([seconds[row, column] / work_scale, -units.class_size.astype(np.float64)])
    each = np.arange(count)
    indices = [
        row,
        len(fits) + column,
        len(fits) + np.arange(classes),
        len(fits) + classes + column,
        len(fits) + classes + np.arange(classes),
    ]
    columns = [each, each, np.full(classes, count), each, np.full(classes, count + 1)]
    values = [np.ones(count), work[:count], work[count:], num_bytes[row] / memory_scale, np.full(classes, -1.0)]
    room = units.class_size * np.minimum(units.memory_bytes / memory_scale, 1.0)
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count + 2, len(fits) + 2 * classes
    lp.col_cost_ = np.concatenate([np.zeros(count), [0.0 if overflow else 1.0, 1.0 if overflow else 0.0]])
    lp.col_lower_ = np.zeros(count + 2)
    lp.col_upper_ = np.concatenate([np.full(count + 1, highspy.kHighsInf), [highspy.kHighsInf if overflow else 0.0]])
    lp.row_lower_ = np.concatenate([np.ones(len(fits)), np.full(2 * classes, -highspy.kHighsInf)])
    lp.row_upper_ = np.concatenate([np.ones(len(fits)), np.zeros(classes), room])
    order = np.argsort(np.concatenate(columns), kind="stable")
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(np.concatenate(columns), minlength=count + 2))]).astype(np.int32)
    lp.a_matrix_.index_ = np.concatenate(indices)[order].astype(np.int32)
    lp.a_matrix_.value_ = np.concatenate(values)[order]
    solver = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.silent()
    solver.setOptionValue("time_limit", _TIME_LIMIT_S)
    solver.setOptionValue("threads", 1)
    solver.passModel(lp)
    solver.run()
    even = even_multipliers(units)
    solution = solver.getSolution()
    if not solution.dual_valid:
        return even
    dual = np.maximum(0.0, -np.array(solution.row_dual[len(fits) :], np.float64))
    memory = np.where(units.memory_bytes >= units.param_bytes.sum(), 0.0, dual[classes:])  # such memory cannot bind
    if overflow:
        return Multipliers(work=even.work, memory_s_per_byte=memory)
    total = float((units.class_size * dual[:classes]).sum())
    if total <= 0:
        return even
    return Multipliers(work=dual[:classes] / total, memory_s_per_byte=memory / total * work_scale / memory_scale)


def _merged(
    units: Indivisible, time_s: Float64[np.ndarray, "units classes"]
) -> tuple[Bool[np.ndarray, "merged classes"], Float64[np.ndarray, "merged classes"], Int64[np.ndarray, " merged"]]:
    """Where the program is too large, the sums over units that fit on the same classes and whose seconds and bytes are in about the same proportion."""
    if time_s.size <= _MAX_COLUMNS:
        return units.fits, time_s, units.param_bytes
    columns = np.concatenate(
        [time_s, units.param_bytes[:, np.newaxis] * (float(time_s.sum()) or 1.0) / max(float(units.param_bytes.sum()), 1.0)], axis=1
    )
    largest = np.maximum(columns.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    share = np.rint(np.log(np.maximum(columns / largest, 1e-6)) / _LIKE)
    _, merged = np.unique(np.concatenate([units.fits, share], axis=1), axis=0, return_inverse=True)
    count = int(merged.max()) + 1
    fits = np.zeros((count, units.num_classes), np.bool_)
    fits[merged] = units.fits
    seconds = np.stack([np.bincount(merged, time_s[:, c], minlength=count) for c in range(units.num_classes)], axis=1)
    num_bytes = np.zeros(count, np.int64)
    np.add.at(num_bytes, merged, units.param_bytes)
    return fits, seconds, num_bytes
