"""The interval bound: the work that must be done in some stretch of the step does not fit into it, so the step is longer.

E. B. Fernandez and B. Bussell, "Bounds on the number of processors and time for multiprocessor optimal schedules", IEEE Transactions on Computers C-22, 1973, theorem 3,
generalised to unequal devices, memory, and transfers.

An op of `w` seconds with `h` seconds before it and `t` after it (`longest_path.py`), run without interruption somewhere within a step of `T` seconds, spends within the window from
`a` to `T - c` at least

    x = max(0, min(w, h + w - a, t + w - c, T - a - c))

seconds: its share when run as early as possible or as late as possible, whichever is less. As the window's end is counted from the end of the step, all but the
last term are free of `T`. Every device gives the window `T - a - c` seconds, so, as in the work bound (`work_bound.py`), for all multipliers

    T >= a + c + sum_u min_d (l_d sum_{v in u} x_vd + k_d m_u) - sum_d k_d M_d.

Windows tried: starts at the heads, ends at the tails of ops, on a grid over all of them and then on finer grids around the best; with unequal devices the best windows are
given multipliers by a program of their own. Devices of one class are taken together, each op with the least head and tail on any of them.
Every op has one x for each device, so an op's choice of device is part of the relaxation. The last term of x is taken at a `T` that is known to be a bound.
"""

import dataclasses
import typing

import numba
import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.baselines.indivisible import Indivisible
from gdp.baselines.longest_path import Paths
from gdp.baselines.work_bound import Multipliers, divided_s, work_multipliers

_OPS_LOOKED_AT = 100_000_000
"""Times that an op's share of a window may be computed: about a second."""

_GRIDS = 3
_REFINED = 4
"""windows around which each finer grid is laid, and that are given multipliers of their own."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Windows:
    """What a window's work is computed from; ops stand in the order of their units, only those that take time."""

    head_s: Float64[np.ndarray, "working classes"]
    tail_s: Float64[np.ndarray, "working classes"]
    time_s: Float64[np.ndarray, "working classes"]
    unit: Int32[np.ndarray, " working"]
    start: Float64[np.ndarray, " starts"]
    """the moments at which windows may start, ascending; all different."""
    rest: Float64[np.ndarray, " rests"]
    """the seconds that windows may leave before the end of the step, likewise."""


def interval_bound_s(units: Indivisible, found: Paths, multipliers: Multipliers, *, known_s: float) -> float:
    """The best bound of the windows tried; `known_s` must be a bound of the step time itself, and finite."""
    windows = _windows(units, found)
    if not len(windows.unit):
        return 0.0
    grid = max(4, int(np.sqrt(_OPS_LOOKED_AT / _GRIDS / max(1, windows.time_s.size))))
    starts, rests = _spread(len(windows.start), grid), _spread(len(windows.rest), grid)
    bounds = _bounds(windows, units, multipliers, starts, rests, known_s)
    best_s = float(bounds.max())
    for _ in range(_GRIDS - 1):
        most = [np.unravel_index(flat, bounds.shape) for flat in np.argsort(-bounds, axis=None, kind="stable")[:_REFINED]]
        centres = [(int(starts[i]), int(rests[j])) for i, j in most]
        if len(starts) == len(windows.start) and len(rests) == len(windows.rest):
            break
        near = max(2, grid // _REFINED)
        starts = _around(starts, [centre for centre, _ in centres], len(windows.start), near)
        rests = _around(rests, [centre for _, centre in centres], len(windows.rest), near)
        bounds = _bounds(windows, units, multipliers, starts, rests, max(known_s, best_s))
        best_s = max(best_s, float(bounds.max()))
    if units.num_classes > 1:
        for flat in np.argsort(-bounds, axis=None, kind="stable")[:_REFINED]:
            i, j = np.unravel_index(flat, bounds.shape)
            best_s = max(
                best_s,
                _own_multipliers(windows, units, float(windows.start[starts[i]]), float(windows.rest[rests[j]]), max(known_s, best_s)),
            )
    return best_s


def _windows(units: Indivisible, found: Paths) -> _Windows:
    seconds = units.op_time_s
    working = np.flatnonzero((seconds > 0).any(axis=1))
    working = working[np.argsort(units.unit_of_op[working], kind="stable")]
    head_s, tail_s = (
        np.stack([each[working][:, units.class_of_device == c].min(axis=1) for c in range(units.num_classes)], axis=1)
        for each in (found.head_s, found.tail_s)
    )
    return _Windows(
        head_s=head_s,
        tail_s=tail_s,
        time_s=np.ascontiguousarray(seconds[working]),
        unit=units.unit_of_op[working],
        start=np.unique(np.concatenate([[0.0], head_s.min(axis=1)])),
        rest=np.unique(np.concatenate([[0.0], tail_s.min(axis=1)])),
    )


def _spread(count: int, at_most: int) -> Int64[np.ndarray, " chosen"]:
    return np.unique(np.linspace(0, count - 1, min(count, at_most)).round().astype(np.int64))


def _around(grid: Int64[np.ndarray, " chosen"], centres: list[int], count: int, at_most: int) -> Int64[np.ndarray, " finer"]:
    """Up to `at_most` places between the grid's neighbours of every centre."""
    places = []
    for centre in centres:
        at = int(np.searchsorted(grid, centre))
        low, high = int(grid[max(at - 1, 0)]), int(grid[min(at + 1, len(grid) - 1)])
        places += [low + _spread(high - low + 1, at_most), np.array([centre])]
    return np.unique(np.concatenate(places))


def _bounds(
    windows: _Windows,
    units: Indivisible,
    multipliers: Multipliers,
    starts: Int64[np.ndarray, " starts"],
    rests: Int64[np.ndarray, " rests"],
    known_s: float,
) -> Float64[np.ndarray, "starts rests"]:
    memory = units.param_bytes[:, np.newaxis] * multipliers.memory_s_per_byte
    memory = np.where(units.fits, memory, np.inf)
    idle = np.ones(units.num_units, np.bool_)
    idle[windows.unit] = False
    constant = float(memory[idle].min(axis=1).sum() - (units.class_size * multipliers.memory_s_per_byte * units.memory_bytes).sum())
    return np.asarray(
        _bound_of_windows(
            windows.head_s,
            windows.tail_s,
            windows.time_s,
            windows.unit,
            windows.start[starts],
            windows.rest[rests],
            known_s,
            multipliers.work,
            memory,
            constant,
        )
    )


def _own_multipliers(windows: _Windows, units: Indivisible, start_s: float, rest_s: float, known_s: float) -> float:
    """The bound of one window by the multipliers that its own work asks for."""
    length_s = known_s - start_s - rest_s
    if length_s <= 0:
        return 0.0
    reach = np.minimum(windows.head_s + windows.time_s - start_s, windows.tail_s + windows.time_s - rest_s)
    share = np.maximum(0.0, np.minimum(np.minimum(windows.time_s, reach), length_s))
    work = np.stack([np.bincount(windows.unit, share[:, c], minlength=units.num_units) for c in range(units.num_classes)], axis=1)
    return start_s + rest_s + divided_s(units, work, work_multipliers(units, work))


@numba.njit(cache=True, nogil=True)
@typing.no_type_check
def _bound_of_windows(head, tail, time, unit, starts, rests, known, work_multiplier, memory, constant):
    num_ops, num_classes = time.shape
    bounds = np.full((len(starts), len(rests)), -np.inf)
    share = np.zeros(num_classes)
    for i in range(len(starts)):
        for j in range(len(rests)):
            start, rest = starts[i], rests[j]
            length = known - start - rest
            if length <= 0.0:
                continue
            total = constant
            op = 0
            while op < num_ops:
                here = unit[op]
                share[:] = memory[here]
                while op < num_ops and unit[op] == here:
                    for c in range(num_classes):
                        x = min(time[op, c], head[op, c] + time[op, c] - start, tail[op, c] + time[op, c] - rest, length)
                        if x > 0.0:
                            share[c] += work_multiplier[c] * x
                    op += 1
                least = share[0]
                for c in range(1, num_classes):
                    least = min(least, share[c])
                total += least
            bounds[i, j] = start + rest + total
    return bounds
