"""The linear relaxation of scheduling with small communication times (Hanen and Munier, 1995; Baechi, Jeon et al., SoCC 2020, section 3).

With enough equal devices, a group and one of its children may follow each other on one device without a transfer. `x = 1` on an edge means that the
transfer is paid. Minimise the end `w` over starts `t >= 0` and `0 <= x <= 1`:

    t_i + p_i + c_ij x_ij <= t_j for each edge;   t_i + p_i <= w for each group;   at most one unpaid edge out of each group, and into each group.

A child is its parent's favourite where `x < 1/2` in the optimum: by the last two conditions there is at most one.

Deviations: seconds are means over devices; edges against the order of the groups (a colocation group that is read first and written last) are left out, since with them there
is no schedule of whole groups; where HiGHS does not finish in `_MAX_ITERATIONS` simplex iterations, nobody has a favourite.
"""

from typing import Any

import highspy
import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.baselines.quotient import Quotient
from gdp.cluster import Cluster
from gdp.runtime.levels import mean_transfer_s

_MAX_ITERATIONS = 50_000
_PAID = 0.5


def favourite_children(whole: Quotient, cluster: Cluster) -> Int32[np.ndarray, " groups"]:
    """The favourite child of every group, -1 where it has none."""
    num_groups = len(whole.time_s)
    favourite = np.full(num_groups, -1, np.int32)
    transfer_s = mean_transfer_s(cluster, whole.link_bytes.astype(np.float64))
    forward = whole.link_from < whole.link_to
    pair, position = np.unique(whole.link_from[forward].astype(np.int64) * num_groups + whole.link_to[forward], return_inverse=True)
    if not len(pair):
        return favourite
    parent, child = np.divmod(pair, num_groups)
    paid = _relaxation(whole.time_s.mean(axis=1), parent, child, np.bincount(position, transfer_s[forward]))
    favourite[parent[paid < _PAID]] = child[paid < _PAID]
    return favourite


def _relaxation(
    seconds: Float64[np.ndarray, " groups"],
    parent: Int64[np.ndarray, " pairs"],
    child: Int64[np.ndarray, " pairs"],
    transfer_s: Float64[np.ndarray, " pairs"],
) -> Float64[np.ndarray, " pairs"]:
    """The optimal `x` of every pair; all 1 where no optimum was found. Times are scaled so that the mean group takes 1."""
    groups, pairs = len(seconds), len(parent)
    unit_s = float(seconds.mean()) or 1.0
    seconds, transfer_s = seconds / unit_s, transfer_s / unit_s
    end, first_x = groups, groups + 1
    at, pair_x = np.arange(pairs), first_x + np.arange(pairs)
    out_degree, in_degree = np.bincount(parent, minlength=groups), np.bincount(child, minlength=groups)
    num_rows = pairs + 3 * groups
    rows = np.concatenate(
        [at, at, at, pairs + np.arange(groups), pairs + np.arange(groups), pairs + groups + parent, pairs + 2 * groups + child]
    )
    columns = np.concatenate([child, parent, pair_x, np.full(groups, end), np.arange(groups), pair_x, pair_x])
    values = np.concatenate([np.ones(pairs), -np.ones(pairs), -transfer_s, np.ones(groups), -np.ones(groups), np.ones(2 * pairs)])
    order = np.argsort(rows, kind="stable")
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = groups + 1 + pairs, num_rows
    program.col_cost_ = np.bincount([end], minlength=program.num_col_).astype(np.float64)
    program.col_lower_ = np.zeros(program.num_col_)
    program.col_upper_ = np.concatenate([np.full(groups + 1, highspy.kHighsInf), np.ones(pairs)])
    program.row_lower_ = np.concatenate([seconds[parent], seconds, out_degree - 1.0, in_degree - 1.0])
    program.row_upper_ = np.full(num_rows, highspy.kHighsInf)
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=num_rows))])
    program.a_matrix_.index_ = columns[order]
    program.a_matrix_.value_ = values[order]
    solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("solver", "simplex")
    solver.setOptionValue("simplex_iteration_limit", _MAX_ITERATIONS)
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return np.ones(pairs)
    return np.asarray(solver.getSolution().col_value[first_x:], np.float64)
