"""The least max-load of contiguous splits, by dynamic programming over ideals (Tarnawski et al., NeurIPS 2020, section 5.1).

A split is contiguous when its devices can be put in an order in which no forward edge goes back: the parts are differences of a chain of ideals

    best[a, c][I] = min over ideals J of I of   max(best[a - 1, c][J], accelerator load of I \\ J),   max(best[a, c - 1][J], CPU load of I \\ J)

Backward nodes ride with their colour. Deviations: the linearised program runs first, and parts whose computing alone is no better than its result are
never looked at, which leaves the optimum what it is; parts are enumerated along the steps between ideals, with loads kept up from one to the next.
"""

import time

import numpy as np
from jaxtyping import Float64, Int8, Int32, Int64

from gdp.baselines.tarnawski.contiguous_kernel import extend
from gdp.baselines.tarnawski.cost import max_load_s
from gdp.baselines.tarnawski.groups import Groups, contiguous_groups
from gdp.baselines.tarnawski.ideals import Ideals, all_ideals, prefixes
from gdp.baselines.tarnawski.solution import Solution
from gdp.capture.order import topological_order
from gdp.capture.tarnawski_instance import TarnawskiInstance

_IDEALS_AT_ONCE = 64


def contiguous_optimum(instance: TarnawskiInstance, *, time_limit_s: float) -> Solution:
    """The contiguous split of least max-load: proven, unless the time runs out; then the linearised program's, where it was done in time.

    Raises `InputError` when the instance has over 60 000 ideals.
    """
    began = time.perf_counter()
    groups = contiguous_groups(instance)
    ideals = all_ideals(groups, source=instance.source)
    linear = _solve(instance, groups, prefixes(_depth_first(groups)), limit_s=np.inf, deadline=began + time_limit_s)
    split = None if linear is None else linear[0]
    objective_s = np.inf if split is None else max_load_s(instance, split)
    better = _solve(instance, groups, ideals, limit_s=objective_s, deadline=began + time_limit_s)
    if better is not None and better[0] is not None:
        found_s = max_load_s(instance, better[0])
        if found_s < objective_s:
            split, objective_s = better[0], found_s
    bound_s = objective_s if better is not None else work_bound_s(instance)
    return Solution(split=split, objective_s=float(objective_s), bound_s=float(bound_s), solve_time_s=time.perf_counter() - began)


def linearised_optimum(instance: TarnawskiInstance, *, time_limit_s: float = np.inf) -> Solution:
    """DPL: the best split into consecutive parts of one depth-first topological order; none where the time runs out. It bounds nothing, so `bound_s` is the work bound."""
    began = time.perf_counter()
    groups = contiguous_groups(instance)
    found = _solve(instance, groups, prefixes(_depth_first(groups)), limit_s=np.inf, deadline=began + time_limit_s)
    split = None if found is None else found[0]
    objective_s = float("inf") if split is None else max_load_s(instance, split)
    return Solution(split=split, objective_s=objective_s, bound_s=work_bound_s(instance), solve_time_s=time.perf_counter() - began)


def work_bound_s(instance: TarnawskiInstance) -> float:
    """No split has a lower max-load: all work spread evenly, CPU cores as fast as on the node that suits them best, and nothing moved."""
    capacity = instance.num_accelerators + instance.num_cpus * _accelerators_per_cpu(instance)
    return float(instance.accelerator_time_s[instance.runs_on_accelerator].sum()) / capacity if capacity else 0.0


def _accelerators_per_cpu(instance: TarnawskiInstance) -> float:
    """The most accelerator seconds of work that a CPU core does in a second."""
    useful = instance.runs_on_accelerator & (instance.accelerator_time_s > 0)
    if not instance.num_cpus or not useful.any():
        return 0.0
    with np.errstate(divide="ignore"):
        return float((instance.accelerator_time_s[useful] / instance.cpu_time_s[useful]).max())


def _depth_first(groups: Groups) -> Int64[np.ndarray, " groups"]:
    """A topological order by depth-first search from the last groups."""
    last = groups.num_groups - 1
    edges = [(last - producer, last - group) for group, producers in enumerate(groups.producers) for producer in producers]
    order = topological_order(groups.num_groups, np.array(edges, np.int64).reshape(-1, 2), [str(group) for group in range(last + 1)])
    return last - order


def _solve(
    instance: TarnawskiInstance, groups: Groups, ideals: Ideals, *, limit_s: float, deadline: float
) -> tuple[Int32[np.ndarray, " nodes"] | None] | None:
    """The best split with a max-load below `limit_s`, or None in its place when there is none; None when the time ran out."""
    group = groups.group_of_node
    accelerator_s = np.bincount(group, np.where(instance.runs_on_accelerator, instance.accelerator_time_s, np.inf))
    shape = (ideals.num_ideals, instance.num_accelerators + 1, instance.num_cpus + 1)
    best_s: Float64[np.ndarray, "ideals accelerator_counts cpu_counts"] = np.full(shape, np.inf)
    best_s[0] = 0.0
    came_from, came_by = np.zeros(shape, np.int32), np.zeros(shape, np.int8)
    work_s = np.bincount(group, np.where(instance.runs_on_accelerator, instance.accelerator_time_s, 0.0))
    remaining_s = work_s.sum() - ideals.total(work_s)
    accelerators_per_cpu = _accelerators_per_cpu(instance)
    by_consumer = np.argsort(instance.edge_to, kind="stable")
    for begin in range(0, ideals.num_ideals, _IDEALS_AT_ONCE):
        if time.perf_counter() > deadline:
            return None
        extend(
            begin,
            min(begin + _IDEALS_AT_ONCE, ideals.num_ideals),
            limit_s,
            ideals.first_step,
            ideals.step_group,
            ideals.step_to,
            np.concatenate([[0], np.cumsum(np.bincount(group, minlength=groups.num_groups))]),
            np.argsort(group, kind="stable"),
            np.concatenate([[0], np.cumsum(np.bincount(instance.edge_to, minlength=instance.num_nodes))]),
            instance.edge_from[by_consumer],
            np.bincount(instance.edge_from, minlength=instance.num_nodes),
            instance.transfer_s,
            accelerator_s,
            np.bincount(group, instance.cpu_time_s),
            np.bincount(group, instance.size_bytes),
            instance.accelerator_memory_bytes,
            remaining_s,
            accelerators_per_cpu,
            best_s,
            came_from,
            came_by,
        )
    whole = best_s[-1]
    if not whole.min() < limit_s:
        return (None,)
    return (_split(groups, ideals, instance.num_accelerators, np.unravel_index(whole.argmin(), whole.shape), came_from, came_by),)


def _split(
    groups: Groups,
    ideals: Ideals,
    num_accelerators: int,
    used: tuple[np.intp, ...],
    came_from: Int32[np.ndarray, "ideals accelerator_counts cpu_counts"],
    came_by: Int8[np.ndarray, "ideals accelerator_counts cpu_counts"],
) -> Int32[np.ndarray, " nodes"]:
    """The parts along the way back from the whole graph, each on the next device of its kind."""
    a, c = int(used[0]), int(used[1])
    device = np.full(groups.num_groups, -1, np.int32)
    ideal, first = ideals.num_ideals - 1, 0
    while ideal:
        before = int(came_from[ideal, a, c])
        on_cpu = bool(came_by[ideal, a, c])
        a, c = (a, c - 1) if on_cpu else (a - 1, c)
        part = ideals.groups_of(ideal) & ~ideals.groups_of(before)
        device[part] = num_accelerators + c if on_cpu else a
        ideal = before
        first = int(device[part][0])
    return np.where(groups.first_nodes, first, device[groups.group_of_node]).astype(np.int32)
