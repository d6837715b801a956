"""The ideals of a graph of groups: the sets that hold, with each group, all it depends on. They are the prefixes of all topological orders."""

import dataclasses
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from gdp.baselines.tarnawski.groups import Groups
from gdp.errors import InputError

MAX_IDEALS = 60_000
"""The limit of the published code, too."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Ideals:
    """Ideals numbered from the empty one to the whole graph, a smaller one first, and the steps between them that add one group."""

    first_step: Int64[np.ndarray, " bounds"]
    """the steps that leave ideal `i` are `first_step[i]` to `first_step[i + 1]`."""
    step_group: Int32[np.ndarray, " steps"]
    step_to: Int32[np.ndarray, " steps"]

    @property
    def num_ideals(self) -> int:
        return len(self.first_step) - 1

    def groups_of(self, ideal: int) -> Bool[np.ndarray, " groups"]:
        """Which groups are in an ideal: those on any way of steps to it from the empty one."""
        member = np.zeros(int(self.step_group.max()) + 1, np.bool_)
        while ideal:
            step = int(self._step_into[ideal])
            member[self.step_group[step]] = True
            ideal = int(np.searchsorted(self.first_step, step, side="right")) - 1
        return member

    def total(self, weight: Float64[np.ndarray, " groups"]) -> Float64[np.ndarray, " ideals"]:
        """The weight of each ideal's groups together."""
        totals = np.zeros(self.num_ideals)
        ideal = np.searchsorted(self.first_step, self._step_into, side="right") - 1
        for larger in range(1, self.num_ideals):
            totals[larger] = totals[ideal[larger]] + weight[self.step_group[self._step_into[larger]]]
        return totals

    @cached_property
    def _step_into(self) -> Int64[np.ndarray, " ideals"]:
        step = np.zeros(self.num_ideals, np.int64)
        step[self.step_to] = np.arange(len(self.step_to))
        return step


def all_ideals(groups: Groups, *, source: str) -> Ideals:
    """Every ideal. Raises `InputError` when there are more than `MAX_IDEALS`."""
    too_many = InputError(
        f"the instance {source!r} has over {MAX_IDEALS} ideals, more than the dynamic program over ideals takes; "
        "use the linearised one (DPL) or an integer program"
    )
    if groups.num_groups >= MAX_IDEALS:  # each prefix of a topological order is one
        raise too_many
    number = {0: 0}
    frontiers = [tuple(group for group in range(groups.num_groups) if not groups.producers[group])]
    needs = [sum(1 << producer for producer in producers) for producers in groups.producers]
    members = [0]
    first_step, step_group, step_to = [0], [], []
    ideal = 0
    while ideal < len(members):
        if 1 << len(frontiers[ideal]) > MAX_IDEALS:  # each subset of a frontier may come next
            raise too_many
        for group in frontiers[ideal]:
            larger = members[ideal] | 1 << group
            found = number.get(larger)
            if found is None:
                found = number[larger] = len(members)
                if found >= MAX_IDEALS:
                    raise too_many
                members.append(larger)
                freed = tuple(other for other in groups.consumers[group] if needs[other] & ~larger == 0)
                frontiers.append(tuple(other for other in frontiers[ideal] if other != group) + freed)
            step_group.append(group)
            step_to.append(found)
        first_step.append(len(step_group))
        frontiers[ideal] = ()
        ideal += 1
    return Ideals(first_step=np.array(first_step), step_group=np.array(step_group, np.int32), step_to=np.array(step_to, np.int32))


def prefixes(order: Int64[np.ndarray, " groups"]) -> Ideals:
    """The ideals of one topological order alone: its prefixes."""
    count = len(order)
    return Ideals(
        first_step=np.minimum(np.arange(count + 2), count),
        step_group=order.astype(np.int32),
        step_to=np.arange(1, count + 1, dtype=np.int32),
    )
