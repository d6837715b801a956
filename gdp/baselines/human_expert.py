"""The placement that people chose for a model, from data (`gdp.baselines.expert_rules`)."""

import dataclasses

import numpy as np
from jaxtyping import Int32

from gdp.baselines.expert_rules import ExpertPlacement, ExpertRules
from gdp.baselines.module_rules import UNSAID, follow_data, path_parts
from gdp.baselines.score import best_of
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement


@dataclasses.dataclass(frozen=True, kw_only=True)
class HumanExpert:
    """Ops of the modules that the rules name where they say; all others follow their data.

    Without a runtime the first placement that is meant for the cluster's number of devices; with one, the best of all that are, each also on the first 1, 2, 4, ... devices
    where it is meant for so many.
    """

    rules: ExpertRules
    runtime: Runtime | None = None
    objective: Objective = "step_time"

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        choices = self._choices(cluster.num_devices)
        if self.runtime is None:
            return Placement(device=_placed(graph, choices[0], cluster.num_devices), origin=Origin(placer="human-expert"))
        counts = [1]
        while counts[-1] < cluster.num_devices:
            counts.append(min(2 * counts[-1], cluster.num_devices))
        rows = [_placed(graph, choice, count) for count in reversed(counts) for choice in self._suitable(count)]
        different = np.stack(list({row.tobytes(): row for row in rows}.values()))
        best = best_of(graph, cluster, different, runtime=self.runtime, objective=self.objective)
        return Placement(device=best, origin=Origin(placer="human-expert", evaluations=len(different)))

    def _choices(self, num_devices: int) -> list[ExpertPlacement]:
        if choices := self._suitable(num_devices):
            return choices
        known = sorted({count for one in self.rules.placements for count in one.devices or []})
        raise InputError(
            f"the expert placements of {self.rules.source!r} are for {', '.join(map(str, known))} devices, not for {num_devices}; add one, or one without `devices`"
        )

    def _suitable(self, num_devices: int) -> list[ExpertPlacement]:
        return [one for one in self.rules.placements if one.devices is None or num_devices in one.devices]


def _placed(graph: Graph, choice: ExpertPlacement, num_devices: int) -> Int32[np.ndarray, " ops"]:
    shares = {path_parts(rule.module): rule.share for rule in choice.rules}
    by_path: dict[str, int] = {}
    for path in dict.fromkeys(graph.module_path):
        parts = path_parts(path)
        share = next((shares[parts[:count]] for count in range(len(parts), -1, -1) if parts[:count] in shares), None)
        by_path[path] = UNSAID if share is None else int(share * num_devices)
    return follow_data(graph, np.array([by_path[path] for path in graph.module_path], np.int32))
