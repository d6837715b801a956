"""The greedy baseline for latency (Tarnawski et al., NeurIPS 2020, section 7): accelerators filled one after the other in topological order."""

import time

import numpy as np
from jaxtyping import Int32

from gdp.baselines.tarnawski.cost import ON_CPU, latency_s
from gdp.baselines.tarnawski.groups import contiguous_groups
from gdp.baselines.tarnawski.solution import Solution
from gdp.capture.tarnawski_instance import TarnawskiInstance


def greedy_latency(instance: TarnawskiInstance) -> Solution:
    """Groups in topological order go to the current accelerator; when one does not fit, the next accelerator is begun, and what fits none goes to the CPU.

    Without accelerators everything is on the CPU. No bound is proven (0).
    """
    began = time.perf_counter()
    groups = contiguous_groups(instance)
    held = np.bincount(groups.group_of_node, instance.size_bytes)
    barred = np.bincount(groups.group_of_node, ~instance.runs_on_accelerator) > 0
    subgraph = np.full(groups.num_groups, ON_CPU, np.int32)
    current, free_bytes = 0, instance.accelerator_memory_bytes
    for group in range(groups.num_groups):
        alone = held[group] > instance.accelerator_memory_bytes or barred[group]
        if not alone and held[group] > free_bytes:
            current, free_bytes = current + 1, instance.accelerator_memory_bytes
        if alone:
            # What follows on the same accelerator might feed and read it: a new subgraph begins.
            current, free_bytes = current + (free_bytes < instance.accelerator_memory_bytes), instance.accelerator_memory_bytes
        elif current < instance.num_accelerators:
            subgraph[group] = current
            free_bytes -= held[group]
    split = subgraph[groups.group_of_node]
    objective_s = latency_s(instance, split)
    feasible = np.isfinite(objective_s)
    return Solution(split=split if feasible else None, objective_s=objective_s, bound_s=0.0, solve_time_s=time.perf_counter() - began)


def greedy_start(instance: TarnawskiInstance, subgraphs_per_accelerator: int) -> Int32[np.ndarray, " nodes"] | None:
    """The greedy split as the first subgraph of each accelerator; None when it cannot run."""
    split = greedy_latency(instance).split
    return None if split is None else np.where(split == ON_CPU, ON_CPU, split * subgraphs_per_accelerator).astype(np.int32)
