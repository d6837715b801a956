"""Simulated annealing on the max-load of all splits (Kirkpatrick et al., Science 220, 1983), in the cost model of Tarnawski et al.

One group of a colour moves at a time, mostly to a device where a neighbour is. What is accepted is a smooth maximum of the loads, their norm of order 16; what is
kept is the least max-load.
"""

import time

import numpy as np
from jaxtyping import Int32

from gdp.baselines.tarnawski.annealing_kernel import anneal
from gdp.baselines.tarnawski.contiguous_dp import work_bound_s
from gdp.baselines.tarnawski.cost import max_load_s
from gdp.baselines.tarnawski.groups import colour_groups
from gdp.baselines.tarnawski.solution import Solution
from gdp.capture.tarnawski_instance import TarnawskiInstance


def annealed_max_load(
    instance: TarnawskiInstance, start: Int32[np.ndarray, " nodes"], *, evaluations: int, generator: np.random.Generator
) -> Solution:
    """The best split met in so many evaluations, never worse than `start`, which must be able to run."""
    began = time.perf_counter()
    group = colour_groups(instance).group_of_node
    count = int(group.max()) + 1
    device = np.zeros(count, np.int64)
    device[group] = start
    pairs = np.unique(np.stack([group[instance.edge_from], group[instance.edge_to]], axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    pairs = np.concatenate([pairs, pairs[:, ::-1]])
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    nodes = np.concatenate([np.arange(instance.num_nodes), instance.edge_from])
    readers = np.concatenate([group, group[instance.edge_to]])
    by_node = np.argsort(nodes, kind="stable")  # a node's own group comes first
    found, _ = anneal(
        device,
        np.bincount(group, ~instance.runs_on_accelerator) == 0,
        generator.random((evaluations, 4)),
        np.searchsorted(pairs[:, 0], np.arange(count + 1)),
        np.ascontiguousarray(pairs[:, 1]),
        np.searchsorted(nodes[by_node], np.arange(instance.num_nodes + 1)),
        readers[by_node],
        instance.transfer_s,
        np.bincount(group, instance.accelerator_time_s),
        np.bincount(group, instance.cpu_time_s),
        np.bincount(group, instance.size_bytes),
        instance.accelerator_memory_bytes,
        instance.num_accelerators,
        instance.num_devices,
        1e-2,
        1e-5,
    )
    split, objective_s = start, max_load_s(instance, start)
    better = found[group].astype(np.int32)
    if max_load_s(instance, better) < objective_s:
        split, objective_s = better, max_load_s(instance, better)
    return Solution(split=split, objective_s=objective_s, bound_s=work_bound_s(instance), solve_time_s=time.perf_counter() - began)
