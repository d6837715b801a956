"""Step times of a TensorFlow program on real devices: sets of CPU cores as logical devices, and GPUs.

A worker process runs the program (tensorflow_worker.py, tensorflow_session.py); measuring.py says how its times become measurements on one scale.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32

from gdp.atomic_file import writing
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch
from gdp.placement import Placement
from gdp.runtime.core_sets import cores_of
from gdp.runtime.journal import Measured
from gdp.runtime.measuring import Measuring
from gdp.runtime.restarting import RestartingWorker
from gdp.runtime.tensorflow_program import FlatProgram, write_program
from gdp.runtime.timing import Comparison, Protocol

_ENVIRONMENT = {
    "TF_OVERRIDE_GLOBAL_THREADPOOL": "1",  # each device its own threads for the parts of an op
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


class TensorFlowRuntime:
    """A `Runtime` over a worker process; a context manager that ends it.

    `program` is flat (`gdp.capture.tensorflow_lowering.lower` makes such ones); the names of its nodes are the op names of the graphs that are run. `example_inputs` are values of
    its inputs, in order. A step is everything the graph holds, updates of variables, too; each measurement starts from the variables' values of now.
    `timeout_s` bounds each measurement; `incumbent`, measured by an earlier run, continues its scale; the worker may take `memory_share` of the machine's free memory.

    Devices are those of the cluster, by name: sets of CPU cores (`cpu:0`, `cpu:0-3`), all of them with as many cores, and `cuda:0`. CPU devices share memory, so a transfer
    between them is the hand-over of a reference. Peak memory is not measured. Raises `InputError` for programs and devices that cannot be run for real.
    """

    def __init__(
        self,
        program: FlatProgram,
        example_inputs: Sequence[Any],
        *,
        timeout_s: float = 120.0,
        protocol: Protocol | None = None,
        incumbent: Measured | None = None,
        memory_share: float = 1.0,
    ) -> None:
        self._worker = RestartingWorker(
            "gdp.runtime.tensorflow_worker", environment=_ENVIRONMENT, timeout_s=timeout_s, memory_share=memory_share
        )
        graph_path, values_path = self._worker.folder / "program.pb", self._worker.folder / "values.npz"
        try:
            with writing(self._worker.folder):
                nodes = write_program(program, example_inputs, graph_path, values_path)
        except BaseException:
            self._worker.close()
            raise
        self._worker.loads({"program": str(graph_path), "values": str(values_path), "seed": 0})
        self._measuring = Measuring(self._worker, nodes=nodes, check_device=_check_device, protocol=protocol, incumbent=incumbent)

    def __enter__(self) -> "TensorFlowRuntime":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker and removes its files."""
        self._worker.close()

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        """Measures one placement."""
        _check_sizes(cluster)
        return self._measuring.measure(graph, cluster, placement)

    def against(self, graph: Graph, cluster: Cluster, placement: Placement, incumbent: Measured | None) -> Measurement:
        """Measures one placement on the scale of an incumbent; see `Measuring.against`."""
        _check_sizes(cluster)
        return self._measuring.against(graph, cluster, placement, incumbent)

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        """Measures one placement after the other."""
        _check_sizes(cluster)
        return self._measuring.batch(graph, cluster, device)

    def compare(
        self, graph: Graph, cluster: Cluster, candidate: Placement, incumbent: Placement, *, num_pairs: int = 48
    ) -> Comparison | None:
        """Times two placements in turn; see `Measuring.compare`."""
        _check_sizes(cluster)
        return self._measuring.compare(graph, cluster, candidate, incumbent, num_pairs=num_pairs)

    def compare_with_all_cores(self, graph: Graph, cluster: Cluster, candidate: Placement, *, num_pairs: int = 48) -> Comparison | None:
        """Times a placement in turn with the unplaced program, as TensorFlow runs it on all CPU cores of the cluster; see `Measuring.compare_with_all_cores`."""
        _check_sizes(cluster)
        return self._measuring.compare_with_all_cores(graph, cluster, candidate, num_pairs=num_pairs)

    def profile(self, graph: Graph, cluster: Cluster, *, num_steps: int = 15) -> dict[str, Float64[np.ndarray, " ops"]]:
        """Measures every op on the first device of each kind; see `Measuring.profile`."""
        _check_sizes(cluster)
        return self._measuring.profile(graph, cluster, num_steps=num_steps)

    @property
    def worker_pid(self) -> int | None:
        """Process number of the worker; none before the first measurement and after a failure."""
        return self._worker.pid


def _check_device(name: str) -> None:
    """Raises `InputError` unless TensorFlow programs can be run on the device of this name."""
    if name.startswith("cuda:"):
        import tensorflow as tf

        count = len(tf.config.list_physical_devices("GPU"))
        if not name[5:].isdecimal() or int(name[5:]) >= count:
            raise InputError(f"device {name!r} is not there: TensorFlow sees {count} GPUs on this machine; choose among them")
        return
    if not name.startswith("cpu:"):
        raise InputError(
            f"{name!r} is not a device that TensorFlow programs run on: name sets of cores like 'cpu:0' or 'cpu:0-3', or 'cuda:0'; "
            "devices that are only simulated have no real timing"
        )
    cores_of(name)


def _check_sizes(cluster: Cluster) -> None:
    """Raises `InputError` when the sets of cores differ in size: the devices of a session have one number of threads."""
    sizes = {device.name: len(cores_of(device.name)) for device in cluster.devices if device.name.startswith("cpu:")}
    if len(set(sizes.values())) > 1:
        raise InputError(
            f"the CPU devices of cluster {cluster.name!r} have {', '.join(f'{size} ({name})' for name, size in sizes.items())} cores, but TensorFlow gives all its "
            "CPU devices the same number of threads; name sets of as many cores each"
        )
