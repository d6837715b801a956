"""What every runtime that really runs a program does, whatever framework runs it.

All times of one graph and cluster are on one scale: a placement is timed in turn with the incumbent, the fastest one so far, and its time is the median ratio of the two times
the incumbent's time on that scale; the first placement measured, timed alone, anchors it. A machine that gets slower in between changes no ratio. A placement that is surely
faster than the incumbent is timed once more, and that second time counts: the first one was chosen for being low, and a scale that hung on such times would sink with
every new incumbent. It is the next incumbent when it is surely faster again, which is what `Journal.incumbent` goes by.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Float64, Int32
from pydantic import BaseModel

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import CONTROL, Graph
from gdp.measurement import Measurement, MeasurementBatch, Status, stack
from gdp.placement import Origin, Placement
from gdp.runtime.answers import Profile, Steps, checked
from gdp.runtime.core_sets import cores_of
from gdp.runtime.gpu_identity import gpu_identity
from gdp.runtime.journal import Measured, succeeds
from gdp.runtime.process import ChildFailed
from gdp.runtime.restarting import Devices, RestartingWorker
from gdp.runtime.timing import Comparison, Protocol, compare_times, in_two_looks, median_interval
from gdp.runtime.verdict import invalid_detail

_PAIR_TIMEOUT_S = 30.0
"""Time for one pair of steps of a comparison, beside the time for everything before."""

SPREAD_S = 1.5
"""What the pairs of a measurement are spread over, at least, where no protocol says otherwise (`Protocol.spread_s`)."""

_VERDICT_SPREADS = 4
"""The pairs of a verdict, and those that make a new incumbent, are spread over so many times as long as those of a measurement."""


_Answer = TypeVar("_Answer", bound=BaseModel)


class Measuring:
    """Measures placements of one program by asking a worker; the part that a runtime of any framework is made of.

    `nodes` are the names of the program's ops. `check_device` takes the name of a device and raises `InputError` where programs of this framework cannot run on it.
    The worker answers the requests `measure` and `profile` as `gdp.runtime.worker.Bench` does.
    """

    def __init__(
        self,
        worker: RestartingWorker,
        *,
        nodes: Collection[str],
        check_device: Callable[[str], object],
        protocol: Protocol | None,
        incumbent: Measured | None,
    ) -> None:
        self._worker = worker
        self._nodes = nodes
        self._check_device = check_device
        self._protocol = protocol or Protocol(spread_s=SPREAD_S)
        self._incumbent: dict[tuple[str, str], Measured] = {}
        self._given_incumbent = incumbent
        self._num_measured = 0

    def measure(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        """Measures one placement."""
        key = (graph.sha256, cluster.sha256)
        incumbent = self._incumbent.get(key, self._given_incumbent)
        measurement = self.against(graph, cluster, placement, incumbent)
        if succeeds(measurement, incumbent):
            self._incumbent[key] = Measured(device=placement.device, measurement=measurement)
        return measurement

    def against(self, graph: Graph, cluster: Cluster, placement: Placement, incumbent: Measured | None) -> Measurement:
        """Measures one placement in turn with the incumbent, on the scale of its time; alone where there is none. Twice, when it seems faster."""
        self._device_names(cluster)
        self._check_graph(graph)
        broken = invalid_detail(graph, cluster, placement.device)
        if broken:
            return _not_run(cluster, Status.INVALID, broken)
        try:
            measurement = self._timed(graph, cluster, placement, incumbent)
            if incumbent is not None and succeeds(measurement, incumbent):
                measurement = self._timed(graph, cluster, placement, incumbent, longer=True)
        except ChildFailed as failure:
            return _not_run(cluster, failure.status, failure.detail)
        return measurement

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        """Measures one placement after the other."""
        origin = Origin(placer="batch")
        return stack([self.measure(graph, cluster, Placement(device=row.copy(), origin=origin)) for row in device])

    def compare(self, graph: Graph, cluster: Cluster, candidate: Placement, incumbent: Placement, *, num_pairs: int) -> Comparison | None:
        """Times two placements in turn, `num_pairs` times however long that takes, for a final verdict, and four times as often in all where that leaves it too noisy
        to tell. None when one of them turned out not to run.

        The answer is awaited for the worker's `timeout_s` (loading, checking, warming up), and `_PAIR_TIMEOUT_S` more for every pair.
        Raises `InputError` when a placement does not fit the graph or the cluster.
        """
        names = self._device_names(cluster)
        self._check_graph(graph)
        for which, placement in (("first", candidate), ("second", incumbent)):
            broken = invalid_detail(graph, cluster, placement.device)
            if broken:
                raise InputError(f"the {which} placement cannot be compared: {broken}")
        both = {"candidate": candidate.device.tolist(), "incumbent": incumbent.device.tolist()}
        return in_two_looks(lambda count: self._in_turn(graph, names, both, num_pairs=count), num_pairs=num_pairs)

    def compare_with_all_cores(self, graph: Graph, cluster: Cluster, candidate: Placement, *, num_pairs: int) -> Comparison | None:
        """Times a placement in turn with the unplaced program on all CPU cores of the cluster as one device, where every op may use all of them: what a user has without
        any placement. `None` when the cluster has fewer than two CPU devices, or when one of the two could not run to the end."""
        names = self._device_names(cluster)
        self._check_graph(graph)
        cpus = [cores_of(name) for name in names if name.startswith("cpu:")]
        if len(cpus) < 2:
            return None
        whole = f"cpu:{','.join(map(str, sorted(core for cores in cpus for core in cores)))}"
        both = {"candidate": candidate.device.tolist(), "incumbent": None, "unplaced_on": whole}
        seen = self._in_turn(graph, names, both, num_pairs=num_pairs)
        return None if seen is None else compare_times(*seen)

    def profile(self, graph: Graph, cluster: Cluster, *, num_steps: int) -> dict[str, Float64[np.ndarray, " ops"]]:
        """Measures every op on the first device of each kind: seconds for `Graph.with_measured_time`. Ops that do no work by the graph's account take 0.

        Raises `InputError` when the program cannot run on one of the devices.
        """
        names = self._device_names(cluster)
        self._check_graph(graph)
        op_time_s = {}
        for kind in cluster.kinds:
            name = next(name for name, device in zip(names, cluster.devices, strict=True) if device.kind == kind)
            request = {"command": "profile", "device": name, "num_steps": num_steps, "max_time_s": self._worker.timeout_s / 4}
            try:
                op_s = self._asked(Profile, graph, names, request).op_s
            except ChildFailed as failure:
                raise InputError(f"the program cannot be profiled on device {name!r}: {failure.detail}") from failure
            seconds = np.array([op_s.get(op, 0.0) for op in graph.name], np.float64)
            op_time_s[kind] = np.where(graph.works, seconds, 0.0)
        return op_time_s

    def _timed(
        self, graph: Graph, cluster: Cluster, placement: Placement, incumbent: Measured | None, *, longer: bool = False
    ) -> Measurement:
        """One measurement by the protocol, on the scale of the incumbent; spread over as long as a verdict where `longer`. Raises `ChildFailed`, also when the placement takes
        more of a device's memory than the cluster grants."""
        protocol = self._protocol
        if longer:
            spread_s = _VERDICT_SPREADS * protocol.spread_s
            protocol = dataclasses.replace(protocol, spread_s=spread_s, max_time_s=protocol.max_time_s + spread_s)
        both = {
            "candidate": placement.device.tolist(),
            "incumbent": None if incumbent is None else incumbent.device.tolist(),
        }
        answer = self._steps(graph, [device.name for device in cluster.devices], both, protocol)
        for device, peak_bytes in zip(cluster.devices, answer.peak_memory_bytes, strict=True):
            if peak_bytes > device.memory_bytes:
                over = f"it takes {peak_bytes} bytes on device {device.name}, {peak_bytes - device.memory_bytes} more than there are"
                raise ChildFailed(Status.OUT_OF_MEMORY, over)
        candidate_s, incumbent_s = answer.candidate_s, answer.incumbent_s
        if incumbent is None:
            interval = median_interval(candidate_s)
            step_time_s, low_s, high_s = interval.median, interval.low, interval.high
        else:
            seen = compare_times(candidate_s, incumbent_s)
            step_time_s, low_s, high_s = (ratio * incumbent.measurement.step_time_s for ratio in (seen.ratio, seen.low, seen.high))
        busy_s = np.array(answer.busy_s, np.float64) * (step_time_s / float(np.median(candidate_s)))
        num_transfers, transferred_bytes = _transfers(graph, placement.device)
        return Measurement(
            status=Status.OK,
            detail="",
            step_time_s=step_time_s,
            step_time_low_s=low_s,
            step_time_high_s=high_s,
            num_runs=len(candidate_s),
            bottleneck_s=float(busy_s.max()),
            peak_memory_bytes=np.array(answer.peak_memory_bytes, np.int64),
            busy_s=busy_s,
            num_transfers=num_transfers,
            transferred_bytes=transferred_bytes,
        )

    def _in_turn(
        self, graph: Graph, names: list[str], both: Mapping[str, Any], *, num_pairs: int
    ) -> tuple[list[float], list[float]] | None:
        """The step times of both in so many pairs; None when one of them did not run to the end."""
        protocol = dataclasses.replace(
            self._protocol,
            max_pairs=num_pairs,
            precision=0.0,
            clearly_slower=np.inf,
            max_time_s=np.inf,
            spread_s=_VERDICT_SPREADS * self._protocol.spread_s,
        )
        try:
            answer = self._steps(graph, names, both, protocol, timeout_s=self._worker.timeout_s + num_pairs * _PAIR_TIMEOUT_S)
        except ChildFailed:
            return None
        return answer.candidate_s, answer.incumbent_s

    def _steps(
        self, graph: Graph, names: list[str], both: Mapping[str, Any], protocol: Protocol, *, timeout_s: float | None = None
    ) -> Steps:
        """The worker's answer to `measure`; who goes first is drawn anew every time. Raises `ChildFailed`."""
        self._num_measured += 1
        protocol = dataclasses.replace(protocol, seed=protocol.seed + self._num_measured)
        request = {"command": "measure", "devices": names, **both, "protocol": dataclasses.asdict(protocol)}
        return self._asked(Steps, graph, names, request, timeout_s=timeout_s)

    def _asked(
        self, kind: type[_Answer], graph: Graph, names: list[str], request: Mapping[str, Any], *, timeout_s: float | None = None
    ) -> _Answer:
        """The worker's answer, of this kind, to a request about devices of these names. Raises `ChildFailed`."""
        cores = [core for name in names if name.startswith("cpu:") for core in cores_of(name)]
        gpus = [gpu_identity(int(name.partition(":")[2])) for name in names if not name.startswith("cpu:")]
        answer = self._worker.ask_about(graph.name, Devices(cores=tuple(cores), gpus=tuple(gpus)), request, timeout_s=timeout_s)
        try:
            return checked(kind, answer, request)
        except ChildFailed:
            self._worker.end()
            raise

    def _check_graph(self, graph: Graph) -> None:
        unknown = [name for name in graph.name if name not in self._nodes]
        if unknown:
            raise InputError(
                f"the graph from {graph.source!r} has the op {unknown[0]!r}, which the program has not; run the graph that was captured from this program"
            )

    def _device_names(self, cluster: Cluster) -> list[str]:
        """The names of the cluster's devices, all of which are there and distinct."""
        owner: dict[int, str] = {}
        for device in cluster.devices:
            self._check_device(device.name)
            for core in cores_of(device.name) if device.name.startswith("cpu:") else ():
                if owner.setdefault(core, device.name) != device.name:
                    raise InputError(
                        f"devices {owner[core]!r} and {device.name!r} of cluster {cluster.name!r} share core {core}; give each its own cores"
                    )
        return [device.name for device in cluster.devices]


def _transfers(graph: Graph, device: np.ndarray) -> tuple[int, int]:
    """How many tensors cross to another device, once per destination, and their bytes."""
    crossing = device[graph.edge_producer] != device[graph.edge_consumer]
    carries = np.array([dtype != CONTROL for dtype in graph.tensor_dtype], bool)
    crossing &= carries[graph.edge_tensor]
    pairs = np.unique(np.stack([graph.edge_tensor[crossing], device[graph.edge_consumer[crossing]]]), axis=1)
    return pairs.shape[1], int(graph.tensor_bytes[pairs[0]].sum())


def _not_run(cluster: Cluster, status: Status, detail: str) -> Measurement:
    return Measurement(
        status=status,
        detail=detail,
        step_time_s=np.inf,
        step_time_low_s=np.inf,
        step_time_high_s=np.inf,
        num_runs=0,
        bottleneck_s=np.inf,
        peak_memory_bytes=np.zeros(cluster.num_devices, np.int64),
        busy_s=np.zeros(cluster.num_devices),
        num_transfers=0,
        transferred_bytes=0,
    )
