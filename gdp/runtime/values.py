"""The values a program runs on, and whether two runs gave the same ones."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export.graph_signature import InputKind

_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-3,
    torch.float16: 2e-2,
    torch.bfloat16: 5e-2,
    torch.complex64: 1e-3,
    torch.complex128: 1e-9,
}
"""Largest difference allowed, by dtype, relative to the largest magnitude of the tensor: room for other summation orders, none for a wrong cut."""

_ROUNDINGS = 8.0
"""How many rounding errors `disturbed` changes a value by."""

_MULTIPLE_OF_DISTURBED = 10.0
"""How many times as far as the outputs for disturbed values an output may lie from the reference."""


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


def disturbed(values: Mapping[str, Any], *, generator: torch.Generator) -> dict[str, Any]:
    """The values, their real numbers changed by a few rounding errors of their precision, up or down; all else as it is."""

    def one(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dtype not in _TOLERANCE:
            return value
        sign = torch.randint(0, 2, value.shape, generator=generator) * 2 - 1
        return (value * (1 + sign * (_ROUNDINGS * torch.finfo(value.dtype).eps))).to(value.dtype)

    return {name: one(value) for name, value in values.items()}


def difference(outputs: Sequence[Any], reference: Sequence[Any], near: Sequence[Any] | None = None) -> str:
    """Empty when all outputs are those of the reference, within tolerances by dtype; else where the largest difference is and how large.

    `near` are the outputs of the reference for `disturbed` values. Where rounding alone changes much (the gradient of a bias before batch norm is nothing else, and Adam divides it
    by its magnitude), as much is allowed, times `_MULTIPLE_OF_DISTURBED`.
    """
    worst = _Difference(excess=1.0, text="")
    for number, (output, expected, beside) in enumerate(zip(outputs, reference, reference if near is None else near, strict=True)):
        if not isinstance(expected, torch.Tensor):
            if output != expected:
                return f"output {number} is {output!r} instead of {expected!r}"
            continue
        output = output.to(expected.device)
        if output.shape != expected.shape or output.dtype != expected.dtype:
            return f"output {number} is {output.dtype}{list(output.shape)} instead of {expected.dtype}{list(expected.shape)}"
        if not expected.numel() or torch.equal(output, expected):
            continue
        finite = torch.isfinite(expected)
        if not torch.equal(torch.isfinite(output), finite):
            return f"output {number} is finite in other places"
        if not finite.any():
            continue
        tolerance = _TOLERANCE.get(expected.dtype, 0.0)
        wide = torch.complex128 if expected.is_complex() else torch.float64
        output, expected, beside = (each.to(wide) for each in (output, expected, beside))
        sure = finite & torch.isfinite(beside)
        gap = float((output[finite] - expected[finite]).abs().max())
        allowed = tolerance * float(expected[finite].abs().max())
        if sure.any():
            allowed += _MULTIPLE_OF_DISTURBED * float((beside[sure] - expected[sure]).abs().max())
        excess = gap / allowed if allowed else float("inf") if gap else 0.0
        if excess > worst.excess:
            worst = _Difference(excess=excess, text=f"output {number} by up to {gap:.3g}, where {allowed:.3g} is allowed")
    return worst.text


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Difference:
    excess: float
    text: str
