"""Reads the JSON instances of Tarnawski et al. (NeurIPS 2020), and human experts' splits in the same format's sister files.

An instance has `maxFPGAs`, `maxCPUs`, `maxSizePerFPGA` (bytes), `nodes` and `edges`; "FPGA" means any accelerator. A node has `id`, `supportedOnFpga`,
`cpuLatency` and `fpgaLatency` (ms), `isBackwardNode`, `size` (bytes) and optionally `colorClass`, `name`, `layerId`; an edge has `sourceId`, `destId`,
`cost` (ms, a property of the source) and optionally `size`. A split lists the node ids of every device under `fpgas` and `cpus`.
"""

import json
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from jaxtyping import Int32
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gdp.atomic_file import write_text
from gdp.bounded_file import read_bounded
from gdp.capture.order import topological_order
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.cluster import MAX_DEVICES
from gdp.errors import InputError
from gdp.plain_json import parse_json

MAX_FILE_BYTES = 64 * 2**20
MAX_NODES = 100_000
MAX_EDGES = 1_000_000

_FORBID = ConfigDict(extra="forbid", strict=True)
_Id = Annotated[int, Field(ge=-(2**53), le=2**53)]
_Milliseconds = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Bytes = Annotated[float, Field(ge=0, le=2.0**60, allow_inf_nan=False)]
_Flag = bool | Annotated[int, Field(ge=0, le=1)]
_Text = Annotated[str, Field(max_length=10_000)]
_DocumentType = TypeVar("_DocumentType", bound=BaseModel)


class _Node(BaseModel):
    model_config = _FORBID

    id: _Id
    supportedOnFpga: _Flag
    cpuLatency: _Milliseconds
    fpgaLatency: _Milliseconds
    isBackwardNode: _Flag
    size: _Bytes
    colorClass: _Id | None = None
    name: _Text | None = None
    layerId: _Id | None = None


class _Edge(BaseModel):
    model_config = _FORBID

    sourceId: _Id
    destId: _Id
    cost: _Milliseconds
    size: _Bytes | None = None


class _Document(BaseModel):
    model_config = _FORBID

    maxSizePerFPGA: _Bytes
    maxFPGAs: Annotated[int, Field(ge=0, le=MAX_DEVICES)]
    maxCPUs: Annotated[int, Field(ge=0, le=MAX_DEVICES)]
    nodes: Annotated[list[_Node], Field(min_length=1, max_length=MAX_NODES)]
    edges: Annotated[list[_Edge], Field(max_length=MAX_EDGES)]


class _Part(BaseModel):
    model_config = _FORBID

    load: Annotated[float, Field(allow_inf_nan=False)] | None = None
    nodes: Annotated[list[_Id], Field(max_length=MAX_NODES)]


class _SplitDocument(BaseModel):
    model_config = _FORBID

    cpus: Annotated[list[_Part], Field(max_length=MAX_DEVICES)]
    fpgas: Annotated[list[_Part], Field(max_length=MAX_DEVICES)]
    maxLoad: Annotated[float, Field(allow_inf_nan=False)] | None = None


def read_tarnawski(path: Path) -> TarnawskiInstance:
    """The instance in the file `path`.

    Raises `InputError` when the file is missing, too large or wrong: a field that is missing or unknown, a number that is negative or not finite, an id that
    is unknown or there twice, an edge that is there twice, two costs of one source, a cycle.
    """
    document = _read(path, _Document, "the instance file")
    node_ids = np.array([node.id for node in document.nodes], np.int64)
    number = {int(node): index for index, node in enumerate(node_ids)}
    if len(number) != len(node_ids):
        twice = next(int(node) for index, node in enumerate(node_ids) if number[int(node)] != index)
        raise InputError(f"the instance file {path} has two nodes with the id {twice}; give every node its own")
    cost_ms: dict[int, float] = {}
    pairs: set[tuple[int, int]] = set()
    for edge in document.edges:
        for end in (edge.sourceId, edge.destId):
            if end not in number:
                raise InputError(
                    f"the edge {edge.sourceId} -> {edge.destId} in the instance file {path} names the node {end}, which is not there; add it or drop the edge"
                )
        pair = (number[edge.sourceId], number[edge.destId])
        if pair in pairs:
            raise InputError(f"the edge {edge.sourceId} -> {edge.destId} is twice in the instance file {path}; give it once")
        pairs.add(pair)
        if cost_ms.setdefault(pair[0], edge.cost) != edge.cost:
            raise InputError(
                f"the edges from node {edge.sourceId} in the instance file {path} have the costs {cost_ms[pair[0]]} and {edge.cost}; "
                "the cost is a property of the source: give one"
            )
    edges = np.array(sorted(pairs), np.int64).reshape(-1, 2)
    try:
        order = topological_order(len(node_ids), edges, [f"node {node}" for node in node_ids])
    except InputError as error:
        raise InputError(f"the instance file {path} is wrong: {error}") from error
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    nodes = [document.nodes[index] for index in order]
    colours = {colour: index for index, colour in enumerate(sorted({node.colorClass for node in nodes if node.colorClass is not None}))}
    return TarnawskiInstance(
        source=str(path),
        num_accelerators=document.maxFPGAs,
        num_cpus=document.maxCPUs,
        accelerator_memory_bytes=document.maxSizePerFPGA,
        node_id=node_ids[order],
        cpu_time_s=np.array([node.cpuLatency * 1e-3 for node in nodes]),
        accelerator_time_s=np.array([node.fpgaLatency * 1e-3 for node in nodes]),
        runs_on_accelerator=np.array([bool(node.supportedOnFpga) for node in nodes]),
        backward=np.array([bool(node.isBackwardNode) for node in nodes]),
        colour=np.array([TarnawskiInstance.NO_COLOUR if node.colorClass is None else colours[node.colorClass] for node in nodes], np.int32),
        size_bytes=np.array([node.size for node in nodes], np.float64),
        transfer_s=np.array([cost_ms.get(int(index), 0.0) * 1e-3 for index in order]),
        edge_from=place[edges[:, 0]],
        edge_to=place[edges[:, 1]],
    )


def read_tarnawski_split(path: Path, instance: TarnawskiInstance) -> Int32[np.ndarray, " nodes"]:
    """The device of every node of `instance` in the split that the file `path` holds: accelerators from 0, then CPU cores.

    Raises `InputError` when the file is missing or wrong, names a node that the instance has not or names one twice, leaves one out, or uses more devices.
    """
    document = _read(path, _SplitDocument, "the split file")
    number = {int(node): index for index, node in enumerate(instance.node_id)}
    device = np.full(instance.num_nodes, -1, np.int32)
    for kind, parts, first, count in (
        ("accelerators", document.fpgas, 0, instance.num_accelerators),
        ("CPU cores", document.cpus, instance.num_accelerators, instance.num_cpus),
    ):
        used = [part.nodes for part in parts if part.nodes]
        if len(used) > count:
            raise InputError(f"the split file {path} uses {len(used)} {kind}, but the instance {instance.source!r} has {count}")
        for index, nodes in enumerate(used):
            for node in nodes:
                if node not in number:
                    raise InputError(f"the split file {path} names the node {node}, which the instance {instance.source!r} has not")
                if device[number[node]] >= 0:
                    raise InputError(f"the split file {path} names the node {node} twice; a node is on one device")
                device[number[node]] = first + index
    if (device < 0).any():
        raise InputError(
            f"the split file {path} leaves out the node {instance.node_id[int(device.argmin())]}; it must name every node once"
        )
    return device


def write_tarnawski_split(path: Path, instance: TarnawskiInstance, device: Int32[np.ndarray, " nodes"]) -> None:
    """Writes a split, accelerators from 0 and then CPU cores, as `read_tarnawski_split` reads it; devices without nodes are written empty."""
    parts = [{"nodes": instance.node_id[device == number].tolist()} for number in range(instance.num_devices)]
    document = {"fpgas": parts[: instance.num_accelerators], "cpus": parts[instance.num_accelerators :]}
    write_text(path, json.dumps(document, indent=1) + "\n")


def _read(path: Path, kind: type[_DocumentType], what: str) -> _DocumentType:
    data = read_bounded(path, what=what, advice="name a JSON file of Tarnawski et al.", max_bytes=MAX_FILE_BYTES)
    try:
        raw = parse_json(data)
    except ValueError as error:
        raise InputError(f"{what} {path} is not JSON: {error}; see docs/formats.md") from error
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise InputError(f"{what} {path} is wrong at {place}: {first['msg']}; see docs/formats.md") from error
