"""Step times of a PyTorch program on real devices: sets of CPU cores and GPUs.

A worker process runs the program (worker.py), so that nothing a placement does can end the run. All times of one graph and cluster are on one scale: a placement is timed in
turn with the incumbent, the fastest one so far, and its time is the median ratio of the two times the incumbent's time on that scale; the first placement measured, timed
alone, anchors it. A machine that gets slower in between changes no ratio. A placement that seems faster than the incumbent is timed once more, and that second time counts:
the first one was chosen for being low, and a scale that hung on such times would sink with every new incumbent.
"""

import dataclasses
import io
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int32

from gdp.atomic_file import writing
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import CONTROL, Graph
from gdp.measurement import Measurement, MeasurementBatch, Status, stack
from gdp.placement import Origin, Placement
from gdp.runtime.executor import cores_of
from gdp.runtime.journal import Measured
from gdp.runtime.pieces import random_ops
from gdp.runtime.process import Child, ChildFailed
from gdp.runtime.timing import Comparison, Protocol, compare_times, median_interval
from gdp.runtime.verdict import invalid_detail

_ENVIRONMENT = {
    # a device's thread sets its own number of threads; no other thread shall have helpers
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}

_PAIR_TIMEOUT_S = 30.0
"""Time for one pair of steps of a comparison, beside the time for everything before."""

_START_TIMEOUT_S = 300.0
"""Time for a fresh worker to import torch, load the program and run it once."""


class PyTorchRuntime:
    """A `Runtime` over a worker process; a context manager that ends it.

    `program` is functional (`gdp.capture.torch.capture` makes such ones) and draws no random numbers; the names of its nodes are the op names of the graphs that are run.
    `example_args` and `example_kwargs` are what it was exported with. Parameters and inputs on the meta device get random values.
    `timeout_s` bounds each measurement; `incumbent`, measured by an earlier run, continues its scale.

    Devices are those of the cluster, by name: sets of CPU cores (`cpu:0`, `cpu:0-3`) and `cuda:0`. CPU devices share memory, so a transfer between them costs only the
    hand-over of a reference. Peak memory is not measured. Raises `InputError` for programs and devices that cannot be run for real.
    """

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        example_args: tuple[Any, ...],
        example_kwargs: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = 120.0,
        protocol: Protocol | None = None,
        incumbent: Measured | None = None,
    ) -> None:
        drawing = random_ops(program)
        if drawing:
            raise InputError(
                f"op {drawing[0]!r} of the program draws random numbers, so its outputs cannot be checked; export the module in evaluation mode, or with dropout 0"
            )
        flat, structure = torch.utils._pytree.tree_flatten((example_args, dict(example_kwargs or {})))
        if structure != program.call_spec.in_spec:
            raise InputError(
                f"the example inputs are {structure}, but the program was exported with {program.call_spec.in_spec}; give those"
            )
        self._nodes = {node.name for node in program.graph.nodes}
        self._timeout_s = timeout_s
        self._protocol = protocol or Protocol()
        self._incumbent: dict[tuple[str, str], Measured] = {}
        self._given_incumbent = incumbent
        self._child: Child | None = None
        self._loaded_ops: tuple[str, ...] = ()
        self._folder = Path(tempfile.mkdtemp(prefix="gdp-"))
        try:
            with writing(self._folder), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                (self._folder / "program.pt2").write_bytes(_saved(program))
                inputs = io.BytesIO()
                torch.save([value.detach() if isinstance(value, torch.Tensor) else value for value in flat], inputs)
                (self._folder / "inputs.pt").write_bytes(inputs.getbuffer())
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __enter__(self) -> "PyTorchRuntime":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker and removes its files."""
        self._end_child()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        """Measures one placement."""
        names = self._device_names(cluster)
        self._check_graph(graph)
        broken = invalid_detail(graph, cluster, placement.device)
        if broken:
            return _not_run(cluster, Status.INVALID, broken)
        key = (graph.sha256, cluster.sha256)
        if self._given_incumbent is not None:
            self._incumbent.setdefault(key, self._given_incumbent)
        incumbent = self._incumbent.get(key)
        try:
            measurement = self._timed(graph, names, placement, incumbent)
            if incumbent is None:
                self._incumbent[key] = Measured(device=placement.device, measurement=measurement)
            elif measurement.step_time_high_s < incumbent.measurement.step_time_s:
                measurement = self._timed(graph, names, placement, incumbent)
                if measurement.step_time_s < incumbent.measurement.step_time_s:
                    self._incumbent[key] = Measured(device=placement.device, measurement=measurement)
        except ChildFailed as failure:
            return _not_run(cluster, failure.status, failure.detail)
        return measurement

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        """Measures one placement after the other."""
        origin = Origin(placer="batch")
        return stack([self(graph, cluster, Placement(device=row.copy(), origin=origin)) for row in device])

    def compare(
        self, graph: Graph, cluster: Cluster, candidate: Placement, incumbent: Placement, *, num_pairs: int = 48
    ) -> Comparison | None:
        """Times two placements in turn, `num_pairs` times however long that takes, for a final verdict, and four times as often in all where that leaves it too noisy
        to tell. None when one of them turned out not to run.

        The answer is awaited for `timeout_s` (loading, checking, warming up), and `_PAIR_TIMEOUT_S` more for every pair.
        Raises `InputError` when a placement does not fit the graph or the cluster.
        """
        names = self._device_names(cluster)
        self._check_graph(graph)
        for which, placement in (("first", candidate), ("second", incumbent)):
            broken = invalid_detail(graph, cluster, placement.device)
            if broken:
                raise InputError(f"the {which} placement cannot be compared: {broken}")
        both = candidate.device.tolist(), incumbent.device.tolist()
        seen = self._in_turn(graph, names, *both, num_pairs=num_pairs)
        if seen is None or compare_times(*seen).verdict != "too_noisy":
            return None if seen is None else compare_times(*seen)
        more = self._in_turn(graph, names, *both, num_pairs=3 * num_pairs)
        return None if more is None else compare_times(seen[0] + more[0], seen[1] + more[1])

    def compare_with_all_cores(self, graph: Graph, cluster: Cluster, candidate: Placement, *, num_pairs: int = 48) -> Comparison | None:
        """Times a placement in turn with the unplaced program on all CPU cores of the cluster as one device, where every op may use all of them: what a user has without
        any placement. `None` when the cluster has fewer than two CPU devices, or when one of the two could not run to the end."""
        names = self._device_names(cluster)
        self._check_graph(graph)
        cores = sorted(core for name in names for core in cores_of(name))
        if sum(bool(cores_of(name)) for name in names) < 2:
            return None
        whole = f"cpu:{','.join(map(str, cores))}"
        seen = self._in_turn(graph, [*names, whole], candidate.device.tolist(), [len(names)] * graph.num_ops, num_pairs=num_pairs)
        return None if seen is None else compare_times(*seen)

    def _timed(self, graph: Graph, names: list[str], placement: Placement, incumbent: Measured | None) -> Measurement:
        """One measurement by the protocol, on the scale of the incumbent. Raises `ChildFailed`."""
        answer = self._ask_about(
            graph,
            {
                "command": "measure",
                "devices": names,
                "candidate": placement.device.tolist(),
                "incumbent": None if incumbent is None else incumbent.device.tolist(),
                "protocol": dataclasses.asdict(self._protocol),
            },
        )
        candidate_s, incumbent_s = answer["candidate_s"], answer["incumbent_s"]
        if incumbent is None:
            interval = median_interval(candidate_s)
            step_time_s, low_s, high_s = interval.median, interval.low, interval.high
        else:
            seen = compare_times(candidate_s, incumbent_s)
            step_time_s, low_s, high_s = (ratio * incumbent.measurement.step_time_s for ratio in (seen.ratio, seen.low, seen.high))
        busy_s = np.array(answer["busy_s"], np.float64) * (step_time_s / float(np.median(candidate_s)))
        num_transfers, transferred_bytes = _transfers(graph, placement.device)
        return Measurement(
            status=Status.OK,
            detail="",
            step_time_s=step_time_s,
            step_time_low_s=low_s,
            step_time_high_s=high_s,
            num_runs=len(candidate_s),
            bottleneck_s=float(busy_s.max()),
            peak_memory_bytes=np.zeros(len(names), np.int64),
            busy_s=busy_s,
            num_transfers=num_transfers,
            transferred_bytes=transferred_bytes,
        )

    def _in_turn(
        self, graph: Graph, names: list[str], candidate: list[int], incumbent: list[int], *, num_pairs: int
    ) -> tuple[list[float], list[float]] | None:
        """The step times of both in so many pairs; None when one of them did not run to the end."""
        protocol = dataclasses.replace(self._protocol, max_pairs=num_pairs, precision=0.0, clearly_slower=np.inf, max_time_s=np.inf)
        request = {
            "command": "measure",
            "devices": names,
            "candidate": candidate,
            "incumbent": incumbent,
            "protocol": dataclasses.asdict(protocol),
        }
        try:
            answer = self._ask_about(graph, request, timeout_s=self._timeout_s + num_pairs * _PAIR_TIMEOUT_S)
        except ChildFailed:
            return None
        return answer["candidate_s"], answer["incumbent_s"]

    def profile(self, graph: Graph, cluster: Cluster, *, num_steps: int = 15) -> dict[str, Float64[np.ndarray, " ops"]]:
        """Measures every op on the first device of each kind: seconds for `Graph.with_measured_time`. Ops that do no work by the graph's account take 0.

        Raises `InputError` when the program cannot run on one of the devices.
        """
        names = self._device_names(cluster)
        self._check_graph(graph)
        op_time_s = {}
        for kind in cluster.kinds:
            name = next(name for name, device in zip(names, cluster.devices, strict=True) if device.kind == kind)
            request = {"command": "profile", "device": name, "num_steps": num_steps, "max_time_s": self._timeout_s / 4}
            try:
                answer = self._ask_about(graph, request)
            except ChildFailed as failure:
                raise InputError(f"the program cannot be profiled on device {name!r}: {failure.detail}") from failure
            seconds = np.array([answer["op_s"].get(op, 0.0) for op in graph.name], np.float64)
            op_time_s[kind] = np.where(graph.works, seconds, 0.0)
        return op_time_s

    @property
    def worker_pid(self) -> int | None:
        """Process number of the worker; none before the first measurement and after a failure."""
        return None if self._child is None else self._child.pid

    def _ask_about(self, graph: Graph, request: Mapping[str, Any], *, timeout_s: float | None = None) -> dict[str, Any]:
        """The worker's answer, from a fresh worker if need be. Raises `ChildFailed`."""
        if self._child is None or self._loaded_ops != graph.name:
            self._end_child()
            environment = {**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
            self._child = Child([sys.executable, "-m", "gdp.runtime.worker", str(self._folder)], environment=environment)
            program, inputs = (str(self._folder / name) for name in ("program.pt2", "inputs.pt"))
            self._ask(
                {"command": "load", "program": program, "inputs": inputs, "ops": list(graph.name), "seed": 0},
                timeout_s=max(self._timeout_s, _START_TIMEOUT_S),
            )
            self._loaded_ops = graph.name
        return self._ask(request, timeout_s=self._timeout_s if timeout_s is None else timeout_s)

    def _ask(self, request: Mapping[str, Any], *, timeout_s: float) -> dict[str, Any]:
        assert self._child is not None
        try:
            answer = self._child.ask(request, timeout_s=timeout_s)
        except ChildFailed as failure:
            self._end_child()
            advice = "; a slow program needs a larger timeout_s" if failure.status == Status.TIMED_OUT else ""
            raise ChildFailed(failure.status, failure.detail + advice) from failure
        except BaseException:
            self._end_child()
            raise
        for key, status in (("failed", Status.FAILED), ("out_of_memory", Status.OUT_OF_MEMORY)):
            if key in answer:
                self._end_child()
                raise ChildFailed(status, str(answer[key]))
        return answer

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

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
            for core in cores_of(device.name):
                if owner.setdefault(core, device.name) != device.name:
                    raise InputError(
                        f"devices {owner[core]!r} and {device.name!r} of cluster {cluster.name!r} share core {core}; give each its own cores"
                    )
        return [device.name for device in cluster.devices]


def _saved(program: torch.export.ExportedProgram) -> memoryview:
    """The program as a file, made in memory, because torch has its own errors for a disk that is full."""
    text = next((result for result in program.graph.output_node().args[0] if isinstance(result, str)), None)
    if text is not None:
        raise InputError(
            f"the program returns the text {text[:40]!r} among its outputs, which cannot be handed to a measuring process; return tensors"
        )
    data = io.BytesIO()
    try:
        torch.export.save(program, data)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"torch cannot save the program, which measuring it needs ({reason}); measure one without such values") from error
    return data.getbuffer()


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
