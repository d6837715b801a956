"""Which device runs each op, where that decision came from, and the file that holds it."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gdp.atomic_file import write_text
from gdp.bounded_file import read_bounded
from gdp.cluster import MAX_DEVICES, Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.plain_json import parse_json

MAX_FILE_BYTES = 2**29
"""The most bytes of a placement file that are read."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a placement came from."""

    placer: str
    """the method: `gdp`, `metis`, `list-scheduling`, `user`."""
    policy: str | None = None
    """name or path of the policy checkpoint, where there is one."""
    revision: str | None = None
    """the policy's commit or hash."""
    seed: int | None = None
    evaluations: int = 0
    """how many placements were simulated or measured to find this one."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Placement:
    """A device for every op."""

    device: Int32[np.ndarray, " ops"]
    """index into `Cluster.devices`."""
    origin: Origin

    def __post_init__(self) -> None:
        if len(self.device) and self.device.min() < 0:
            raise InputError(
                f"op number {int(self.device.argmin())} is placed on device {int(self.device.min())}; device indices start at 0"
            )
        object.__setattr__(self, "device", self.device.copy())  # the caller's array, or what it is a view of, stays the caller's
        self.device.flags.writeable = False


@runtime_checkable
class Placer(Protocol):
    """Places a graph on a cluster. An anytime placer is given a runtime and an evaluation budget when it is built."""

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement: ...


class _GraphDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    source: str
    num_ops: Annotated[int, Field(ge=1)]


class _DeviceDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    id: Annotated[int, Field(ge=0)]
    name: str
    kind: str
    memory_bytes: Annotated[int, Field(ge=0, le=2**60)]


class _OriginDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    placer: str
    policy: str | None = None
    revision: str | None = None
    seed: Annotated[int, Field(ge=0)] | None = None
    evaluations: Annotated[int, Field(ge=0)] = 0


class _PlacementDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    format: Annotated[Literal[1], Field(alias="schema")]
    gdp_version: str
    graph: _GraphDocument
    devices: Annotated[list[_DeviceDocument], Field(min_length=1)]
    assignment: dict[str, Annotated[int, Field(ge=0, lt=MAX_DEVICES)]]
    origin: _OriginDocument
    predicted: dict[str, Any] = {}
    measured: dict[str, Any] = {}
    baselines: dict[str, Any] = {}


def write_placement(
    path: Path,
    placement: Placement,
    graph: Graph,
    cluster: Cluster,
    *,
    gdp_version: str,
    predicted: dict[str, Any],
    measured: dict[str, Any],
    baselines: dict[str, Any],
) -> None:
    """Writes `placement.json` (docs/formats.md): the assignment of every op by name, and what was predicted and measured of it."""
    document = {
        "schema": 1,
        "gdp_version": gdp_version,
        "graph": {"sha256": graph.sha256, "source": graph.source, "num_ops": graph.num_ops},
        "devices": [
            {"id": number, "name": device.name, "kind": device.kind, "memory_bytes": int(device.memory_bytes)}
            for number, device in enumerate(cluster.devices)
        ],
        "assignment": dict(zip(graph.name, placement.device.tolist(), strict=True)),
        "origin": dataclasses.asdict(placement.origin),
        "predicted": predicted,
        "measured": measured,
        "baselines": baselines,
    }
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def read_placement(path: Path, graph: Graph, cluster: Cluster) -> Placement:
    """Reads `placement.json` for this graph and cluster.

    Raises `InputError` when the file is missing or wrong, when it was written for another graph, or when its devices are not those of the cluster.
    """
    data = read_bounded(path, what="the placement file", advice="`gdp place` writes one", max_bytes=MAX_FILE_BYTES)
    try:
        raw = parse_json(data)
    except ValueError as error:
        raise InputError(f"the placement file {path} is not JSON as `gdp place` writes it: {error}; see docs/formats.md") from error
    try:
        document = _PlacementDocument.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise InputError(f"the placement file {path} is wrong at {place}: {first['msg']}; see docs/formats.md") from error
    if document.graph.sha256 != graph.sha256:
        raise InputError(
            f"the placement file {path} was made for the graph {document.graph.sha256[:12]} ({document.graph.source}), "
            f"not for {graph.sha256[:12]} ({graph.source}); place this graph anew"
        )
    if document.graph.num_ops != graph.num_ops:
        raise InputError(
            f"the placement file {path} says {document.graph.num_ops} ops of a graph of {graph.num_ops}; place this graph anew"
        )
    names = [device.name for device in document.devices]
    if names != [device.name for device in cluster.devices]:
        raise InputError(
            f"the placement file {path} is for the devices {names}, but cluster {cluster.name!r} has {[device.name for device in cluster.devices]}"
        )
    for number, (device_then, device_now) in enumerate(zip(document.devices, cluster.devices, strict=True)):
        then = (device_then.id, device_then.kind, device_then.memory_bytes)
        if then != (number, device_now.kind, device_now.memory_bytes):
            raise InputError(
                f"the placement file {path} has the device {device_then.name!r} as id {then[0]}, kind {then[1]!r}, memory_bytes {then[2]}, "
                f"but in cluster {cluster.name!r} it is id {number}, kind {device_now.kind!r}, memory_bytes {device_now.memory_bytes}; place the graph anew"
            )
    missing = [name for name in graph.name if name not in document.assignment]
    if missing or len(document.assignment) != graph.num_ops:
        detail = f"misses op {missing[0]!r}" if missing else "names ops that the graph has not"
        raise InputError(f"the assignment of the placement file {path} {detail}; it must name every op once")
    device = np.array([document.assignment[name] for name in graph.name], np.int64)
    if device.max() >= cluster.num_devices:
        raise InputError(
            f"the placement file {path} places op {graph.name[int(device.argmax())]!r} on device {int(device.max())}, but there are {cluster.num_devices}"
        )
    return Placement(device=device.astype(np.int32), origin=Origin(**document.origin.model_dump()))
