"""The placers that every command puts side by side, the policy among them."""

from collections.abc import Sequence

import numpy as np

from gdp.candidate import Candidate
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime, Status
from gdp.placement import Placer

ZERO_SHOT = "zero-shot"
POLICY_SEARCH = "policy search"
SINGLE = "single device"


def simple_placers(*, runtime: Runtime, seed: int, objective: Objective) -> dict[str, Placer]:
    """The baselines that need no search, by the names that tables print; `runtime` judges the few variants of each."""
    from gdp.baselines.contiguous import Contiguous
    from gdp.baselines.list_scheduling import ListScheduling
    from gdp.baselines.metis import Metis
    from gdp.baselines.single_device import SingleDevice

    return {
        SINGLE: SingleDevice(runtime=runtime, objective=objective),
        "contiguous": Contiguous(runtime=runtime, objective=objective),
        "metis": Metis(seed=seed),
        "list scheduling": ListScheduling(runtime=runtime, objective=objective),
    }


def refuse_impossible_memory(graph: Graph, cluster: Cluster) -> None:
    """Raises `InputError` when it is proven that no placement fits, with what does not, where, and by how many bytes."""
    from gdp.baselines.memory_shortage import memory_shortage

    shortage = memory_shortage(graph, cluster)
    if shortage is not None:
        raise InputError(f"{shortage}; add devices or memory, or capture a smaller batch")


def refuse_unknown_times(graph: Graph, cluster: Cluster) -> None:
    """Raises `InputError` when a profile, which knows seconds and no FLOPs, says nothing of a kind of the cluster's devices."""
    if not graph.measured_time_s or graph.flops.any():
        return
    for device in cluster.devices:
        if device.kind not in graph.measured_time_s:
            raise InputError(
                f"{graph.source!r} has times for devices of the kind {', '.join(sorted(graph.measured_time_s))} and no FLOPs, but device {device.name!r} "
                f"of cluster {cluster.name!r} is of the kind {device.kind!r}; name a cluster of the profile's kind, or the kind that it was measured on"
            )


def refuse_when_nothing_runs(answers: Sequence[Candidate], cluster: Cluster) -> None:
    """Raises `InputError`, with the candidate that is nearest to fitting, when no candidate can run."""
    if any(answer.judged.status == Status.OK for answer in answers):
        return
    nearest = min(answers, key=lambda answer: int(np.maximum(answer.predicted.peak_memory_bytes - cluster.memory_bytes, 0).max()))
    raise InputError(
        f"none of {len(answers)} placements runs on cluster {cluster.name!r}; the nearest, {nearest.name!r}: {nearest.judged.detail}; "
        "add devices or memory, or capture a smaller batch"
    )
