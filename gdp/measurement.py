"""What is known of a placement after it ran, in a simulator or on real devices."""

import dataclasses
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float64, Int8, Int32, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.placement import Placement

_TIMES = ("step_time_s", "step_time_low_s", "step_time_high_s", "bottleneck_s")

Objective = Literal["step_time", "bottleneck"]
"""What is minimised: seconds from the start of a step to its end, or the busy time of the busiest device or channel (time per step when steps are pipelined)."""


class Status(IntEnum):
    """How a run ended. Only `OK` has times."""

    OK = 0
    OUT_OF_MEMORY = 1
    INVALID = 2
    """the placement breaks a colocation group or names a device that is not there."""
    FAILED = 3
    """the program raised, or its outputs differ from those of the unplaced program."""
    TIMED_OUT = 4


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Timeline:
    """When everything happened in one step, in seconds from its start."""

    op_start_s: Float64[np.ndarray, " ops"]
    op_end_s: Float64[np.ndarray, " ops"]
    transfer_tensor: Int32[np.ndarray, " transfers"]
    transfer_source: Int32[np.ndarray, " transfers"]
    transfer_destination: Int32[np.ndarray, " transfers"]
    transfer_start_s: Float64[np.ndarray, " transfers"]
    transfer_end_s: Float64[np.ndarray, " transfers"]
    memory_time_s: tuple[Float64[np.ndarray, " _"], ...]
    """per device, the moments at which its memory use changes, ascending, the first one 0."""
    memory_bytes: tuple[Int64[np.ndarray, " _"], ...]
    """per device, bytes in use from each of those moments on."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Measurement:
    """One placement's step. Times are infinite unless `status` is `OK`."""

    status: Status
    detail: str
    """empty when `OK`, else a sentence: what went wrong, on which device, by how much."""
    step_time_s: float
    step_time_low_s: float
    step_time_high_s: float
    """95 % confidence interval of `step_time_s`; equal to it where nothing varies."""
    num_runs: int
    """how many runs the time was taken from; 1 for a simulation."""
    bottleneck_s: float
    peak_memory_bytes: Int64[np.ndarray, " devices"]
    """all zero where the runtime cannot tell."""
    busy_s: Float64[np.ndarray, " devices"]
    num_transfers: int
    transferred_bytes: int
    timeline: Timeline | None = None

    def objective_s(self, objective: Objective) -> float:
        """The number to minimise; infinite when the placement cannot run."""
        return self.step_time_s if objective == "step_time" else self.bottleneck_s

    def scaled(self, factor: float) -> "Measurement":
        """A prediction brought to the scale of measurements: every time by the factor, of 0 runs."""
        times = ("step_time_s", "step_time_low_s", "step_time_high_s", "bottleneck_s", "busy_s")
        return dataclasses.replace(self, **{name: getattr(self, name) * factor for name in times}, num_runs=0, timeline=None)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeasurementBatch:
    """Many placements of one graph on one cluster; row `i` is placement `i`. Times are infinite unless the status is `OK`."""

    status: Int8[np.ndarray, " batch"]
    detail: tuple[str, ...]
    step_time_s: Float64[np.ndarray, " batch"]
    step_time_low_s: Float64[np.ndarray, " batch"]
    step_time_high_s: Float64[np.ndarray, " batch"]
    num_runs: Int32[np.ndarray, " batch"]
    """runs each time was taken from; 0 for a row that was predicted, not run, by a runtime that both predicts and runs."""
    bottleneck_s: Float64[np.ndarray, " batch"]
    peak_memory_bytes: Int64[np.ndarray, "batch devices"]
    busy_s: Float64[np.ndarray, "batch devices"]
    num_transfers: Int32[np.ndarray, " batch"]
    transferred_bytes: Int64[np.ndarray, " batch"]

    def __len__(self) -> int:
        return len(self.status)

    def __getitem__(self, row: int) -> Measurement:
        return Measurement(
            status=Status(int(self.status[row])),
            detail=self.detail[row],
            step_time_s=float(self.step_time_s[row]),
            step_time_low_s=float(self.step_time_low_s[row]),
            step_time_high_s=float(self.step_time_high_s[row]),
            num_runs=int(self.num_runs[row]),
            bottleneck_s=float(self.bottleneck_s[row]),
            peak_memory_bytes=self.peak_memory_bytes[row],
            busy_s=self.busy_s[row],
            num_transfers=int(self.num_transfers[row]),
            transferred_bytes=int(self.transferred_bytes[row]),
        )

    def objective_s(self, objective: Objective) -> Float64[np.ndarray, " batch"]:
        """The numbers to minimise; infinite where the placement cannot run."""
        return self.step_time_s if objective == "step_time" else self.bottleneck_s


@runtime_checkable
class Runtime(Protocol):
    """Runs a graph under a placement, in simulation or for real. A placement that cannot run is a status, never an exception."""

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement: ...

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        """Runs many placements; row `i` of `device` holds the device index of every op."""
        ...


def stack(measurements: list[Measurement]) -> MeasurementBatch:
    """The batch whose rows are the given measurements (at least one); their timelines are dropped."""
    return MeasurementBatch(
        status=np.array([m.status for m in measurements], np.int8),
        detail=tuple(m.detail for m in measurements),
        step_time_s=np.array([m.step_time_s for m in measurements], np.float64),
        step_time_low_s=np.array([m.step_time_low_s for m in measurements], np.float64),
        step_time_high_s=np.array([m.step_time_high_s for m in measurements], np.float64),
        num_runs=np.array([m.num_runs for m in measurements], np.int32),
        bottleneck_s=np.array([m.bottleneck_s for m in measurements], np.float64),
        peak_memory_bytes=np.stack([m.peak_memory_bytes for m in measurements]),
        busy_s=np.stack([m.busy_s for m in measurements]),
        num_transfers=np.array([m.num_transfers for m in measurements], np.int32),
        transferred_bytes=np.array([m.transferred_bytes for m in measurements], np.int64),
    )


def measurement_document(measurement: Measurement) -> dict[str, Any]:
    """A measurement as JSON holds it: infinite times are null, the timeline is left out."""
    document: dict[str, Any] = {}
    for field in dataclasses.fields(Measurement):
        value = getattr(measurement, field.name)
        if field.name == "timeline":
            continue
        if isinstance(value, np.ndarray):
            value = value.tolist()
        elif field.name in _TIMES and not np.isfinite(value):
            value = None
        document[field.name] = int(value) if field.name == "status" else value
    return document


def measurement_of(document: Mapping[str, Any]) -> Measurement:
    """The measurement that `measurement_document` wrote; the caller has checked that every field is there."""
    fields = {field.name: document[field.name] for field in dataclasses.fields(Measurement) if field.name != "timeline"}
    times = {name: float("inf") if fields[name] is None else float(fields[name]) for name in _TIMES}
    arrays = {
        "peak_memory_bytes": np.array(fields["peak_memory_bytes"], np.int64),
        "busy_s": np.array(fields["busy_s"], np.float64),
    }
    return Measurement(**{**fields, **times, **arrays, "status": Status(fields["status"])})
