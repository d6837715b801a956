"""The least max-load by integer programming (Tarnawski et al., NeurIPS 2020, section 5.2; load of forward and backward pass together).

    min L   over x[g, d] in {0, 1}: group g is on device d
    sum over d of x[g, d] = 1;   memory on every accelerator
    in[u, a] >= x[v, a] - x[u, a],   out[u, a] >= x[u, a] - x[v, a]   for every edge (u, v) and accelerator a
    L >= sum over v of accelerator_s[v] x[v, a] + sum over u of transfer_s[u] (in[u, a] + out[u, a]);   L >= sum over v of cpu_s[v] x[v, c]

Groups are colours. Contiguous splits are those of the dynamic program: the devices stand in an order in which no forward edge goes back. In place of the
published rows with an auxiliary variable per node and device, which allow devices that wait for each other in a circle, the contiguous program numbers the
accelerators in that order and has rows `sum over e <= d of x[v, e] <= sum over e <= d of x[u, e]`; CPU cores may stand between any two accelerators.

Without contiguity accelerators can be renumbered. Of all numberings the program allows those in which, of the longest groups (as many as accelerators), one
is on accelerator `a > 0` only if a longer one is on `a - 1`: rows of an orbitope (Kaibel and Pfetsch, Mathematical Programming 114, 2008) for the first few
groups alone. On the published instances HiGHS proves with them in a minute what it does not without, and rows for all groups are slower.
"""

import time

import numpy as np
from jaxtyping import Float64, Int32

from gdp.baselines.tarnawski.contiguous_dp import work_bound_s
from gdp.baselines.tarnawski.cost import max_load_s
from gdp.baselines.tarnawski.groups import Groups, colour_groups
from gdp.baselines.tarnawski.mixed_integer import MixedIntegerProgram
from gdp.baselines.tarnawski.solution import Solution
from gdp.capture.tarnawski_instance import TarnawskiInstance


def least_max_load(
    instance: TarnawskiInstance, *, contiguous: bool, time_limit_s: float, start: Int32[np.ndarray, " nodes"] | None = None
) -> Solution:
    """The split of least max-load, or the best found when the time runs out with what was proven by then.

    Args:
        instance: what is split.
        contiguous: whether only contiguous splits are allowed.
        time_limit_s: of the solver.
        start: a split that can run, to begin with; without contiguity alone.
    """
    began = time.perf_counter()
    program = _Program(instance, contiguous=contiguous)
    begin = None if start is None or contiguous else program.values(program.renumbered(start))
    found = program.model.solve(time_limit_s=time_limit_s, start=begin)
    split = None if found.value is None else program.split(found.value)
    objective_s = float("inf") if split is None else max_load_s(instance, split)
    if start is not None and max_load_s(instance, start) < objective_s:
        split, objective_s = start, max_load_s(instance, start)
    bound_s = max(found.bound / program.scale, work_bound_s(instance))
    return Solution(
        split=split,
        objective_s=objective_s,
        bound_s=min(bound_s, objective_s) if np.isfinite(objective_s) else bound_s,
        solve_time_s=time.perf_counter() - began,
    )


class _Program:
    """The rows, with times scaled so that the work bound is one."""

    def __init__(self, instance: TarnawskiInstance, *, contiguous: bool) -> None:
        self.instance = instance
        self.groups: Groups = colour_groups(instance)
        self.scale = 1.0 / (work_bound_s(instance) or 1.0)
        self.model = MixedIntegerProgram()
        # Slots: where a group can be. Without contiguity the devices; with it accelerators in order, and the CPU cores before, between and after them.
        accelerators = range(instance.num_accelerators)
        cpus = range(instance.num_accelerators, instance.num_devices)
        if contiguous:
            self.slot_is_cpu = [
                slot_cpu
                for a in range(instance.num_accelerators + 1)
                for slot_cpu in [True] * len(cpus) + [False] * (a < len(accelerators))
            ]
        else:
            self.slot_is_cpu = [False] * len(accelerators) + [True] * len(cpus)
        self.contiguous = contiguous
        self.load = self.model.add_variable(0.0, np.inf, cost=1.0)
        self.x = [[self.model.add_variable(0.0, 1.0, integer=True) for _ in self.slot_is_cpu] for _ in range(self.groups.num_groups)]
        self.moved: dict[tuple[int, int, int], int] = {}
        self._one_slot_each()
        self._loads()
        if contiguous:
            self._order()
        else:
            self._number_accelerators()

    def _one_slot_each(self) -> None:
        group = self.groups.group_of_node
        barred = np.unique(group[~self.instance.runs_on_accelerator])
        for one, row in enumerate(self.x):
            self.model.add_row([(variable, 1.0) for variable in row], lower=1.0, upper=1.0)
            if one in barred:
                self.model.add_row([(variable, 1.0) for variable, cpu in zip(row, self.slot_is_cpu, strict=True) if not cpu], upper=0.0)

    def _loads(self) -> None:
        instance, group = self.instance, self.groups.group_of_node
        count = self.groups.num_groups
        on_accelerator_s = np.bincount(group, instance.accelerator_time_s, minlength=count) * self.scale
        on_cpu_s = np.bincount(group, instance.cpu_time_s, minlength=count) * self.scale
        held = np.bincount(group, instance.size_bytes, minlength=count)
        memory = instance.accelerator_memory_bytes
        unit = memory or 1.0
        pays = (group[instance.edge_from] != group[instance.edge_to]) & (instance.transfer_s[instance.edge_from] > 0)
        for slot, cpu in enumerate(self.slot_is_cpu):
            seconds = on_cpu_s if cpu else on_accelerator_s
            terms = [(self.x[one][slot], float(seconds[one])) for one in range(count) if seconds[one]]
            if not cpu:
                for source, sink in zip(instance.edge_from[pays].tolist(), instance.edge_to[pays].tolist(), strict=True):
                    u, v = self.x[int(group[source])][slot], self.x[int(group[sink])][slot]
                    for into, plus, minus in ((1, v, u), (0, u, v)):
                        key = (source, slot, into)
                        if key not in self.moved:
                            self.moved[key] = self.model.add_variable(0.0, 1.0)
                            terms.append((self.moved[key], float(instance.transfer_s[source]) * self.scale))
                        self.model.add_row([(self.moved[key], 1.0), (plus, -1.0), (minus, 1.0)], lower=0.0)
                if held.sum() > memory:
                    self.model.add_row([(self.x[one][slot], float(held[one]) / unit) for one in range(count)], upper=memory / unit)
            self.model.add_row([(self.load, 1.0), *((variable, -weight) for variable, weight in terms)], lower=0.0)

    def _order(self) -> None:
        """No forward edge goes back, and no more CPU slots are used than there are cores."""
        for one, producers in enumerate(self.groups.producers):
            for other in producers:
                for last in range(len(self.slot_is_cpu) - 1):
                    terms = [(variable, 1.0) for variable in self.x[other][: last + 1]]
                    self.model.add_row([*terms, *((variable, -1.0) for variable in self.x[one][: last + 1])], lower=0.0)
        if not self.instance.num_cpus:
            return
        used = [self.model.add_variable(0.0, 1.0, integer=True) if cpu else None for cpu in self.slot_is_cpu]
        for slot, variable in enumerate(used):
            if variable is not None:
                for row in self.x:
                    self.model.add_row([(variable, 1.0), (row[slot], -1.0)], lower=0.0)
        self.model.add_row([(variable, 1.0) for variable in used if variable is not None], upper=float(self.instance.num_cpus))

    def _longest(self) -> list[int]:
        """The longest groups, as many as accelerators, the longest first."""
        seconds = np.bincount(self.groups.group_of_node, self.instance.accelerator_time_s)
        return [int(one) for one in np.argsort(-seconds, kind="stable")[: self.instance.num_accelerators]]

    def _number_accelerators(self) -> None:
        longest = self._longest()
        for rank, one in enumerate(longest):
            for a in range(1, self.instance.num_accelerators):
                longer = [(self.x[other][a - 1], 1.0) for other in longest[:rank]]
                self.model.add_row([*longer, (self.x[one][a], -1.0)], lower=0.0)

    def renumbered(self, device: Int32[np.ndarray, " nodes"]) -> Int32[np.ndarray, " nodes"]:
        """The same split with its accelerators numbered as the program allows."""
        of_group = np.zeros(self.groups.num_groups, np.int32)
        of_group[self.groups.group_of_node] = device
        met = [*of_group[self._longest()].tolist(), *range(self.instance.num_accelerators)]
        order = list(dict.fromkeys(a for a in met if a < self.instance.num_accelerators))
        number = np.arange(self.instance.num_devices, dtype=np.int32)
        number[order] = np.arange(len(order), dtype=np.int32)
        return np.asarray(number[device])

    def split(self, value: Float64[np.ndarray, " variables"]) -> Int32[np.ndarray, " nodes"]:
        """The device of every node in a solution."""
        slot = np.array([int(np.argmax(value[row])) for row in self.x])
        device, next_cpu, next_accelerator = {}, self.instance.num_accelerators, 0
        for index, cpu in enumerate(self.slot_is_cpu):
            if not cpu:
                device[index], next_accelerator = next_accelerator, next_accelerator + 1
            elif not self.contiguous or (slot == index).any():
                device[index], next_cpu = next_cpu, next_cpu + 1
        of_group = np.array([device[int(one)] for one in slot], np.int32)
        return np.asarray(of_group[self.groups.group_of_node])

    def values(self, device: Int32[np.ndarray, " nodes"]) -> Float64[np.ndarray, " variables"]:
        """The solution that a split is (without contiguity)."""
        value = np.zeros(1 + len(self.x) * len(self.slot_is_cpu) + len(self.moved))
        value[self.load] = max_load_s(self.instance, device) * self.scale
        for node, group in enumerate(self.groups.group_of_node.tolist()):
            value[self.x[group][int(device[node])]] = 1.0
        for source, sink in zip(self.instance.edge_from.tolist(), self.instance.edge_to.tolist(), strict=True):
            if device[source] != device[sink]:
                for key in ((source, int(device[sink]), 1), (source, int(device[source]), 0)):
                    if key in self.moved:
                        value[self.moved[key]] = 1.0
        return value
