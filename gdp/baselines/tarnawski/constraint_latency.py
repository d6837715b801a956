"""The least latency of one sample by constraint programming (CP-SAT of OR-tools, an optional package): the program of `latency_ip.py` without its big-M rows.

Where memory forces work onto the CPU its clause learning proves what HiGHS does not: the relaxation of those rows says next to nothing. Seconds are counted in
whole ticks of a known split's latency, rounded down, and sizes in bytes, rounded down where they are not whole; so what is proven is a bound. As
there, subgraphs that wait for each other in a circle with loads of zero are not seen.
"""

import time

import numpy as np
from jaxtyping import Int32

from gdp.baselines.constraint_process import refuse_without_ortools, solve_apart
from gdp.baselines.tarnawski.constraint_latency_model import Answer, Problem
from gdp.baselines.tarnawski.cost import ON_CPU, latency_s
from gdp.baselines.tarnawski.group_moves import group_moves
from gdp.baselines.tarnawski.solution import Solution
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.errors import InputError


def constraint_latency(
    instance: TarnawskiInstance,
    start: Int32[np.ndarray, " nodes"],
    *,
    time_limit_s: float,
    subgraphs_per_accelerator: int = 1,
    num_ticks: int = 1_000_000,
    seed: int = 0,
    num_threads: int = 1,
) -> Solution:
    """The split of least latency, or the best found when the time runs out with what was proven by then; `split` is a subgraph per node, or `ON_CPU`.

    Args:
        instance: what is split.
        start: a split that can run, to begin with. A good one helps: its latency is the horizon.
        time_limit_s: of the solver.
        subgraphs_per_accelerator: how often an accelerator may begin anew.
        num_ticks: that the latency of `start` is counted in: rounding takes off the bound as many ticks as there are terms on the critical path. More are slower.
        seed: of the solver.
        num_threads: for the solver.

    Raises:
        InputError: when OR-tools is not installed, or `start` cannot run.
    """
    refuse_without_ortools()
    began = time.perf_counter()
    split, objective_s = start, latency_s(instance, start, subgraphs_per_accelerator=subgraphs_per_accelerator)
    if not np.isfinite(objective_s):
        raise InputError(f"the split of {instance.source!r} to begin with cannot run; begin with one that can, such as the greedy one")
    moves, num_subgraphs = group_moves(instance), instance.num_accelerators * subgraphs_per_accelerator
    tick_s = objective_s / num_ticks or 1.0

    def ticks(seconds: np.ndarray) -> list[int]:
        return [int(each) for each in np.minimum(seconds / tick_s, num_ticks + 1).tolist()]

    first_member = np.unique(moves.group_of_node, return_index=True)[1]
    problem = Problem(
        num_ticks=num_ticks,
        num_subgraphs=num_subgraphs,
        subgraphs_per_accelerator=subgraphs_per_accelerator,
        has_cpu=instance.num_cpus > 0,
        memory_bytes=int(np.ceil(instance.accelerator_memory_bytes)),
        group_of_node=moves.group_of_node.tolist(),
        cpu_ticks=ticks(instance.cpu_time_s),
        transfer_ticks=ticks(instance.transfer_s),
        accelerator_ticks=ticks(moves.accelerator_s),
        size_bytes=[int(size) for size in np.minimum(moves.size_bytes, instance.accelerator_memory_bytes + 1).tolist()],
        runs_on_accelerator=(moves.runs_on_accelerator & (moves.size_bytes <= instance.accelerator_memory_bytes)).tolist(),
        edges=sorted(set(zip(instance.edge_from.tolist(), instance.edge_to.tolist(), strict=True))),
        start=np.where(start == ON_CPU, num_subgraphs, start)[first_member].tolist(),
        time_limit_s=time_limit_s,
        seed=seed,
        num_threads=num_threads,
    )
    answer: Answer = solve_apart("gdp.baselines.tarnawski.constraint_latency_model", problem, time_limit_s=time_limit_s)
    if answer["status"] == "MODEL_INVALID":
        raise AssertionError("CP-SAT calls the model invalid")
    # Infeasible within the horizon: rounding aside, nothing is shorter than the known split.
    bound_s = objective_s if answer["status"] == "INFEASIBLE" else max(0.0, answer["bound_ticks"] * tick_s)
    if answer["subgraph"]:
        place = np.array(answer["subgraph"], np.int32)[moves.group_of_node]
        better = np.where(place == num_subgraphs, ON_CPU, place).astype(np.int32)
        better_s = latency_s(instance, better, subgraphs_per_accelerator=subgraphs_per_accelerator)
        if better_s < objective_s:
            split, objective_s = better, better_s
    return Solution(split=split, objective_s=objective_s, bound_s=min(bound_s, objective_s), solve_time_s=time.perf_counter() - began)
