"""The placers that every command puts side by side, the policy among them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gdp.candidate import Candidate
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime, Status
from gdp.placement import Placer
from gdp.runtime.verdict import Dispatch

if TYPE_CHECKING:
    from gdp.learn.adapting_search import AdaptingSearch
    from gdp.policy.policy import Policy
    from gdp.runtime.simulator import Simulator

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


def policy_search(text: str, *, runtime: Runtime, dispatch: Dispatch, evaluations: int, seed: int) -> Placer | None:
    """The policy that `text` names as a search for the step time, with so many evaluations by `runtime`; `None` for one that can neither hold groups nor judge moves."""
    from gdp.hub.load import load, resolve
    from gdp.policy.search import PolicySearch
    from gdp.runtime.simulator import Simulator

    resolved = resolve(text)
    loaded = load(str(resolved.folder))
    if not loaded.can_hold and loaded.judge is None:
        return None
    return PolicySearch(
        loaded,
        runtime=runtime,
        predictor=Simulator(dispatch=dispatch),
        evaluations=evaluations,
        seed=seed,
        name=resolved.name,
        revision=resolved.revision,
    )


def fine_tuning(
    policy: "Policy", *, runtime: "Simulator", evaluations: int, seed: int, name: str, revision: str | None
) -> "AdaptingSearch":
    """A policy as a search that it learns from, as `finetune.py` is configured where nothing is overridden."""
    from gdp.cli.fill import fill
    from gdp.cli.finetune_config import FinetuneSettings
    from gdp.cli.hydra_config import composed, resolved
    from gdp.learn.adapting_search import AdaptingSearch

    config = fill(FinetuneSettings, resolved(composed("finetune", ["workload.name=any"])), where="")
    return AdaptingSearch(
        policy,
        runtime=runtime,
        evaluations=evaluations,
        seed=seed,
        config=config.learner,
        reward=config.reward,
        name=name,
        revision=revision,
    )


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
