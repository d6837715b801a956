"""Critical-path list scheduling: HEFT (Topcuoglu et al., IEEE TPDS 13, 2002) on the simulator's machine.

Ops are decided one after the other, by falling upward rank (the longest way to the end, in mean op and transfer seconds) or in the order in which they become
ready (how most runtimes dispatch). Each goes where it would end first, given the device's work so far, the transfers of its inputs over
channels that carry one transfer at a time, and copies that are there already.

Deviations from HEFT: transfers contend; an op without inputs goes with its first consumer; ops of one group follow the first of them that is decided; a device whose
memory would overflow is avoided; a device's idle gaps are not filled afterwards. Because a greedy choice spreads too eagerly when later transfers are dear, schedules
are built for several weights of transfer time and several coarsenings, and the best is kept; the whole graph as one group is among them.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from gdp.baselines.list_schedule import Schedule, list_schedule
from gdp.baselines.score import scores
from gdp.baselines.single_device import single_devices
from gdp.capture.coarsening import Grouping, coarsen
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement

_MAX_GROUPS = (None, 256, 64, 16)
_TRANSFER_WEIGHTS = (1.0, 2.0, 4.0, 8.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ListScheduling:
    """The best of some list schedules, by the runtime where there is one (with every single device, so never worse than those), else by their own predicted ends."""

    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        schedules = list_schedules(graph, cluster)
        if self.runtime is None:
            return Placement(device=np.array(schedules[0].device), origin=Origin(placer="list-scheduling"))
        device = np.concatenate([single_devices(graph, cluster), np.stack([schedule.device for schedule in schedules])])
        score = scores(self.runtime.batch(graph, cluster, device), cluster, objective=self.objective)
        return Placement(device=np.array(device[int(score.argmin())]), origin=Origin(placer="list-scheduling", evaluations=len(device)))


def list_schedules(graph: Graph, cluster: Cluster) -> list[Schedule]:
    """The different schedules, those that fit in memory first, then by their predicted ends."""
    whole = Grouping(group_of_op=np.zeros(graph.num_ops, np.int32), num_groups=1)
    found = []
    for grouping in (whole, *(coarsen(graph, max_groups=max_groups) for max_groups in _MAX_GROUPS)):
        for by_rank, reserve, transfer_weight in itertools.product((True, False), (False, True), _TRANSFER_WEIGHTS):
            found.append(list_schedule(graph, cluster, grouping, by_rank=by_rank, transfer_weight=transfer_weight, reserve=reserve))
    return most_promising(found)


def most_promising(schedules: Sequence[Schedule]) -> list[Schedule]:
    """The different ones of some schedules, those that fit in memory first, then by their predicted ends."""
    different: dict[bytes, Schedule] = {}
    for schedule in schedules:
        different.setdefault(schedule.device.tobytes(), schedule)
    return sorted(different.values(), key=lambda schedule: (schedule.overflows, schedule.end_s))
