"""Simulated annealing on the max-load of all splits (Kirkpatrick et al., Science 220, 1983), in the cost model of Tarnawski et al.

A trial moves a group of a colour, or two together (`annealing_kernel.py`). What is accepted is a smooth maximum of the loads, their norm of order 16; what is
kept is the least max-load.
"""

import time

import numpy as np
from jaxtyping import Int32

from gdp.baselines.tarnawski.annealing_kernel import anneal
from gdp.baselines.tarnawski.contiguous_dp import work_bound_s
from gdp.baselines.tarnawski.cost import max_load_s
from gdp.baselines.tarnawski.group_moves import group_moves
from gdp.baselines.tarnawski.solution import Solution
from gdp.capture.tarnawski_instance import TarnawskiInstance

_TEMPERATURES = 3e-3, 1e-5
"""first and last, as fractions of the score."""


def annealed_max_load(
    instance: TarnawskiInstance, start: Int32[np.ndarray, " nodes"], *, evaluations: int, generator: np.random.Generator
) -> Solution:
    """The best split met in so many evaluations, never worse than `start`, which must be able to run."""
    began = time.perf_counter()
    moves = group_moves(instance)
    device = np.zeros(len(moves.size_bytes), np.int64)
    device[moves.group_of_node] = start
    found, _ = anneal(
        moves,
        device,
        instance.accelerator_memory_bytes,
        instance.num_accelerators,
        instance.num_devices,
        evaluations,
        *_TEMPERATURES,
        generator,
    )
    split, objective_s = start, max_load_s(instance, start)
    better = found[moves.group_of_node].astype(np.int32)
    if max_load_s(instance, better) < objective_s:
        split, objective_s = better, max_load_s(instance, better)
    return Solution(split=split, objective_s=objective_s, bound_s=work_bound_s(instance), solve_time_s=time.perf_counter() - began)
