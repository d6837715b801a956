"""Lower bounds on the simulated time of every placement that can run, whatever its dispatch.

A bound that holds for the time of the busiest device or channel holds for the step time, too, since a step lasts as long as either; the longest path and the interval bound
hold for the step time alone.
"""

import dataclasses
from typing import Literal

import numpy as np

from gdp.baselines.fan_out_bound import fan_out_bound_s
from gdp.baselines.fork_join_bound import fork_join_paths
from gdp.baselines.indivisible import indivisible
from gdp.baselines.interval_bound import interval_bound_s
from gdp.baselines.longest_path import longest_path_s, paths
from gdp.baselines.pigeonhole_bound import pigeonhole_bound_s
from gdp.baselines.work_bound import work_bound_s
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective
from gdp.runtime.verdict import check_finite

SAFETY = 1e-9
"""Every bound is made smaller by this share: it and the simulator add up to a million doubles in different orders, each sum off by up to 2e-10 of itself."""

Bound = Literal["work", "pigeonhole", "fan-out", "longest path", "fork-join", "interval", "memory"]
"""Which argument gave a bound; `memory` is a proof that no placement can run."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowerBound:
    """No placement that can run takes less than `value_s` by the simulator's rule."""

    value_s: float
    """infinite when no placement can run."""
    bound: Bound


def lower_bounds(graph: Graph, cluster: Cluster, *, objective: Objective = "step_time") -> tuple[LowerBound, ...]:
    """All bounds that hold for `objective`, the best one first. Seconds for 50 000 ops. Raises `InputError` when times overflow."""
    check_finite(graph, cluster)
    units = indivisible(graph, cluster)
    work_s, multipliers = work_bound_s(units)
    if np.isinf(work_s):
        return (LowerBound(value_s=np.inf, bound="memory"),)
    found: list[tuple[Bound, float]] = [
        ("work", work_s),
        ("pigeonhole", pigeonhole_bound_s(units)),
        ("fan-out", fan_out_bound_s(graph, cluster, units)),
    ]
    if objective == "step_time":
        through = paths(graph, cluster, units)
        found.append(("longest path", longest_path_s(units, through)))
        through = fork_join_paths(graph, cluster, units, through)
        found.append(("fork-join", longest_path_s(units, through)))
        known_s = max(value_s for _, value_s in found)
        found.append(("interval", interval_bound_s(units, through, multipliers, known_s=known_s)))
    bounds = [LowerBound(value_s=max(0.0, value_s * (1 - SAFETY)), bound=bound) for bound, value_s in found]
    return tuple(sorted(bounds, key=lambda each: -each.value_s))


def lower_bound(graph: Graph, cluster: Cluster, *, objective: Objective = "step_time") -> LowerBound:
    """The best of `lower_bounds`."""
    return lower_bounds(graph, cluster, objective=objective)[0]
