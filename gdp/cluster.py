"""The devices a graph may be placed on, and the channels between them."""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import numpy as np
import yaml
from jaxtyping import Float64, Int32
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gdp.atomic_file import write_text
from gdp.bounded_file import read_bounded
from gdp.bundled import bundled
from gdp.errors import InputError, nearest_name_hint
from gdp.plain_yaml import parse_yaml

DTYPE_CLASSES = ("float64", "float32", "float16", "bfloat16", "int8")
"""The classes of arithmetic whose speed a device states. A class that it leaves out runs at its `float32` speed."""

MAX_DEVICES = 64

MAX_FILE_BYTES = 2 * 2**20
"""The most bytes of a cluster file that are read; 64 devices with a link for each pair fit."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Device:
    """One device that runs one op at a time.

    Devices of equal `kind` are equally fast; their memory may differ.
    """

    name: str
    """as the runtime knows it: `cuda:0`, `cpu:0-3` (a set of cores), `gpu0` for one that is only simulated."""
    kind: str
    memory_bytes: int
    flops_per_s: Mapping[str, float]
    """sustained rate by dtype class (`DTYPE_CLASSES`), `float32` at least."""
    memory_bytes_per_s: float
    op_overhead_s: float
    """fixed seconds per op that does work: the launch of a kernel."""

    def __post_init__(self) -> None:
        where = f"device {self.name!r}"
        if not self.name or not self.kind:
            raise InputError(f"{where} has no name or no kind; give it both")
        if not 0 <= self.memory_bytes <= 2**60:
            raise InputError(f"{where} has memory_bytes {self.memory_bytes}; it must be from 0 to 2**60")
        unknown = set(self.flops_per_s) - set(DTYPE_CLASSES)
        if unknown or "float32" not in self.flops_per_s:
            raise InputError(
                f"{where} must state flops_per_s for float32, and only for {', '.join(DTYPE_CLASSES)}; it has {sorted(self.flops_per_s)}"
            )
        for field, value in [
            ("memory_bytes_per_s", self.memory_bytes_per_s),
            *((f"flops_per_s[{key}]", value) for key, value in self.flops_per_s.items()),
        ]:
            if not 0 < value < np.inf:
                raise InputError(f"{where} has {field} {value}; it must be positive and finite")
        if not 0 <= self.op_overhead_s < np.inf:
            raise InputError(f"{where} has op_overhead_s {self.op_overhead_s}; it must be finite and not negative")
        object.__setattr__(self, "flops_per_s", MappingProxyType(dict(self.flops_per_s)))

    def __reduce__(self) -> tuple[functools.partial["Device"], tuple[()]]:
        """On its way to another process a device is built and checked anew: a read-only mapping cannot travel."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return functools.partial(Device, **{**fields, "flops_per_s": dict(self.flops_per_s)}), ()


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Cluster:
    """Devices and the channels between them; `devices` is their number. Checked when built.

    A transfer from `i` to `j` takes `latency_s[i, j] + bytes / bandwidth_bytes_per_s[i, j]` and occupies `channel[i, j]`, which carries one transfer
    at a time: pairs with the same channel contend (one PCIe root). `NO_CHANNEL` means unlimited parallel transfers. The diagonal is not used.
    """

    NO_CHANNEL = -1

    name: str
    devices: tuple[Device, ...]
    bandwidth_bytes_per_s: Float64[np.ndarray, "devices devices"]
    latency_s: Float64[np.ndarray, "devices devices"]
    channel: Int32[np.ndarray, "devices devices"]
    channel_name: tuple[str, ...]

    @property
    def num_devices(self) -> int:
        return len(self.devices)

    @property
    def num_channels(self) -> int:
        return len(self.channel_name)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The device kinds, in the order of their first device."""
        return tuple(dict.fromkeys(device.kind for device in self.devices))

    @functools.cached_property
    def memory_bytes(self) -> np.ndarray:
        """`[devices]` int64 capacities."""
        return np.array([device.memory_bytes for device in self.devices], np.int64)

    @functools.cached_property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(_to_document(self), sort_keys=True).encode()).hexdigest()

    def __post_init__(self) -> None:
        count = self.num_devices
        if not 1 <= count <= MAX_DEVICES:
            raise InputError(f"cluster {self.name!r} has {count} devices; it must have from 1 to {MAX_DEVICES}")
        names = [device.name for device in self.devices]
        if len(set(names)) != count:
            raise InputError(f"cluster {self.name!r} has two devices of one name among {names}; give each its own")
        for device in self.devices:
            first = next(other for other in self.devices if other.kind == device.kind)
            if _speed(device) != _speed(first):
                raise InputError(
                    f"devices {first.name!r} and {device.name!r} of cluster {self.name!r} are both of kind {device.kind!r} but differ in speed; name two kinds"
                )
        for field in ("bandwidth_bytes_per_s", "latency_s", "channel"):
            if getattr(self, field).shape != (count, count):
                raise InputError(
                    f"{field} of cluster {self.name!r} has shape {getattr(self, field).shape}; it must be ({count}, {count}), a value per ordered pair of devices"
                )
        pairs = ~np.eye(count, dtype=bool)
        if not (self.bandwidth_bytes_per_s[pairs] > 0).all():
            raise InputError(
                f"cluster {self.name!r} has a link without a positive bandwidth_bytes_per_s; every ordered pair of devices needs one"
            )
        if not ((self.latency_s[pairs] >= 0) & (self.latency_s[pairs] < np.inf)).all():
            raise InputError(f"cluster {self.name!r} has a link whose latency_s is not a finite number of at least 0")
        if not ((self.channel[pairs] >= self.NO_CHANNEL) & (self.channel[pairs] < self.num_channels)).all():
            raise InputError(f"cluster {self.name!r} has a link whose channel is outside -1..{self.num_channels - 1}")
        for array in (self.bandwidth_bytes_per_s, self.latency_s, self.channel):
            array.flags.writeable = False


def _speed(device: Device) -> tuple[object, ...]:
    return dict(device.flops_per_s), device.memory_bytes_per_s, device.op_overhead_s


_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _DeviceDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1, max_length=200)]
    kind: Annotated[str, Field(min_length=1, max_length=200)]
    memory_bytes: Annotated[int, Field(ge=0, le=2**60)]
    flops_per_s: dict[str, _Positive]
    memory_bytes_per_s: _Positive
    op_overhead_s: _NotNegative = 0.0


class _LinkDocument(BaseModel):
    """A link carries transfers in both directions, `from` -> `to` alone when `one_way`."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    source: Annotated[str, Field(alias="from")]
    destination: Annotated[str, Field(alias="to")]
    bandwidth_bytes_per_s: _Positive
    latency_s: _NotNegative
    channel: str | None = None
    one_way: bool = False


class _ClusterDocument(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    format: Annotated[int, Field(alias="schema", ge=1, le=1)] = 1
    name: Annotated[str, Field(min_length=1, max_length=200)]
    devices: Annotated[list[_DeviceDocument], Field(min_length=1, max_length=MAX_DEVICES)]
    links: Annotated[list[_LinkDocument], Field(max_length=MAX_DEVICES**2)] = []


def read_cluster(path: Path) -> Cluster:
    """Reads a cluster from YAML (format: docs/formats.md).

    Every ordered pair of devices needs exactly one link; links that name the same `channel` contend, a link without one has unlimited parallel transfers.
    Raises `InputError` when the file is missing or wrong.
    """
    data = read_bounded(path, what="the cluster file", advice="name a YAML file or a preset", max_bytes=MAX_FILE_BYTES)
    try:
        raw = parse_yaml(data.decode("utf-8"))
    except ValueError as error:
        raise InputError(f"the cluster file {path} is not YAML: {error}; see docs/formats.md") from error
    try:
        document = _ClusterDocument.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        text = first["type"] in ("float_type", "int_type") and isinstance(first["input"], str)
        hint = f", and {first['input']!r} is text: write it without quotes, an exponent with its sign (1.2e+10)" if text else ""
        raise InputError(f"the cluster file {path} is wrong at {place}: {first['msg']}{hint}; see docs/formats.md") from error
    try:
        return _from_document(document)
    except InputError as error:
        raise InputError(f"the cluster file {path} is wrong: {error}") from error


def presets() -> tuple[str, ...]:
    """Names of the bundled clusters (`conf/cluster/`)."""
    return tuple(sorted(path.stem for path in (bundled("conf") / "cluster").glob("*.yaml")))


def preset(name: str) -> Cluster:
    """A bundled cluster by name. Raises `InputError` that lists the names when there is none of this one."""
    if name not in presets():
        hint = nearest_name_hint(name, presets())
        raise InputError(
            f"there is no cluster preset {name!r}; {hint}the presets are {', '.join(presets())}, and a YAML file is a cluster, too"
        )
    return read_cluster(bundled("conf") / "cluster" / f"{name}.yaml")


def write_cluster(path: Path, cluster: Cluster) -> None:
    """Writes `cluster` as YAML that `read_cluster` reads back to an equal one."""
    write_text(path, yaml.safe_dump(_to_document(cluster), sort_keys=False, allow_unicode=True))


def _from_document(document: _ClusterDocument) -> Cluster:
    index = {device.name: number for number, device in enumerate(document.devices)}
    count = len(document.devices)
    bandwidth, latency = np.zeros((count, count)), np.zeros((count, count))
    channel = np.full((count, count), Cluster.NO_CHANNEL, np.int32)
    channels: dict[str, int] = {}
    linked = np.eye(count, dtype=bool)
    for link in document.links:
        for end in (link.source, link.destination):
            if end not in index:
                raise InputError(f"a link names the device {end!r}; the devices are {', '.join(index)}")
        pairs = [(index[link.source], index[link.destination])]
        if not link.one_way:
            pairs.append((pairs[0][1], pairs[0][0]))
        for pair in pairs:
            if linked[pair]:
                raise InputError(f"it gives the pair {link.source} -> {link.destination} twice; give every ordered pair one link")
            linked[pair] = True
            bandwidth[pair], latency[pair] = link.bandwidth_bytes_per_s, link.latency_s
            if link.channel is not None:
                channel[pair] = channels.setdefault(link.channel, len(channels))
    if not linked.all():
        source, destination = (int(axis[0]) for axis in np.nonzero(~linked))
        names = list(index)
        raise InputError(f"it has no link from {names[source]!r} to {names[destination]!r}; give every pair of devices one")
    return Cluster(
        name=document.name,
        devices=tuple(Device(**device.model_dump()) for device in document.devices),
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency,
        channel=channel,
        channel_name=tuple(channels),
    )


def _to_document(cluster: Cluster) -> dict[str, object]:
    links = [
        {
            "from": source.name,
            "to": destination.name,
            "bandwidth_bytes_per_s": float(cluster.bandwidth_bytes_per_s[i, j]),
            "latency_s": float(cluster.latency_s[i, j]),
            "channel": None if cluster.channel[i, j] == cluster.NO_CHANNEL else cluster.channel_name[cluster.channel[i, j]],
            "one_way": True,
        }
        for i, source in enumerate(cluster.devices)
        for j, destination in enumerate(cluster.devices)
        if i != j
    ]
    devices = [
        {
            "name": device.name,
            "kind": device.kind,
            "memory_bytes": int(device.memory_bytes),
            "flops_per_s": {key: float(value) for key, value in device.flops_per_s.items()},
            "memory_bytes_per_s": float(device.memory_bytes_per_s),
            "op_overhead_s": float(device.op_overhead_s),
        }
        for device in cluster.devices
    ]
    return {"schema": 1, "name": cluster.name, "devices": devices, "links": links}
