"""The least latency of one sample by integer programming (Tarnawski et al., NeurIPS 2020, section 6).

    min T   over x[g, j] in {0, 1}: group g is in subgraph j, or on the CPU; accelerator a runs its q subgraphs one after the other
    sum over j of x[g, j] + x[g, CPU] = 1;   memory on every accelerator, over all its subgraphs
    latency[v] >= latency[u] + cpu_s[v] x[v, CPU]                 for every edge (u, v)
    start[j] >= latency[u] where j reads u from outside;          finish[j] = start[j] + load of j, as for max-load
    latency[v] >= finish[j] where v is in j;                      start[j + 1] >= finish[j] on one accelerator;   T >= latency[v]

"Where" is a big-M row; M is the latency of a split that is known. Subgraphs that wait for each other in a circle would never finish, unless all their
loads are zero: such a circle the program does not see, and a solution that has one is not returned. The best known split stands in for it, not proven.
"""

import time

import numpy as np
from jaxtyping import Float64, Int32

from gdp.baselines.tarnawski.cost import ON_CPU, latency_s
from gdp.baselines.tarnawski.groups import colour_groups
from gdp.baselines.tarnawski.latency_greedy import greedy_start
from gdp.baselines.tarnawski.mixed_integer import MixedIntegerProgram
from gdp.baselines.tarnawski.solution import Solution
from gdp.capture.tarnawski_instance import TarnawskiInstance


def least_latency(
    instance: TarnawskiInstance,
    *,
    time_limit_s: float,
    subgraphs_per_accelerator: int = 1,
    start: Int32[np.ndarray, " nodes"] | None = None,
) -> Solution:
    """The split of least latency, or the best found when the time runs out with what was proven by then; `split` is a subgraph per node, or `ON_CPU`.

    Args:
        instance: what is split.
        time_limit_s: of the solver.
        subgraphs_per_accelerator: how often an accelerator may begin anew.
        start: a split that can run, to begin with: its latency is the horizon. Else the greedy split.
    """
    began = time.perf_counter()
    split = greedy_start(instance, subgraphs_per_accelerator) if start is None else start
    objective_s = float("inf") if split is None else latency_s(instance, split, subgraphs_per_accelerator=subgraphs_per_accelerator)
    program = _Program(instance, subgraphs_per_accelerator, horizon_s=objective_s)
    found = program.model.solve(time_limit_s=time_limit_s)
    bound_s = found.bound * program.horizon_s
    if found.value is not None:
        better = program.split(found.value)
        better_s = latency_s(instance, better, subgraphs_per_accelerator=subgraphs_per_accelerator)
        if better_s < objective_s:
            split, objective_s = better, better_s
    elif np.isinf(bound_s) and split is not None:
        bound_s = objective_s  # no split is better than the known one
    bound_s = min(max(bound_s, 0.0), objective_s)
    return Solution(split=split, objective_s=objective_s, bound_s=bound_s, solve_time_s=time.perf_counter() - began)


class _Program:
    """The rows, with times in units of the horizon."""

    def __init__(self, instance: TarnawskiInstance, subgraphs_per_accelerator: int, *, horizon_s: float) -> None:
        self.instance = instance
        self.group: Int32[np.ndarray, " nodes"] = colour_groups(instance).group_of_node
        if not np.isfinite(horizon_s):
            readers = np.bincount(instance.edge_from, minlength=instance.num_nodes)
            horizon_s = float(np.maximum(instance.accelerator_time_s, instance.cpu_time_s).sum() + instance.transfer_s @ (1.0 + readers))
        self.horizon_s = horizon_s or 1.0
        self.model = MixedIntegerProgram()
        self.total = self.model.add_variable(0.0, 1.0, cost=1.0)
        self.num_subgraphs = instance.num_accelerators * subgraphs_per_accelerator
        count = int(self.group.max()) + 1
        barred = set(np.unique(self.group[~instance.runs_on_accelerator]).tolist())
        self.x = [
            [self.model.add_variable(0.0, 0.0 if one in barred else 1.0, integer=True) for _ in range(self.num_subgraphs)]
            + [self.model.add_variable(0.0, float(instance.num_cpus > 0), integer=True)]
            for one in range(count)
        ]
        for row in self.x:
            self.model.add_row([(variable, 1.0) for variable in row], lower=1.0, upper=1.0)
        self.latency = [self.model.add_variable(0.0, 1.0) for _ in range(instance.num_nodes)]
        self._cpu_rows()
        self._memory_rows(subgraphs_per_accelerator)
        self._subgraph_rows(subgraphs_per_accelerator)

    def _cpu_rows(self) -> None:
        seconds = self.instance.cpu_time_s / self.horizon_s
        for node, latency in enumerate(self.latency):
            on_cpu = self.x[int(self.group[node])][-1]
            self.model.add_row([(self.total, 1.0), (latency, -1.0)], lower=0.0)
            self.model.add_row([(latency, 1.0), (on_cpu, -float(seconds[node]))], lower=0.0)
        for source, sink in zip(self.instance.edge_from.tolist(), self.instance.edge_to.tolist(), strict=True):
            on_cpu = self.x[int(self.group[sink])][-1]
            self.model.add_row([(self.latency[sink], 1.0), (self.latency[source], -1.0), (on_cpu, -float(seconds[sink]))], lower=0.0)

    def _memory_rows(self, subgraphs_per_accelerator: int) -> None:
        held = np.bincount(self.group, self.instance.size_bytes)
        memory = self.instance.accelerator_memory_bytes
        if held.sum() <= memory:
            return
        unit = memory or 1.0
        for first in range(0, self.num_subgraphs, subgraphs_per_accelerator):
            slots = range(first, first + subgraphs_per_accelerator)
            self.model.add_row(
                [(row[slot], float(held[one]) / unit) for one, row in enumerate(self.x) for slot in slots], upper=memory / unit
            )

    def _subgraph_rows(self, subgraphs_per_accelerator: int) -> None:
        instance, group = self.instance, self.group
        seconds = np.bincount(group, instance.accelerator_time_s) / self.horizon_s
        transfer = instance.transfer_s / self.horizon_s
        crosses = group[instance.edge_from] != group[instance.edge_to]
        finish_before = -1
        for slot in range(self.num_subgraphs):
            start, finish = self.model.add_variable(0.0, 1.0), self.model.add_variable(0.0, 1.0)
            if slot % subgraphs_per_accelerator:
                self.model.add_row([(start, 1.0), (finish_before, -1.0)], lower=0.0)
            finish_before = finish
            load = [(row[slot], float(seconds[one])) for one, row in enumerate(self.x) if seconds[one]]
            into: dict[int, int] = {}
            out: dict[int, int] = {}
            for source, sink in zip(instance.edge_from[crosses].tolist(), instance.edge_to[crosses].tolist(), strict=True):
                u, v = self.x[int(group[source])][slot], self.x[int(group[sink])][slot]
                if source not in into:
                    into[source] = self.model.add_variable(0.0, 1.0)
                    out[source] = self.model.add_variable(0.0, 1.0)
                    load += [(into[source], float(transfer[source])), (out[source], float(transfer[source]))]
                    self.model.add_row([(start, 1.0), (self.latency[source], -1.0), (into[source], -1.0)], lower=-1.0)
                self.model.add_row([(into[source], 1.0), (v, -1.0), (u, 1.0)], lower=0.0)
                self.model.add_row([(out[source], 1.0), (u, -1.0), (v, 1.0)], lower=0.0)
            self.model.add_row([(finish, 1.0), (start, -1.0), *((variable, -weight) for variable, weight in load)], lower=0.0)
            for node, latency in enumerate(self.latency):
                self.model.add_row([(latency, 1.0), (finish, -1.0), (self.x[int(group[node])][slot], -1.0)], lower=-1.0)

    def split(self, value: Float64[np.ndarray, " variables"]) -> Int32[np.ndarray, " nodes"]:
        """The subgraph of every node in a solution."""
        slot = np.array([int(np.argmax(value[row])) for row in self.x], np.int32)
        of_group = np.where(slot == self.num_subgraphs, ON_CPU, slot).astype(np.int32)
        return np.asarray(of_group[self.group])
