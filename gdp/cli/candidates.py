"""The placers that every command puts side by side, the policy among them."""

from collections.abc import Sequence

import numpy as np

from gdp.candidate import Candidate
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime, Status
from gdp.placement import Placer
from gdp.runtime.verdict import Dispatch

ZERO_SHOT = "zero-shot"
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


def policy_placer(text: str, *, runtime: Runtime, dispatch: Dispatch, num_samples: int, seed: int, objective: Objective) -> Placer:
    """The policy that `text` names (bundled, a folder, or on the Hub) as a zero-shot placer."""
    from gdp.hub.load import load, resolve
    from gdp.policy.placer import PolicyPlacer

    resolved = resolve(text)
    return PolicyPlacer(
        load(str(resolved.folder)),
        runtime=runtime,
        dispatch=dispatch,
        num_samples=num_samples,
        seed=seed,
        objective=objective,
        name=resolved.name,
        revision=resolved.revision,
    )


def refuse_impossible_memory(graph: Graph, cluster: Cluster) -> None:
    """Raises `InputError` when the parameters alone exceed what all devices hold together."""
    needed, capacity = int(graph.param_bytes.sum()), int(cluster.memory_bytes.sum())
    if needed > capacity:
        raise InputError(
            f"the parameters of {graph.source!r} need {needed / 2**30:.2f} GiB, but the {cluster.num_devices} devices of cluster {cluster.name!r} "
            f"hold {capacity / 2**30:.2f} GiB together; add devices, or give them more memory"
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
