"""The values a program runs on, and whether two runs gave the same ones."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind

from gdp.runtime.rounding import MULTIPLE_OF_ROUNDING, ROUNDING, TOLERANCE

_UPDATES = (OutputKind.PARAMETER_MUTATION, OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION)


def program_values(program: torch.export.ExportedProgram, flat_inputs: Sequence[Any], *, generator: torch.Generator) -> dict[str, Any]:
    """A value for every placeholder of `program` by its FX node name: its own parameters, buffers and constants, and the given inputs.

    What is on the meta device gets random values: the time of a step does not depend on them.
    """
    state = {**program.state_dict, **program.constants}
    inputs = iter(flat_inputs)
    values: dict[str, Any] = {}
    for spec in program.graph_signature.input_specs:
        value = next(inputs) if spec.kind is InputKind.USER_INPUT else state[spec.target or ""]
        values[spec.arg.name] = _real(value.detach(), generator) if isinstance(value, torch.Tensor) else value
    return values


def _real(value: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The tensor on the host. A meta tensor becomes: matrices scaled so that magnitudes are kept from layer to layer, vectors around 1, integers 0."""
    if value.device.type != "meta":
        return value.cpu()
    if not value.dtype.is_floating_point:
        return torch.zeros(value.shape, dtype=value.dtype)
    if value.dim() < 2:
        random = torch.rand(value.shape, generator=generator) + 0.5
    else:
        random = torch.randn(value.shape, generator=generator) * (2 / max(1, value[0].numel())) ** 0.5
    return random.to(value.dtype)


def on_host(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Makes ops that name a device for their result (meta, or the GPU that the program was captured on) name the host, in place; returns the program."""
    for node in program.graph.nodes:
        if isinstance(node.kwargs.get("device"), torch.device):
            node.kwargs = {**node.kwargs, "device": torch.device("cpu")}
    program.graph_module.recompile()
    return program


def disturbed(value: Any, generator: torch.Generator) -> Any:
    """The value, every other one of its real numbers made smaller by about a rounding error of its precision, so that what is a probability stays one."""
    if not isinstance(value, torch.Tensor) or _name(value.dtype) not in ROUNDING:
        return value
    smaller = torch.randint(0, 2, value.shape, generator=generator)
    return (value * (1 - smaller * ROUNDING[_name(value.dtype)])).to(value.dtype)


def start_of_outputs(program: torch.export.ExportedProgram, values: Mapping[str, Any]) -> list[Any]:
    """For each output of `program` that is the next value of a parameter, a buffer or an input, the present one in `values`; else None."""
    signature = program.graph_signature
    given = {spec.target or spec.arg.name: spec.arg.name for spec in signature.input_specs}
    return [values[given[str(spec.target)]] if spec.kind in _UPDATES else None for spec in signature.output_specs]


def allowed_differences(reference: Sequence[Any], near: Sequence[Any], start: Sequence[Any], near_start: Sequence[Any]) -> list[float]:
    """How far each output may lie from that of the reference.

    Args:
        reference: the outputs of the unplaced program.
        near: its outputs from values that were changed by about a rounding error (`disturbed`). Where that alone changes much (an optimiser's slot for a gradient that is nothing
            but rounding, as of a bias before batch norm), as much is allowed, times `MULTIPLE_OF_ROUNDING`.
        start: for outputs that update a value, the value before, else None: the tolerance is then relative to the largest change, not to the value, which a step hardly moves.
        near_start: the same of the changed values.
    """
    return [_allowed(*each) if isinstance(each[0], torch.Tensor) else 0.0 for each in zip(reference, near, start, near_start, strict=True)]


def _allowed(expected: torch.Tensor, near: torch.Tensor, start: torch.Tensor | None, near_start: torch.Tensor | None) -> float:
    tolerance, finite = TOLERANCE.get(_name(expected.dtype), 0.0), torch.isfinite(_wide(expected))
    wide, moved = _wide(expected), _wide(expected)
    shift = _wide(near) - wide
    if start is not None and near_start is not None:
        moved, shift = wide - _wide(start), shift - (_wide(near_start) - _wide(start))
    allowed = tolerance * _largest(moved[finite]) + (0.0 if start is None else 1e-3 * tolerance * _largest(wide[finite]))
    return allowed + MULTIPLE_OF_ROUNDING * _largest(shift[torch.isfinite(shift)])


def difference(outputs: Sequence[Any], reference: Sequence[Any], allowed: Sequence[float] | None = None) -> str:
    """Empty when all outputs are those of the reference, within what is `allowed` (`allowed_differences`; without it, tolerances by dtype); else where the largest difference
    is and how large."""
    worst = _Difference(excess=1.0, text="")
    for number, (output, expected) in enumerate(zip(outputs, reference, strict=True)):
        if not isinstance(expected, torch.Tensor):
            if output != expected:
                return f"output {number} is {output!r} instead of {expected!r}"
            continue
        output = output.to(expected.device)
        if output.shape != expected.shape or output.dtype != expected.dtype:
            return f"output {number} is {output.dtype}{list(output.shape)} instead of {expected.dtype}{list(expected.shape)}"
        if not expected.numel() or torch.equal(output, expected):
            continue
        most = _allowed(expected, expected, None, None) if allowed is None else allowed[number]
        finite = torch.isfinite(_wide(expected))
        if not torch.equal(torch.isfinite(_wide(output)), finite) or not torch.equal(_kinds(output[~finite]), _kinds(expected[~finite])):
            return f"output {number} is finite, infinite or no number in other places"
        gap = _largest(_minus(output[finite], expected[finite]))
        excess = gap / most if most else float("inf") if gap else 0.0
        if excess > worst.excess:
            worst = _Difference(excess=excess, text=f"output {number} by up to {gap:.3g}, where {most:.3g} is allowed")
    return worst.text


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _minus(output: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The difference, of whole numbers exactly."""
    is_whole = not (output.is_floating_point() or output.is_complex())
    return _wide(output.to(torch.int64) - expected.to(torch.int64)) if is_whole else _wide(output) - _wide(expected)


def _largest(values: torch.Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _kinds(values: torch.Tensor) -> torch.Tensor:
    """Infinities by their signs, and 0 for what is no number; of complex values both parts."""
    values = _wide(values)
    return torch.nan_to_num(torch.view_as_real(values) if values.is_complex() else values, nan=0.0).sign()


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Difference:
    excess: float
    text: str
