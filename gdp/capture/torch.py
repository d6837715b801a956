"""A PyTorch module and example inputs -> the graph of its forward step.

`torch.export` traces the program, which is then made functional (`run_decompositions` with an empty table: composite ops such as linear and attention stay whole, in-place ops
become plain ones). What follows from that, and what a runtime may rely on:

- Every node of the program that calls a function is an op under its own name, except `getitem`, which picks one output of an op and is no op itself: an edge
  leads from the picked tensor to the consumer. Of several outputs, those that nobody reads are left out.
- Every tensor among the user's inputs is an op of type `INPUT` that does no work, named after its placeholder.
- Parameters, buffers and constants are no ops. Their bytes are `param_bytes` of the first op that consumes them, and all their consumers share a colocation group, because one
  copy is kept. A buffer or constant that the program does not write, of at most `COPIED_STATE_BYTES`, is copied to every consumer instead.
- A view of a colocated parameter or buffer stays with its consumers, too. An op that computes the next value of a buffer or of an input stays with what reads the present one.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from gdp.capture.exported import graph_of
from gdp.capture.torch_tracing import clean, not_captured, quiet_tracing
from gdp.errors import InputError
from gdp.graph import Graph


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Captured:
    """A program and its graph."""

    graph: Graph
    program: ExportedProgram
    """functional, with the module's own parameters; its node names are the graph's op names."""


def capture(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Captured:
    """The graph of `module(*args, **kwargs)`, forward only, without gradients, in the mode (training or evaluation) that the module is in.

    Module and inputs may be on the meta device, where they have shapes and no values: costs are the same, and no weights are needed.

    Raises:
        InputError: when the inputs do not fit `forward`, when the program cannot be exported, when it branches or loops on values of tensors, and when it computes nothing.
    """
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    given = dict(kwargs or {})
    try:
        inspect.signature(module.forward).bind(*args, **given)
    except TypeError as error:
        raise InputError(f"the example inputs do not fit {name}.forward: {error}; give one value per required argument") from error
    try:
        with quiet_tracing(gradients=False):
            program = torch.export.export(module, args, given, strict=False).run_decompositions({})
    except (Exception, SystemExit) as error:
        raise not_captured(name, error) from error
    clean(program)
    source = f"{name}, by torch.export without decompositions (torch {torch.__version__})"
    return Captured(graph=graph_of(program, source=source), program=program)
