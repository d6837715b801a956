"""The simulator as a `Runtime`: the rule of `specification.py`, compiled, and bit-equal to it.

Many placements of one graph are simulated at a time, on `num_threads` threads without the GIL. What depends on the graph and the cluster
alone is prepared once and kept.
"""

import dataclasses
import os
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from threading import Lock

import numpy as np
from jaxtyping import Float64, Int32

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch, Status
from gdp.placement import Placement
from gdp.runtime.event_kernel import simulate_rows
from gdp.runtime.event_log import EventLog, event_log, timeline_of_log
from gdp.runtime.event_queue import PRIORITY, PROGRAM_ORDER, READY_ORDER
from gdp.runtime.plan import plan_of
from gdp.runtime.scratch import lent_scratch
from gdp.runtime.verdict import Dispatch, check_rank, invalid_detail, out_of_memory_detail

_DISPATCH = {"ready_order": READY_ORDER, "program_order": PROGRAM_ORDER, "priority": PRIORITY}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Simulator:
    """Simulates steps by the rule of `specification.py` (docs/simulator.md explains it).

    A placement that does not fit into memory has infinite times; its peaks, busy times and transfers are those of a step on devices with memory enough.
    Raises `InputError` when the ranks do not suit the graph, or when times overflow.
    """

    dispatch: Dispatch = "ready_order"
    """which of its ready ops a device takes."""
    rank: Float64[np.ndarray, " ops"] | None = None
    """for `priority` alone: a number per op, the highest goes first."""
    with_timeline: bool = False
    """whether a call also returns the timeline; a batch never does."""
    num_threads: int = 1
    """threads for a batch."""

    def __post_init__(self) -> None:
        if self.dispatch not in _DISPATCH:
            raise InputError(f"there is no dispatch {self.dispatch!r}; choose one of {', '.join(_DISPATCH)}")
        if self.num_threads < 1:
            raise InputError(f"num_threads is {self.num_threads}; it must be at least 1")

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        """One simulated step."""
        device = placement.device[np.newaxis]
        if not self.with_timeline:
            return self.batch(graph, cluster, device)[0]
        log = event_log(graph.num_ops, graph.num_edges, cluster.num_devices)
        measurement = self._run(graph, cluster, device, log)[0]
        if measurement.status == Status.INVALID:
            return measurement
        return dataclasses.replace(measurement, timeline=timeline_of_log(log, plan_of(graph, cluster)))

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch placed"]) -> MeasurementBatch:
        """Simulated steps of many placements; row `i` of `device` holds the device index of every op. No timelines."""
        return self._run(graph, cluster, device, None)

    def _run(self, graph: Graph, cluster: Cluster, device: np.ndarray, log: EventLog | None) -> MeasurementBatch:
        check_rank(graph, self.dispatch, self.rank)
        plan = plan_of(graph, cluster)
        batch = len(device)
        status = np.full(batch, Status.INVALID, np.int8)
        step_time_s, bottleneck_s = np.full(batch, np.inf), np.full(batch, np.inf)
        peak = np.zeros((batch, cluster.num_devices), np.int64)
        busy_s = np.zeros((batch, cluster.num_devices))
        num_transfers, transferred = np.zeros(batch, np.int32), np.zeros(batch, np.int64)
        results = (status, step_time_s, bottleneck_s, peak, busy_s, num_transfers, transferred)
        priority = np.zeros(0) if self.rank is None else -self.rank

        device = np.ascontiguousarray(device)
        threads = min(self.num_threads, batch)
        pieces, taking = _pieces(batch, threads), Lock()

        def simulate() -> None:
            with lent_scratch(plan) as scratch:
                while True:
                    with taking:
                        rows = next(pieces, None)
                    if rows is None:
                        return
                    simulate_rows(
                        plan, device[rows], _DISPATCH[self.dispatch], priority, *(result[rows] for result in results), scratch, log
                    )

        if device.shape[1] == graph.num_ops:
            others = [_kept_threads(os.getpid(), self.num_threads - 1).submit(simulate) for _ in range(threads - 1)]
            try:
                simulate()
            finally:
                with taking:
                    pieces.close()
                wait(others)
            for other in others:
                other.result()
        ok = status == Status.OK
        over = ok & (peak > cluster.memory_bytes).any(axis=1)
        status[over] = Status.OUT_OF_MEMORY
        step_time_s[over] = bottleneck_s[over] = np.inf
        detail = [""] * batch
        for row in np.flatnonzero(status != Status.OK).tolist():
            detail[row] = out_of_memory_detail(cluster, peak[row]) if over[row] else invalid_detail(graph, cluster, device[row])
        return MeasurementBatch(
            status=status,
            detail=tuple(detail),
            step_time_s=step_time_s,
            step_time_low_s=step_time_s,
            step_time_high_s=step_time_s,
            num_runs=np.ones(batch, np.int32),
            bottleneck_s=bottleneck_s,
            peak_memory_bytes=peak,
            busy_s=busy_s,
            num_transfers=num_transfers,
            transferred_bytes=transferred,
        )


@cache
def _kept_threads(process: int, count: int) -> ThreadPoolExecutor:  # a process made by fork has none of its parent's threads
    """Threads that wait from batch to batch: on a virtual machine it takes half a millisecond to start one, a quarter to wake one."""
    return ThreadPoolExecutor(count, thread_name_prefix="simulator")


def _pieces(count: int, threads: int) -> Generator[slice]:
    """`range(count)` cut for threads that take a piece whenever they have none: large pieces first, single rows last, so that none waits long for another.

    Guided self-scheduling (Polychronopoulos & Kuck 1987), at half its size, since rows of a batch differ in how long they take. One thread gets one piece.
    """
    start = 0
    while start < count:
        stop = count if threads == 1 else start + -(-(count - start) // (2 * threads))
        yield slice(start, stop)
        start = stop
