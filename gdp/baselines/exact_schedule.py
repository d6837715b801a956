"""The least step time over all placements and all orders of execution, as an integer program for graphs of a few tens of ops (HiGHS).

On top of the program for the bottleneck (`exact_bottleneck.py`): a start `s_v` of every op; for every edge from `v` to `w` the shares `f_ij` of "v on i and w on j", whose
sums over each end are the x of the other, and

    s_w >= s_v + sum_d w_vd x_vd + sum_ij transfer_ij f_ij,     s_v >= sum_d head_vd x_vd,     T >= s_v + sum_d (w_vd + tail_vd) x_vd;

and for every two ops of which neither waits for the other a binary `o_vw` for their order, on every device

    s_w >= s_v + w_vd - H (3 - x_vd - x_wd - o_vw)     and     s_v >= s_w + w_wd - H (2 - x_vd - x_wd + o_vw)

(Manne, Operations Research 8, 1960), with the horizon `H`. The order is free: a device may wait for a better op though another is ready, and takes ops in any order. The
simulator's devices follow a dispatch rule, and its channels send first come, first served, where here channels only have enough time in all. So the program is a
relaxation of every dispatch rule: its bound holds for all of them, and is the optimum where some simulated placement reaches it. By measurement `constraint_schedule.py`, which
needs an optional package, is the stronger one by far: this one proves optima of about a dozen ops, and on two devices of about thirty.
"""

import numpy as np
from jaxtyping import Bool

from gdp.baselines.bounds import lower_bound
from gdp.baselines.exact_bottleneck import ExactResult, PlacementProgram, exact_result, placement_program
from gdp.baselines.indivisible import Indivisible, indivisible
from gdp.baselines.longest_path import Paths, paths
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph


def exact_schedule(
    graph: Graph, cluster: Cluster, *, horizon_s: float, time_limit_s: float, relative_gap: float = 1e-6, num_threads: int = 1
) -> ExactResult:
    """The optimum of the program above or, when the time runs out or the gap is reached, the proven bound and the best placement so far.

    Args:
        graph: of a few tens of ops.
        cluster: of a few devices.
        horizon_s: the simulated step time of some placement that runs: only schedules that are no longer are looked for. A long horizon weakens the program.
        time_limit_s: seconds for the solver, positive.
        relative_gap: between its bound and its best schedule, at which it may stop.
        num_threads: for the solver.

    Raises:
        InputError: when the horizon or the time limit is not positive and finite, the horizon is shorter than a lower bound, or times overflow.
    """
    known = lower_bound(graph, cluster)
    if np.isinf(known.value_s):
        return ExactResult(bound_s=np.inf, program_s=np.inf, device=None)
    if not max(known.value_s, 1e-300) <= horizon_s < np.inf:
        raise InputError(
            f"the horizon of the schedule is {horizon_s} s; it must be the step time of a placement that runs, so at least {known.value_s} s"
        )
    units = indivisible(graph, cluster)
    built = placement_program(graph, cluster, units, known_s=known.value_s, scale_s=horizon_s)
    _schedule(built, graph, cluster, units, paths(graph, cluster, units), 1 + 1e-6)
    solved = built.program.minimise(built.time, time_limit_s=time_limit_s, relative_gap=relative_gap, num_threads=num_threads)
    if np.isinf(solved.bound) and solved.bound > 0:  # nothing is shorter than the horizon, in the solver's arithmetic
        return ExactResult(bound_s=max(known.value_s, horizon_s * (1 - 1e-5)), program_s=np.inf, device=None)
    return exact_result(units, built, solved, known_s=known.value_s)


def _schedule(built: PlacementProgram, graph: Graph, cluster: Cluster, units: Indivisible, found: Paths, horizon: float) -> None:
    """Adds starts, transfers and orders to the program; seconds are in its scale."""
    program, place = built.program, built.place[units.unit_of_op]
    devices, ops = range(cluster.num_devices), range(graph.num_ops)
    fits = np.isfinite(found.head_s)
    seconds = units.op_time_s[:, units.class_of_device] / built.scale_s
    head, tail = (np.where(fits, each, 0.0) / built.scale_s for each in (found.head_s, found.tail_s))
    start = [program.column(0.0, horizon) for _ in ops]
    program.row([built.time], [1.0], high=horizon)
    for op in ops:
        columns = place[op].tolist()
        program.row([start[op], *columns], [1.0, *(-head[op]).tolist()], low=0.0)
        program.row([built.time, start[op], *columns], [1.0, -1.0, *(-seconds[op] - tail[op]).tolist()], low=0.0)
    pairs = [(i, j) for i in devices for j in devices]
    for tensor, op in np.unique(np.stack([graph.edge_tensor, graph.edge_consumer], axis=1), axis=0).tolist():
        source = int(graph.tensor_producer[tensor])
        row, values = [start[op], start[source], *place[source].tolist()], [1.0, -1.0, *(-seconds[source]).tolist()]
        if units.unit_of_op[source] != units.unit_of_op[op]:
            shares = [program.column(0.0, 1.0) for _ in pairs]
            for d in devices:
                for end, by in ((source, 0), (op, 1)):
                    there = [column for column, pair in zip(shares, pairs, strict=True) if pair[by] == d]
                    program.row([*there, int(place[end, d])], [*[1.0] * len(there), -1.0], low=0.0, high=0.0)
            for column, (i, j) in zip(shares, pairs, strict=True):
                if i != j:
                    transfer_s = cluster.latency_s[i, j] + graph.tensor_bytes[tensor] / cluster.bandwidth_bytes_per_s[i, j]
                    row.append(column)
                    values.append(-float(transfer_s) / built.scale_s)
        program.row(row, values, low=0.0)
    waits = _waits(graph)
    for v in ops:
        for w in range(v + 1, graph.num_ops):
            alike = [d for d in devices if fits[v, d] and fits[w, d] and seconds[v, d] > 0 and seconds[w, d] > 0]
            if waits[w, v] or not alike:
                continue
            order = program.column(0.0, 1.0, integer=True)
            for d in alike:
                together = [int(place[v, d]), int(place[w, d])]
                both = together if together[0] != together[1] else together[:1]
                weight = [-horizon] * len(both) if len(both) == 2 else [-2 * horizon]
                program.row([start[w], start[v], *both, order], [1.0, -1.0, *weight, -horizon], low=float(seconds[v, d]) - 3 * horizon)
                program.row([start[v], start[w], *both, order], [1.0, -1.0, *weight, horizon], low=float(seconds[w, d]) - 2 * horizon)


def _waits(graph: Graph) -> Bool[np.ndarray, "ops ops"]:
    """Whether the op of a row comes after that of a column on some path."""
    waits = np.zeros((graph.num_ops, graph.num_ops), np.bool_)
    order = np.argsort(graph.edge_consumer, kind="stable")
    for source, op in zip(graph.edge_producer[order].tolist(), graph.edge_consumer[order].tolist(), strict=True):
        waits[op] |= waits[source]
        waits[op, source] = True
    return waits
