"""The runtime that really runs a model: PyTorch's or TensorFlow's, as its program is of the one or the other."""

from gdp.capture.tensorflow_program import TensorFlowProgram
from gdp.cli.model import Model
from gdp.errors import InputError
from gdp.runtime.journal import Measured
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.tensorflow import TensorFlowRuntime
from gdp.runtime.timing import Protocol

MeasuredRuntime = PyTorchRuntime | TensorFlowRuntime


def measured_runtime(
    model: Model,
    *,
    timeout_s: float = 120.0,
    protocol: Protocol | None = None,
    incumbent: Measured | None = None,
    compiled: bool = False,
    memory_share: float = 1.0,
) -> MeasuredRuntime:
    """A runtime for a model with a program (`refuse_other_programs`); a context manager that ends its worker. `compiled` is for PyTorch programs alone."""
    if isinstance(model.program, TensorFlowProgram):
        assert not compiled, "refused with the configuration"
        lowered, inputs = model.program.lowered, model.program.example_inputs
        return TensorFlowRuntime(lowered, inputs, timeout_s=timeout_s, protocol=protocol, incumbent=incumbent, memory_share=memory_share)
    assert model.program is not None
    return PyTorchRuntime(
        model.program,
        model.example_inputs,
        timeout_s=timeout_s,
        protocol=protocol,
        incumbent=incumbent,
        compiled=compiled,
        memory_share=memory_share,
    )


def refuse_other_programs(model: Model, kind: str) -> None:
    """Raises `InputError` when the model has no program that the runtime of this kind could run: `pytorch` or `tensorflow`."""
    if model.program is None:
        raise InputError(
            f"runtime={kind} runs a program, but the workload is a graph alone ({model.graph.source}); "
            "name FILE.py:FUNCTION that returns (module, example inputs), a TrainingStep or a TensorFlowProgram, or use runtime=simulator"
        )
    own = "tensorflow" if isinstance(model.program, TensorFlowProgram) else "pytorch"
    if own != kind:
        raise InputError(f"runtime={kind} cannot run {model.graph.source!r}, which is a {own} program; use runtime={own}")
