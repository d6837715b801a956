"""A file of measurements that survives the run: one line of JSON each, synced as it is written, so that a killed run measures nothing twice."""

import dataclasses
import fcntl
import hashlib
import json
import os
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Int32
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gdp.atomic_file import append
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, Objective, Status, measurement_document, measurement_of
from gdp.plain_json import parse_json

MAX_FILE_BYTES = 2**32
"""The most bytes of a journal that are read."""

Key = str
"""sha256 of graph, cluster and placement."""

_Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, lt=2**62)]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """A placement and what was measured of it."""

    device: Int32[np.ndarray, " ops"]
    measurement: Measurement


class _Line(BaseModel):
    """Times are `null` where they are infinite."""

    model_config = ConfigDict(extra="forbid", strict=True)

    graph: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    cluster: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    device: list[Annotated[int, Field(ge=0, lt=2**31)]]
    status: Annotated[int, Field(ge=0, le=max(Status))]
    detail: str
    step_time_s: _Seconds | None
    step_time_low_s: _Seconds | None
    step_time_high_s: _Seconds | None
    num_runs: Annotated[int, Field(ge=0, lt=2**31)]
    bottleneck_s: _Seconds | None
    peak_memory_bytes: list[_Count]
    busy_s: list[_Seconds]
    num_transfers: Annotated[int, Field(ge=0, lt=2**31)]
    transferred_bytes: _Count


class Journal:
    """The measurements in the file at `path`, which is made when it is not there; a context manager that closes it.

    A last line that was cut off by a crash is dropped. Raises `InputError` when another line is wrong, or when another process has the file open.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not path.is_file():
                raise InputError(f"the journal {path} is not a regular file; name another file")
            self._file = open(path, "a+b", buffering=0)
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise InputError(f"cannot open the journal {str(path)!r}: {error}; name a file that can be written") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise InputError(f"the journal {path} is in use by another run; wait for it, or name another file") from error
        try:
            self._entries = self._read()
        except InputError:
            self._file.close()
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        self._file.close()

    def find(self, key: Key) -> Measured | None:
        """What was measured of the placement with this key."""
        entry = self._entries.get(key)
        return None if entry is None else entry[1]

    def append(self, graph: Graph, cluster: Cluster, measured: Measured) -> None:
        """Adds a measurement; when this returns, it is on the disk."""
        line = _Line(
            graph=graph.sha256,
            cluster=cluster.sha256,
            device=measured.device.tolist(),
            **measurement_document(measured.measurement),
        )
        append(self._file, json.dumps(line.model_dump(), allow_nan=False).encode() + b"\n")
        os.fsync(self._file.fileno())
        self._entries[key_of(graph, cluster, measured.device)] = (cluster.sha256 + graph.sha256, measured)

    def incumbent(self, graph: Graph, cluster: Cluster) -> Measured | None:
        """The placement of this graph on this cluster that a runtime goes on to time others against: the first that could run, then each that was surely faster than the one
        before it. Not the one of least time, which is one that was lucky. None when none could run."""
        own = [measured for of, measured in self._entries.values() if of == cluster.sha256 + graph.sha256]
        for measured in own:
            if len(measured.device) != graph.num_ops or len(measured.measurement.busy_s) != cluster.num_devices:
                raise InputError(
                    f"the journal {self._path} has a placement of {len(measured.device)} ops on {len(measured.measurement.busy_s)} devices for a graph of "
                    f"{graph.num_ops} ops on {cluster.num_devices}; move the file away"
                )
        incumbent: Measured | None = None
        for measured in own:
            if succeeds(measured.measurement, incumbent):
                incumbent = measured
        return incumbent

    def _read(self) -> dict[Key, tuple[str, Measured]]:
        size = os.fstat(self._file.fileno()).st_size
        if size > MAX_FILE_BYTES:
            raise InputError(f"the journal {self._path} has {size} bytes; at most {MAX_FILE_BYTES} are read: move the file away")
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            self._file.truncate(whole)
        entries: dict[Key, tuple[str, Measured]] = {}
        for number, text in enumerate(content[:whole].splitlines(), start=1):
            try:
                line = _Line.model_validate(parse_json(text))
                wrong = _contradiction(line)
                if wrong:
                    raise InputError(f"line {number} of the journal {self._path} is wrong: {wrong}; move the file away")
            except ValidationError as error:
                first = error.errors()[0]
                place = ".".join(str(part) for part in first["loc"]) or "the top level"
                raise InputError(
                    f"line {number} of the journal {self._path} is wrong at {place}: {first['msg']}; move the file away"
                ) from error
            except ValueError as error:
                if isinstance(error, InputError):
                    raise
                raise InputError(f"line {number} of the journal {self._path} is not JSON: {error}; move the file away") from error
            device = np.array(line.device, np.int32)
            entries[_key(line.graph, line.cluster, device)] = (
                line.cluster + line.graph,
                Measured(device=device, measurement=measurement_of(line.model_dump())),
            )
        return entries


def best_of(measured: list[Measured], objective: Objective) -> Measured | None:
    """The placement with the lowest objective among those that could run, the earliest of equals."""
    ran = [each for each in measured if each.measurement.status == Status.OK]
    return min(ran, key=lambda each: each.measurement.objective_s(objective), default=None)


def succeeds(measurement: Measurement, incumbent: Measured | None) -> bool:
    """Whether later placements are timed against this one: it runs, and is surely faster than the incumbent, if there is one."""
    return measurement.status == Status.OK and (incumbent is None or measurement.step_time_high_s < incumbent.measurement.step_time_s)


def key_of(graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " ops"]) -> Key:
    """Names a placement of a graph on a cluster."""
    return _key(graph.sha256, cluster.sha256, device)


def _key(graph: str, cluster: str, device: np.ndarray) -> Key:
    return hashlib.sha256(f"{graph}{cluster}".encode() + np.ascontiguousarray(device, "<i4").tobytes()).hexdigest()


def _contradiction(line: _Line) -> str:
    """What in a line contradicts itself; empty when nothing does."""
    if len(line.peak_memory_bytes) != len(line.busy_s):
        return f"it has {len(line.busy_s)} values of busy_s but {len(line.peak_memory_bytes)} of peak_memory_bytes"
    times = (line.step_time_s, line.step_time_low_s, line.step_time_high_s, line.bottleneck_s)
    if line.status != Status.OK:
        return "" if times == (None,) * 4 else f"the placement could not run, but has the times {times}"
    if not line.step_time_s or line.bottleneck_s is None:
        return f"the placement could run, but its step_time_s is {line.step_time_s} and its bottleneck_s {line.bottleneck_s}"
    low, high = line.step_time_low_s, line.step_time_high_s
    if line.step_time_s < 1e-12 or low is None or not low <= line.step_time_s <= (np.inf if high is None else high):
        return f"a step time of {line.step_time_s} s cannot lie in the interval from {low} to {high} s"
    if not line.device or max(line.device) >= len(line.busy_s):
        return f"the placement could run, but not all of its ops are on the {len(line.busy_s)} devices"
    return ""
