"""The model cut into consecutive stages of equal time or memory, one per device: what a person does first."""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Int32

from gdp.baselines.quotient import quotient, resident_bytes, stage_order
from gdp.baselines.score import best_of
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contiguous:
    """Consecutive stages, backward ops with their forward ops.

    By `time`, each stage takes a time in proportion to its device's speed, so that all take equally long; by `memory`, parameters and tensors in proportion to its device's memory.
    With a runtime 1, 2, ... devices are tried, the fastest first, and the best count is kept; without one, all devices are used.
    """

    runtime: Runtime | None = None
    objective: Objective = "step_time"
    balance: Literal["time", "memory"] = "time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        name = "contiguous" if self.balance == "time" else "contiguous-by-memory"
        device = contiguous_splits(graph, cluster, balance=self.balance)
        if self.runtime is None:
            return Placement(device=np.array(device[-1]), origin=Origin(placer=name))
        best = best_of(graph, cluster, device, runtime=self.runtime, objective=self.objective)
        return Placement(device=best, origin=Origin(placer=name, evaluations=len(device)))


def contiguous_splits(graph: Graph, cluster: Cluster, *, balance: Literal["time", "memory"] = "time") -> Int32[np.ndarray, "devices ops"]:
    """Row `k - 1` cuts the graph into `k` stages on the `k` fastest devices, which keep the cluster's order among themselves."""
    grouping = coarsen(graph)
    order = stage_order(graph, grouping)
    time_s = quotient(graph, cluster, grouping).time_s
    speed = 1.0 / np.maximum(time_s.sum(axis=0), 1e-30)
    if balance == "time":
        share, size = speed, time_s.mean(axis=1)[order]
    else:
        share, size = np.maximum(cluster.memory_bytes, 1).astype(np.float64), resident_bytes(graph, grouping)[order].astype(np.float64)
    middle = np.cumsum(size) - size / 2
    rows = []
    for count in range(1, cluster.num_devices + 1):
        chosen = np.sort(np.argsort(-speed, kind="stable")[:count]).astype(np.int32)
        ends = np.cumsum(share[chosen]) / share[chosen].sum() * size.sum()
        group_device = np.empty(grouping.num_groups, np.int32)
        group_device[order] = chosen[np.minimum(np.searchsorted(ends, middle, side="left"), count - 1)]
        rows.append(grouping.expand(group_device))
    return np.stack(rows)
