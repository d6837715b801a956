"""The records of a simulated step."""

import numpy as np
from jaxtyping import Float64, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Measurement, Status, Timeline
from gdp.runtime.verdict import out_of_memory_detail


def invalid_measurement(cluster: Cluster, detail: str) -> Measurement:
    """The measurement of a placement that is none, for the reason in `detail`: infinite times, and zeros."""
    nothing = np.zeros(cluster.num_devices)
    return _measurement(Status.INVALID, detail, np.inf, np.inf, nothing.astype(np.int64), nothing, 0, 0, None)


def measurement_of(
    graph: Graph,
    cluster: Cluster,
    *,
    step_time_s: float,
    busy_s: list[float],
    occupied_s: list[float],
    timeline: Timeline,
) -> Measurement:
    """The measurement of the step in `timeline`, with the seconds that devices ran and channels carried.

    Where its peaks do not fit, the times are infinite, and the rest says what would have been.
    """
    peak = np.array([held.max() for held in timeline.memory_bytes], np.int64)
    detail = out_of_memory_detail(cluster, peak)
    bottleneck_s = max(busy_s + occupied_s)
    if detail:
        step_time_s = bottleneck_s = np.inf
    num_bytes = int(graph.tensor_bytes[timeline.transfer_tensor].sum())
    status = Status.OUT_OF_MEMORY if detail else Status.OK
    return _measurement(
        status, detail, step_time_s, bottleneck_s, peak, np.array(busy_s), len(timeline.transfer_tensor), num_bytes, timeline
    )


def timeline_of(
    op_start_s: list[float],
    op_end_s: list[float],
    transfers: list[tuple[int, int, int, float, float]],
    memory: list[list[tuple[float, int]]],
) -> Timeline:
    """The timeline with the given transfers (tensor, source, destination, start, end) and, per device, moments with the bytes in use from then on."""
    transfers = sorted(transfers)
    return Timeline(
        op_start_s=np.array(op_start_s, np.float64),
        op_end_s=np.array(op_end_s, np.float64),
        transfer_tensor=np.array([transfer[0] for transfer in transfers], np.int32),
        transfer_source=np.array([transfer[1] for transfer in transfers], np.int32),
        transfer_destination=np.array([transfer[2] for transfer in transfers], np.int32),
        transfer_start_s=np.array([transfer[3] for transfer in transfers], np.float64),
        transfer_end_s=np.array([transfer[4] for transfer in transfers], np.float64),
        memory_time_s=tuple(np.array([moment for moment, _ in log], np.float64) for log in memory),
        memory_bytes=tuple(np.array([held for _, held in log], np.int64) for log in memory),
    )


def _measurement(
    status: Status,
    detail: str,
    step_time_s: float,
    bottleneck_s: float,
    peak_memory_bytes: Int64[np.ndarray, " devices"],
    busy_s: Float64[np.ndarray, " devices"],
    num_transfers: int,
    transferred_bytes: int,
    timeline: Timeline | None,
) -> Measurement:
    return Measurement(
        status=status,
        detail=detail,
        step_time_s=step_time_s,
        step_time_low_s=step_time_s,
        step_time_high_s=step_time_s,
        num_runs=1,
        bottleneck_s=bottleneck_s,
        peak_memory_bytes=peak_memory_bytes,
        busy_s=busy_s,
        num_transfers=num_transfers,
        transferred_bytes=transferred_bytes,
        timeline=timeline,
    )
