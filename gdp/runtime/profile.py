"""A profile: what single ops and links of a machine took, with what the figures hold for, as a file beside the graph and the cluster that were made with it."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from jaxtyping import Float64
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gdp.atomic_file import write_text
from gdp.bounded_file import read_bounded
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.plain_json import parse_json
from gdp.runtime.handovers import HandOvers
from gdp.runtime.links import Link
from gdp.runtime.verdict import Dispatch

_MAX_BYTES = 2**30
_Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Profile:
    """Measured seconds of a graph's ops on kinds of devices."""

    graph_sha256: str
    dispatch: Dispatch
    """how the runtime's devices choose what to run: the simulator's rule that predicts them."""
    op_time_s: Mapping[str, Float64[np.ndarray, " ops"]]
    """by device kind."""
    links: Mapping[str, Link]
    """by `SOURCE -> DESTINATION`; empty when the links were not measured with it."""
    fingerprint: Mapping[str, str]
    """what the seconds hold for (`fingerprint.py`)."""
    hand_overs: HandOvers | None = None
    """between sets of cores, in whole steps; none where they were not measured."""


class _LinkDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    latency_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
    bandwidth_bytes_per_s: Annotated[float, Field(gt=0, le=1e18, allow_inf_nan=False)]
    num_bytes: list[Annotated[int, Field(ge=1, lt=2**62)]]
    seconds: list[_Seconds]
    median_error: _Seconds


class _HandOversDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    latency_s: Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
    num_transfers: list[Annotated[int, Field(ge=0, lt=2**62)]]
    measured_s: list[_Seconds]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[1]
    graph_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    dispatch: Dispatch
    op_time_s: dict[str, list[_Seconds]]
    links: dict[str, _LinkDocument]
    fingerprint: dict[str, str]
    hand_overs: _HandOversDocument | None = None


def write_profile(path: Path, profile: Profile) -> None:
    """Writes `profile` as JSON; half a file is never seen. Raises `InputError` when it cannot be written."""
    document = {
        "format": 1,
        "graph_sha256": profile.graph_sha256,
        "dispatch": profile.dispatch,
        "op_time_s": {kind: seconds.tolist() for kind, seconds in profile.op_time_s.items()},
        "links": {name: dataclasses.asdict(link) for name, link in profile.links.items()},
        "fingerprint": dict(profile.fingerprint),
        "hand_overs": None if profile.hand_overs is None else dataclasses.asdict(profile.hand_overs),
    }
    write_text(path, json.dumps(document) + "\n")


def read_profile(path: Path, graph: Graph) -> Profile:
    """Reads the profile of `graph` from `path`. Raises `InputError` when it cannot be read or is the profile of another graph."""
    content = read_bounded(path, what="the profile", advice="measure it anew", max_bytes=_MAX_BYTES)
    try:
        document = _Document.model_validate(parse_json(content))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise InputError(f"the profile {path} cannot be read: {where}: {first['msg']}; measure it anew") from error
    except ValueError as error:
        raise InputError(f"the profile {path} cannot be read: {str(error).splitlines()[0]}; measure it anew") from error
    seconds = {kind: np.array(values, np.float64) for kind, values in document.op_time_s.items()}
    if document.graph_sha256 != graph.sha256 or any(each.shape != (graph.num_ops,) for each in seconds.values()):
        raise InputError(f"the profile {path} is of another graph than {graph.source!r}; measure this one")
    idle = next((kind for kind, each in seconds.items() if not each.any()), None)
    if idle is not None:
        raise InputError(f"the profile {path} has no second for any op on {idle}; measure it anew")
    if any(len(link.num_bytes) != len(link.seconds) for link in document.links.values()):
        raise InputError(f"the profile {path} has a link with fewer seconds than sizes, or more; measure it anew")
    over = document.hand_overs
    if over is not None and len(over.num_transfers) != len(over.measured_s):
        raise InputError(f"the profile {path} has hand-overs with fewer seconds than placements, or more; measure it anew")
    return Profile(
        graph_sha256=document.graph_sha256,
        dispatch=document.dispatch,
        op_time_s=seconds,
        links={
            name: Link(
                latency_s=link.latency_s,
                bandwidth_bytes_per_s=link.bandwidth_bytes_per_s,
                num_bytes=tuple(link.num_bytes),
                seconds=tuple(link.seconds),
                median_error=link.median_error,
            )
            for name, link in document.links.items()
        },
        fingerprint=document.fingerprint,
        hand_overs=None
        if over is None
        else HandOvers(latency_s=over.latency_s, num_transfers=tuple(over.num_transfers), measured_s=tuple(over.measured_s)),
    )


def check_covers(profile: Profile, cluster: Cluster, path: Path) -> None:
    """Raises `InputError` when the profile lacks the seconds of a kind of the cluster's devices."""
    missing = [kind for kind in cluster.kinds if kind not in profile.op_time_s]
    if missing:
        raise InputError(
            f"the profile {path} has seconds for {', '.join(profile.op_time_s) or 'no devices'}, not for {missing[0]}; measure it anew on this cluster"
        )
