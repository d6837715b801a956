"""Solves a schedule given as whole numbers with CP-SAT: the program behind `constraint_schedule.py`, run as a process of its own (JSON in, JSON out)."""

import json
import sys
from typing import TypedDict


class Problem(TypedDict):
    """`num_ticks` is the horizon; times are in ticks, in which everything must end."""

    num_ticks: int
    known_ticks: int
    unit_of_op: list[int]
    op_ticks: list[list[int]]
    """by op and device."""
    head_ticks: list[list[int]]
    tail_ticks: list[list[int]]
    fits: list[list[bool]]
    """by unit and device."""
    param_bytes: list[int]
    memory_bytes: list[int]
    uses: list[tuple[int, list[int]]]
    """by tensor that is used: its producer, and its consumers."""
    transfer_ticks: list[list[list[int]]]
    """by tensor as in `uses`, source and destination."""
    channel: list[list[int]]
    num_channels: int
    time_limit_s: float
    seed: int
    num_threads: int


class Answer(TypedDict):
    """What the solver proved."""

    status: str
    bound_ticks: float
    value_ticks: float
    unit_device: list[int]
    """empty when no schedule was found."""


def solve(problem: Problem) -> Answer:
    """The least end of all schedules, or what is known of it when the time is up."""
    from ortools.sat.python import cp_model

    last, unit_of_op = problem["num_ticks"], problem["unit_of_op"]
    devices, ops, units = range(len(problem["memory_bytes"])), range(len(unit_of_op)), range(len(problem["param_bytes"]))
    model = cp_model.CpModel()
    on = [[model.new_bool_var(f"unit {u} on {d}") for d in devices] for u in units]
    step = model.new_int_var(problem["known_ticks"], last, "step")
    start = [model.new_int_var(0, last, f"start {op}") for op in ops]
    end = [model.new_int_var(0, last, f"end {op}") for op in ops]
    for u in units:
        model.add_exactly_one(on[u])
        for d in devices:
            if not problem["fits"][u][d]:
                model.add(on[u][d] == 0)
    for d in devices:
        there = []
        for op in ops:
            here = on[unit_of_op[op]][d]
            there.append(model.new_optional_interval_var(start[op], problem["op_ticks"][op][d], end[op], here, f"op {op} on {d}"))
            model.add(start[op] >= problem["head_ticks"][op][d]).only_enforce_if(here)
            model.add(end[op] + problem["tail_ticks"][op][d] <= step).only_enforce_if(here)
        model.add_no_overlap(there)
        model.add(sum(problem["op_ticks"][op][d] * on[unit_of_op[op]][d] for op in ops) <= step)
        model.add(sum(problem["param_bytes"][u] * on[u][d] for u in units) <= problem["memory_bytes"][d])
    carried: list[list[cp_model.IntervalVar]] = [[] for _ in range(problem["num_channels"])]
    for (producer, consumers), transfer_ticks in zip(problem["uses"], problem["transfer_ticks"], strict=True):
        home = unit_of_op[producer]
        for op in consumers:
            model.add(start[op] >= end[producer])
        away = [op for op in consumers if unit_of_op[op] != home]
        for s, d in ((s, d) for s in devices for d in devices if s != d and away):
            sent = model.new_bool_var("")
            leaves, arrives = model.new_int_var(0, last, ""), model.new_int_var(0, last, "")
            transfer = model.new_optional_interval_var(leaves, transfer_ticks[s][d], arrives, sent, "")
            if problem["channel"][s][d] >= 0:
                carried[problem["channel"][s][d]].append(transfer)
            model.add_implication(sent, on[home][s])
            model.add(leaves >= end[producer]).only_enforce_if(sent)
            for u in sorted({unit_of_op[op] for op in away}):
                model.add_bool_or([sent, on[home][s].negated(), on[u][d].negated()])
            for op in away:
                model.add(start[op] >= arrives).only_enforce_if([sent, on[unit_of_op[op]][d]])
    for transfers in carried:
        model.add_no_overlap(transfers)
    model.minimize(step)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = problem["time_limit_s"]
    solver.parameters.num_workers = problem["num_threads"]
    solver.parameters.random_seed = problem["seed"]
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Answer(
        status=solver.status_name(status),
        bound_ticks=solver.best_objective_bound,
        value_ticks=solver.objective_value if found else 0.0,
        unit_device=[max(devices, key=lambda d: int(solver.value(on[u][d]))) for u in units] if found else [],
    )


if __name__ == "__main__":
    json.dump(solve(json.load(sys.stdin)), sys.stdout)
