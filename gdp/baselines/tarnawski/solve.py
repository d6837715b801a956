"""The best split that the solvers of this folder find of an instance one after the other, with what they prove."""

import dataclasses
import time
from typing import Literal

import numpy as np
from jaxtyping import Int32

from gdp.baselines.tarnawski.annealing import annealed_max_load
from gdp.baselines.tarnawski.constraint_latency import constraint_latency
from gdp.baselines.tarnawski.contiguous_dp import contiguous_optimum, linearised_optimum
from gdp.baselines.tarnawski.cost import ON_CPU, max_load_s
from gdp.baselines.tarnawski.latency_annealing import annealed_latency
from gdp.baselines.tarnawski.latency_greedy import greedy_start
from gdp.baselines.tarnawski.latency_ip import least_latency
from gdp.baselines.tarnawski.shortage import why_nothing_fits
from gdp.baselines.tarnawski.solution import Solution
from gdp.baselines.tarnawski.throughput_ip import least_max_load
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.errors import InputError

Solver = Literal["highs", "cp-sat"]

_FIRST_SPLIT_S = 2.0
"""The linearised program, from which the others begin, has this long at least, so that a short time limit ends with a split, too."""


def solve_max_load(
    instance: TarnawskiInstance, *, contiguous: bool, time_limit_s: float, evaluations: int, generator: np.random.Generator
) -> Solution:
    """The least max-load: contiguous by the dynamic program over ideals, or by the integer program where there are too many; otherwise annealed, then by the integer program.

    Args:
        instance: what is split.
        contiguous: whether only contiguous splits are allowed.
        time_limit_s: of the exact solver; a first split may take `_FIRST_SPLIT_S`, annealing takes what its evaluations take.
        evaluations: of annealing, without contiguity alone.
        generator: for annealing.

    Raises:
        InputError: when the memory limit allows no split.
    """
    _refuse_impossible(instance, time_limit_s)
    began = time.perf_counter()
    if contiguous:
        try:
            return _at_least_on_cpu(instance, contiguous_optimum(instance, time_limit_s=time_limit_s))
        except InputError:  # too many ideals
            pass
    linear = linearised_optimum(instance, time_limit_s=max(time_limit_s, _FIRST_SPLIT_S))
    start = linear.split if linear.split is not None else _on_cpu(instance)
    if start is not None and not contiguous:
        start = annealed_max_load(instance, start, evaluations=evaluations, generator=generator).split
    return _timed(least_max_load(instance, contiguous=contiguous, time_limit_s=time_limit_s, start=start), began)


def solve_latency(
    instance: TarnawskiInstance,
    *,
    subgraphs_per_accelerator: int,
    time_limit_s: float,
    evaluations: int,
    generator: np.random.Generator,
    solver: Solver,
) -> Solution:
    """The least latency of one sample: greedy, annealed, then by the integer program or by constraint programming. Arguments and errors as above."""
    _refuse_impossible(instance, time_limit_s)
    began = time.perf_counter()
    start = greedy_start(instance, subgraphs_per_accelerator)
    if start is None and instance.num_cpus:
        start = np.full(instance.num_nodes, ON_CPU, np.int32)
    if start is not None:
        start = annealed_latency(
            instance, start, evaluations=evaluations, generator=generator, subgraphs_per_accelerator=subgraphs_per_accelerator
        ).split
    if solver == "cp-sat":
        if start is None:
            raise InputError(f"constraint programming begins from a split, and the greedy one of {instance.source!r} cannot run; use HiGHS")
        found = constraint_latency(instance, start, time_limit_s=time_limit_s, subgraphs_per_accelerator=subgraphs_per_accelerator)
    else:
        found = least_latency(instance, time_limit_s=time_limit_s, subgraphs_per_accelerator=subgraphs_per_accelerator, start=start)
    return _timed(found, began)


def _refuse_impossible(instance: TarnawskiInstance, time_limit_s: float) -> None:
    if not 0 < time_limit_s < np.inf:
        raise InputError(f"the solver is given {time_limit_s} seconds; it needs a positive, finite time")
    shortage = why_nothing_fits(instance, time_limit_s=time_limit_s)
    if shortage is not None:
        raise InputError(f"{shortage}; give accelerators more memory, or add accelerators or a CPU core")


def _on_cpu(instance: TarnawskiInstance) -> Int32[np.ndarray, " nodes"] | None:
    split = np.full(instance.num_nodes, instance.num_accelerators, np.int32)
    return split if instance.num_cpus and np.isfinite(max_load_s(instance, split)) else None


def _at_least_on_cpu(instance: TarnawskiInstance, found: Solution) -> Solution:
    """What was found; one CPU core for all where the time was too short for anything."""
    split = _on_cpu(instance) if found.split is None else None
    return found if split is None else dataclasses.replace(found, split=split, objective_s=max_load_s(instance, split))


def _timed(solution: Solution, began: float) -> Solution:
    return dataclasses.replace(solution, solve_time_s=time.perf_counter() - began)
