"""Solves the latency program given as whole numbers with CP-SAT: the model behind `constraint_latency.py`, run as a process of its own (JSON in, JSON out)."""

import json
import sys
from typing import TypedDict


class Problem(TypedDict):
    """Times are in ticks, sizes in bytes; `num_subgraphs` of all accelerators."""

    num_ticks: int
    """the latency of a split that is known."""
    num_subgraphs: int
    subgraphs_per_accelerator: int
    has_cpu: bool
    memory_bytes: int
    group_of_node: list[int]
    cpu_ticks: list[int]
    """by node."""
    transfer_ticks: list[int]
    """by node."""
    accelerator_ticks: list[int]
    """by group."""
    size_bytes: list[int]
    """by group."""
    runs_on_accelerator: list[bool]
    """by group."""
    edges: list[tuple[int, int]]
    start: list[int]
    """by group: the subgraph in that split; `num_subgraphs` is the CPU."""
    time_limit_s: float
    seed: int
    num_threads: int


class Answer(TypedDict):
    """What the solver proved."""

    status: str
    bound_ticks: float
    subgraph: list[int]
    """by group; empty when nothing was found."""


def solve(problem: Problem) -> Answer:
    """The least latency, or what is known of it when the time is up."""
    from ortools.sat.python import cp_model

    group, cpu, horizon = problem["group_of_node"], problem["num_subgraphs"], problem["num_ticks"]
    groups, nodes, subgraphs = range(len(problem["size_bytes"])), range(len(group)), range(cpu)
    model = cp_model.CpModel()
    on = [[model.new_bool_var(f"group {one} in {place}") for place in range(cpu + 1)] for one in groups]
    total = model.new_int_var(0, horizon, "latency")
    done = [model.new_int_var(0, horizon, f"node {node} done") for node in nodes]
    for one in groups:
        model.add_exactly_one(on[one])
        for place in range(cpu + 1):
            model.add_hint(on[one][place], place == problem["start"][one])
            if not (problem["has_cpu"] if place == cpu else problem["runs_on_accelerator"][one]):
                model.add(on[one][place] == 0)
    for node in nodes:
        model.add(done[node] <= total)
        model.add(done[node] >= problem["cpu_ticks"][node] * on[group[node]][cpu])
    readers: dict[int, set[int]] = {}
    for source, sink in problem["edges"]:
        model.add(done[sink] >= done[source] + problem["cpu_ticks"][sink] * on[group[sink]][cpu])
        if group[source] != group[sink]:
            readers.setdefault(source, set()).add(group[sink])
    starts, ends = ([model.new_int_var(0, horizon, f"{what} {place}") for place in subgraphs] for what in ("start", "end"))
    per_accelerator = problem["subgraphs_per_accelerator"]
    for place in subgraphs:
        load = [problem["accelerator_ticks"][one] * on[one][place] for one in groups]
        for source, others in readers.items():
            into, out = model.new_bool_var(""), model.new_bool_var("")
            here = on[group[source]][place]
            for other in others:
                model.add_bool_or([into, on[other][place].negated(), here])
                model.add_bool_or([out, here.negated(), on[other][place]])
            load += [problem["transfer_ticks"][source] * into, problem["transfer_ticks"][source] * out]
            model.add(starts[place] >= done[source]).only_enforce_if(into)
        model.add(ends[place] >= starts[place] + sum(load))
        for node in nodes:
            model.add(done[node] >= ends[place]).only_enforce_if(on[group[node]][place])
        if place % per_accelerator:
            model.add(starts[place] >= ends[place - 1])
        elif place:  # accelerators are alike: the first to begin comes first
            model.add(starts[place] >= starts[place - per_accelerator])
    for first in range(0, cpu, per_accelerator):
        held = [problem["size_bytes"][one] * on[one][place] for one in groups for place in range(first, first + per_accelerator)]
        model.add(sum(held) <= problem["memory_bytes"])
    model.minimize(total)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = problem["time_limit_s"]
    solver.parameters.num_workers = problem["num_threads"]
    solver.parameters.random_seed = problem["seed"]
    status = solver.solve(model)
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Answer(
        status=solver.status_name(status),
        bound_ticks=solver.best_objective_bound,
        subgraph=[max(range(cpu + 1), key=lambda place: int(solver.value(on[one][place]))) for one in groups] if found else [],
    )


if __name__ == "__main__":
    json.dump(solve(json.load(sys.stdin)), sys.stdout)
