"""The least step time over all placements and all orders of execution, by constraint programming (CP-SAT of OR-tools, an optional package).

Each op is an interval that is on exactly one of the devices, each tensor an interval on the channel of every pair of devices that it is sent over; intervals on one
device, and on one channel, do not overlap. A consumer starts when its inputs have ended or arrived; parameters fit into memory; heads and tails (`longest_path.py`) bound
every start and end. This is the simulator's step but for two things, both relaxations: devices and channels take ops and transfers in any order and may wait, where the
simulator's follow a dispatch rule and the order of requests; and of memory only parameters, and which units fit where, are known. So the bound holds for every
dispatch rule, and is the optimum where some simulated placement reaches it.

Seconds are counted in whole millionths of the horizon, rounded down, so that the solver's exact arithmetic proves a bound; rounding costs it less than a millionth for each op and
transfer on the critical path.
"""

import importlib.util

import numpy as np

from gdp.baselines.bounds import SAFETY, lower_bound
from gdp.baselines.exact_bottleneck import ExactResult
from gdp.baselines.indivisible import indivisible
from gdp.baselines.longest_path import paths
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph

_UNITS = 1_000_000


def constraint_schedule(
    graph: Graph, cluster: Cluster, *, horizon_s: float, time_limit_s: float, seed: int = 0, num_threads: int = 1
) -> ExactResult:
    """The optimum of the model above or, when the time runs out, the proven bound and the best placement so far.

    Args:
        graph: of up to about a hundred ops.
        cluster: of a few devices.
        horizon_s: the simulated step time of some placement that runs: only schedules that are no longer are looked for.
        time_limit_s: seconds for the solver, positive.
        seed: of the solver.
        num_threads: for the solver.

    Raises:
        InputError: when OR-tools is not installed, the horizon or the time limit is not positive and finite, the horizon is shorter than a lower bound, or times overflow.
    """
    if importlib.util.find_spec("ortools") is None:
        raise InputError(
            "a schedule by constraint programming needs OR-tools, which is not installed; pip install ortools, or use exact_schedule"
        )
    from ortools.sat.python import cp_model

    known = lower_bound(graph, cluster)
    if np.isinf(known.value_s):
        return ExactResult(bound_s=np.inf, program_s=np.inf, device=None)
    if not max(known.value_s, 1e-300) <= horizon_s < np.inf or not 0 < time_limit_s < np.inf:
        raise InputError(
            f"the horizon of the schedule is {horizon_s} s, the solver's time {time_limit_s} s; both must be positive, and the horizon the step time of a "
            f"placement that runs, so at least {known.value_s} s"
        )
    units, devices, num_ops = indivisible(graph, cluster), range(cluster.num_devices), graph.num_ops
    found, fits = paths(graph, cluster, units), units.fits[:, units.class_of_device]
    last = _UNITS + 1

    def ticks(seconds: float) -> int:
        return min(last, int(seconds / horizon_s * _UNITS))

    model = cp_model.CpModel()
    on = [[model.new_bool_var(f"unit {u} on {d}") for d in devices] for u in range(units.num_units)]
    step = model.new_int_var(ticks(known.value_s), last, "step")
    start = [model.new_int_var(0, last, f"start {op}") for op in range(num_ops)]
    end = [model.new_int_var(0, last, f"end {op}") for op in range(num_ops)]
    for u in range(units.num_units):
        model.add_exactly_one(on[u])
        for d in devices:
            if not fits[u, d]:
                model.add(on[u][d] == 0)
    for d in devices:
        there = []
        for op, u in enumerate(units.unit_of_op.tolist()):
            if fits[u, d]:
                length = ticks(float(units.op_time_s[op, units.class_of_device[d]]))
                there.append(model.new_optional_interval_var(start[op], length, end[op], on[u][d], f"op {op} on {d}"))
                model.add(start[op] >= ticks(float(found.head_s[op, d]))).only_enforce_if(on[u][d])
                model.add(end[op] + ticks(float(found.tail_s[op, d])) <= step).only_enforce_if(on[u][d])
        model.add_no_overlap(there)
        unit_ticks = [
            sum(ticks(float(each)) for each in units.op_time_s[units.unit_of_op == u, units.class_of_device[d]])
            for u in range(units.num_units)
        ]
        model.add(sum(length * on[u][d] for u, length in enumerate(unit_ticks)) <= step)
        model.add(sum(int(size) * on[u][d] for u, size in enumerate(units.param_bytes)) <= int(cluster.memory_bytes[d]))
    carried: list[list[object]] = [[] for _ in cluster.channel_name]
    consumers: dict[int, set[int]] = {}
    for tensor, op in zip(graph.edge_tensor.tolist(), graph.edge_consumer.tolist(), strict=True):
        consumers.setdefault(tensor, set()).add(op)
    for tensor, readers in sorted(consumers.items()):
        producer = int(graph.tensor_producer[tensor])
        home = int(units.unit_of_op[producer])
        away: dict[int, list[int]] = {}
        for op in sorted(readers):
            model.add(start[op] >= end[producer])
            if units.unit_of_op[op] != home:
                away.setdefault(int(units.unit_of_op[op]), []).append(op)
        for s, d in ((s, d) for s in devices for d in devices if s != d and away):
            sent = model.new_bool_var(f"tensor {tensor} from {s} to {d}")
            length = ticks(float(cluster.latency_s[s, d] + graph.tensor_bytes[tensor] / cluster.bandwidth_bytes_per_s[s, d]))
            leaves, arrives = model.new_int_var(0, last, ""), model.new_int_var(0, last, "")
            transfer = model.new_optional_interval_var(leaves, length, arrives, sent, "")
            if cluster.channel[s, d] != Cluster.NO_CHANNEL:
                carried[cluster.channel[s, d]].append(transfer)
            model.add_implication(sent, on[home][s])
            model.add(leaves >= end[producer]).only_enforce_if(sent)
            for u, ops in away.items():
                model.add_bool_or([sent, on[home][s].negated(), on[u][d].negated()])
                for op in ops:
                    model.add(start[op] >= arrives).only_enforce_if([sent, on[u][d]])
    for transfers in carried:
        model.add_no_overlap(transfers)
    model.minimize(step)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = time_limit_s
    solver.parameters.num_workers = num_threads
    solver.parameters.random_seed = seed
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:  # nothing is shorter than the horizon
        return ExactResult(bound_s=horizon_s * (1 - SAFETY), program_s=np.inf, device=None)
    bound_s = max(known.value_s, solver.best_objective_bound / _UNITS * horizon_s * (1 - SAFETY))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return ExactResult(bound_s=bound_s, program_s=np.inf, device=None)
    placed = np.array([[solver.value(each) for each in row] for row in on]).argmax(axis=1)
    program_s = solver.objective_value / _UNITS * horizon_s
    return ExactResult(bound_s=min(bound_s, horizon_s), program_s=program_s, device=placed[units.unit_of_op].astype(np.int32))
