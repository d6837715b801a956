"""Several measuring processes side by side: each has devices of its own, as good as the others', and measures one placement at a time.

Where a machine has twice the devices of the cluster, it measures twice as many placements in the same time. A seat is a runtime and the names of the devices it measures on.
A placement is timed in turn with the incumbent, both on the same seat: so its time, which is the ratio of the two times the incumbent's, is on one scale whatever seat it fell to,
and what a busy neighbour takes of memory's bandwidth slows both. The incumbent stays the same for all placements of a batch, so that what a batch gives does not hang on who
finishes first.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from queue import SimpleQueue
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int32

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch, stack
from gdp.placement import Origin, Placement
from gdp.runtime.core_sets import cores_of
from gdp.runtime.fingerprint import gpu
from gdp.runtime.journal import Measured, succeeds


@runtime_checkable
class TimesAgainst(Protocol):
    """What a seat's runtime does, as `PyTorchRuntime` and `TensorFlowRuntime` do."""

    def against(self, graph: Graph, cluster: Cluster, placement: Placement, incumbent: Measured | None) -> Measurement:
        """Measures a placement on the scale of the incumbent; see `Measuring.against`."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Seat:
    """A runtime that nobody else uses, and where it measures."""

    runtime: TimesAgainst
    devices: tuple[str, ...]
    """names, in the order of the cluster's devices."""


class Pool:
    """A `Runtime` over `seats`; `incumbent`, measured by an earlier run, continues its scale.

    Raises `InputError` when seats share devices, or have other devices than the first one (`check_seats`).
    """

    def __init__(self, seats: Sequence[Seat], *, incumbent: Measured | None = None) -> None:
        check_seats([seat.devices for seat in seats])
        self._free: SimpleQueue[Seat] = SimpleQueue()
        for seat in seats:
            self._free.put(seat)
        self._num_seats = len(seats)
        self._given_incumbent = incumbent
        self._incumbent: dict[tuple[str, str], Measured] = {}

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        """Measures one placement."""
        return next(measurement for _, measurement in self.each(graph, cluster, placement.device[np.newaxis]))

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        """Measures as many placements at a time as there are seats."""
        measured = dict(self.each(graph, cluster, device))
        return stack([measured[row] for row in range(len(device))])

    def each(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> Iterator[tuple[int, Measurement]]:
        """Measures placements and yields each row with its measurement as it comes. The first that runs, which all times hang on, is measured with nobody beside it.

        Raises `InputError` as the seats' runtimes do; what is being measured then, or when the caller stops, is awaited, and what was not begun is not.
        """
        key, origin = (graph.sha256, cluster.sha256), Origin(placer="batch")
        incumbent = self._incumbent.get(key, self._given_incumbent)

        def measured(row: int) -> tuple[int, Measurement]:
            seat = self._free.get()
            try:
                placement = Placement(device=device[row].copy(), origin=origin)
                return row, seat.runtime.against(graph, _on(cluster, seat.devices), placement, incumbent)
            finally:
                self._free.put(seat)

        rows = list(range(len(device)))
        while rows and incumbent is None:
            row, measurement = measured(rows.pop(0))
            if succeeds(measurement, None):
                incumbent = self._incumbent[key] = Measured(device=device[row].copy(), measurement=measurement)
            yield row, measurement
        ran: dict[int, Measurement] = {}
        for row, measurement in _as_they_come(measured, rows, self._num_seats):
            ran[row] = measurement
            yield row, measurement
        for row in sorted(ran):
            if succeeds(ran[row], self._incumbent.get(key, incumbent)):
                self._incumbent[key] = Measured(device=device[row].copy(), measurement=ran[row])


def check_seats(devices: Sequence[Sequence[str]]) -> None:
    """Raises `InputError` unless every seat's devices are like those of the first seat, one by one, and nobody else's."""
    owner: dict[str, str] = {}
    for names in devices:
        if len(names) != len(devices[0]):
            raise InputError(f"{list(names)} are {len(names)} devices to measure on beside the cluster's {len(devices[0])}; name as many")
        for name, first in zip(names, devices[0], strict=True):
            if _makeup(name) != _makeup(first):
                raise InputError(
                    f"{name!r} is not like {first!r}, whose part it is to take: {_makeup(name)}, not {_makeup(first)}; name one that is"
                )
            for part in [f"core {core}" for core in cores_of(name)] or [name]:
                if part in owner:
                    raise InputError(f"devices {owner[part]!r} and {name!r} to measure on side by side share {part}; give each its own")
                owner[part] = name


def measured_each(
    runtime: Callable[[Graph, Cluster, Placement], Measurement], graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]
) -> Iterator[tuple[int, Measurement]]:
    """Every row with its measurement as it comes: side by side by a pool, one after the other by another runtime."""
    if isinstance(runtime, Pool):
        yield from runtime.each(graph, cluster, device)
        return
    origin = Origin(placer="batch")
    for row in range(len(device)):
        yield row, runtime(graph, cluster, Placement(device=device[row].copy(), origin=origin))


def _as_they_come(
    measured: Callable[[int], tuple[int, Measurement]], rows: Sequence[int], at_once: int
) -> Iterator[tuple[int, Measurement]]:
    threads = ThreadPoolExecutor(at_once, thread_name_prefix="seat")
    try:
        futures: list[Future[tuple[int, Measurement]]] = [threads.submit(measured, row) for row in rows]
        for future in as_completed(futures):
            yield future.result()
    finally:
        threads.shutdown(cancel_futures=True)


def _on(cluster: Cluster, names: Sequence[str]) -> Cluster:
    """The cluster with its devices called so."""
    devices = tuple(dataclasses.replace(device, name=name) for device, name in zip(cluster.devices, names, strict=True))
    return dataclasses.replace(cluster, devices=devices)


def _makeup(name: str) -> str:
    """What a device is, for people: two of the same take the same time."""
    cores = cores_of(name)
    if cores:
        return f"{len(cores)} core" + "s" * (len(cores) > 1)
    found = gpu(int(name.partition(":")[2]))
    return f"{found['model']} with {found['memory']}"
