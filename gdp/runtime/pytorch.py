"""Step times of a PyTorch program on real devices: sets of CPU cores and GPUs.

A worker process runs the program (worker.py), so that nothing a placement does can end the run; measuring.py says how its times become measurements on one scale.
"""

import io
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
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
from gdp.runtime.timing import Comparison, Protocol
from gdp.runtime.torch_operators import refuse_unknown_operators

_ENVIRONMENT = {
    # a device's thread sets its own number of threads; no other thread shall have helpers
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # compiling stays in the worker, which ends when it must, and on the cores of the device
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


class PyTorchRuntime:
    """A `Runtime` over a worker process; a context manager that ends it.

    `program` is functional (`gdp.capture.torch.capture` makes such ones); the names of its nodes are the op names of the graphs that are run. What it draws at random is the same
    in every step (`random_draws`).
    `example_args` and `example_kwargs` are what it was exported with. Parameters and inputs on the meta device get random values.
    `compiled` runs every piece through `torch.compile`: a placement of many pieces then takes minutes before it is timed, and `profile` still times ops one by one.
    `timeout_s` bounds each measurement; `incumbent`, measured by an earlier run, continues its scale; the worker may take `memory_share` of the machine's free memory.

    Devices are those of the cluster, by name: sets of CPU cores (`cpu:0`, `cpu:0-3`) and `cuda:0`. CPU devices share memory, so a transfer between them costs only the
    hand-over of a reference. Peak memory is that of GPUs, of which a placement may take what the cluster says there is; it is 0 on CPU devices.

    Raises `InputError` for programs and devices that cannot be run for real.
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
        compiled: bool = False,
        memory_share: float = 1.0,
    ) -> None:
        flat, structure = torch.utils._pytree.tree_flatten((example_args, dict(example_kwargs or {})))
        if structure != program.call_spec.in_spec:
            raise InputError(
                f"the example inputs are {structure}, but the program was exported with {program.call_spec.in_spec}; give those"
            )
        refuse_unknown_operators(program)
        self._worker = RestartingWorker("gdp.runtime.worker", environment=_ENVIRONMENT, timeout_s=timeout_s, memory_share=memory_share)
        program_path, inputs_path = self._worker.folder / "program.pt2", self._worker.folder / "inputs.pt"
        try:
            with writing(self._worker.folder), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program_path.write_bytes(_saved(program))
                inputs = io.BytesIO()
                torch.save([value.detach() if isinstance(value, torch.Tensor) else value for value in flat], inputs)
                inputs_path.write_bytes(inputs.getbuffer())
        except BaseException:
            self._worker.close()
            raise
        self._worker.loads({"program": str(program_path), "inputs": str(inputs_path), "seed": 0, "compiled": compiled})
        nodes = {node.name for node in program.graph.nodes}
        self._measuring = Measuring(self._worker, nodes=nodes, check_device=cores_of, protocol=protocol, incumbent=incumbent)

    def __enter__(self) -> "PyTorchRuntime":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the worker and removes its files."""
        self._worker.close()

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        """Measures one placement."""
        return self._measuring.measure(graph, cluster, placement)

    def against(self, graph: Graph, cluster: Cluster, placement: Placement, incumbent: Measured | None) -> Measurement:
        """Measures one placement on the scale of an incumbent; see `Measuring.against`."""
        return self._measuring.against(graph, cluster, placement, incumbent)

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch ops"]) -> MeasurementBatch:
        """Measures one placement after the other."""
        return self._measuring.batch(graph, cluster, device)

    def compare(
        self, graph: Graph, cluster: Cluster, candidate: Placement, incumbent: Placement, *, num_pairs: int = 48
    ) -> Comparison | None:
        """Times two placements in turn; see `Measuring.compare`."""
        return self._measuring.compare(graph, cluster, candidate, incumbent, num_pairs=num_pairs)

    def compare_with_all_cores(self, graph: Graph, cluster: Cluster, candidate: Placement, *, num_pairs: int = 48) -> Comparison | None:
        """Times a placement in turn with the unplaced program on all CPU cores; see `Measuring.compare_with_all_cores`."""
        return self._measuring.compare_with_all_cores(graph, cluster, candidate, num_pairs=num_pairs)

    def profile(self, graph: Graph, cluster: Cluster, *, num_steps: int = 15) -> dict[str, Float64[np.ndarray, " ops"]]:
        """Measures every op on the first device of each kind; see `Measuring.profile`."""
        return self._measuring.profile(graph, cluster, num_steps=num_steps)

    @property
    def worker_pid(self) -> int | None:
        """Process number of the worker; none before the first measurement and after a failure."""
        return self._worker.pid


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
