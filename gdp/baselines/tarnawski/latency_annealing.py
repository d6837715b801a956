"""Simulated annealing on the latency of one sample, in the cost model of Tarnawski et al. (NeurIPS 2020, section 6). It proves nothing."""

import time

import numpy as np
from jaxtyping import Int32

from gdp.baselines.tarnawski.cost import ON_CPU, latency_s
from gdp.baselines.tarnawski.group_moves import group_moves
from gdp.baselines.tarnawski.latency_kernel import anneal_latency
from gdp.baselines.tarnawski.solution import Solution
from gdp.capture.tarnawski_instance import TarnawskiInstance

_TEMPERATURES = 1e-2, 1e-6
"""first and last, as fractions of the latency."""


def annealed_latency(
    instance: TarnawskiInstance,
    start: Int32[np.ndarray, " nodes"],
    *,
    evaluations: int,
    generator: np.random.Generator,
    subgraphs_per_accelerator: int = 1,
) -> Solution:
    """The best split met in so many evaluations, as a subgraph per node or `ON_CPU`; never worse than `start`, which must be able to run. No bound is proven (0)."""
    began = time.perf_counter()
    moves = group_moves(instance)
    num_subgraphs = instance.num_accelerators * subgraphs_per_accelerator
    place = np.zeros(len(moves.size_bytes), np.int64)
    place[moves.group_of_node] = np.where(start == ON_CPU, num_subgraphs, start)
    by_producer = np.argsort(instance.edge_from, kind="stable")
    found, _ = anneal_latency(
        moves,
        instance.cpu_time_s,
        np.searchsorted(instance.edge_from[by_producer], np.arange(instance.num_nodes + 1)),
        instance.edge_to[by_producer].astype(np.int64),
        place,
        instance.accelerator_memory_bytes,
        num_subgraphs,
        subgraphs_per_accelerator,
        instance.num_cpus > 0,
        evaluations,
        *_TEMPERATURES,
        generator,
    )
    better = np.where(found == num_subgraphs, ON_CPU, found).astype(np.int32)[moves.group_of_node]
    split, objective_s = start, latency_s(instance, start, subgraphs_per_accelerator=subgraphs_per_accelerator)
    better_s = latency_s(instance, better, subgraphs_per_accelerator=subgraphs_per_accelerator)
    if better_s < objective_s:
        split, objective_s = better, better_s
    return Solution(split=split, objective_s=objective_s, bound_s=0.0, solve_time_s=time.perf_counter() - began)
