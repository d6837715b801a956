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
import io
import logging
import traceback
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram

from gdp.capture.exported import graph_of
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
        with _quiet_tracing():
            program = torch.export.export(module, args, given, strict=False).run_decompositions({})
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name} cannot be captured: {_first_line(error)}{_where(error)}; "
            "check that the module runs on these inputs, and keep its forward free of branches and sizes that depend on the values of tensors (use torch.where, masks)"
        ) from error
    _clean(program)
    source = f"{name}, by torch.export without decompositions (torch {torch.__version__})"
    return Captured(graph=graph_of(program, source=source), program=program)


@contextmanager
def _quiet_tracing() -> Iterator[None]:
    """No gradients, no fused kernels that hide a layer's ops, and nothing printed: what went wrong is in the exception."""
    fused = torch.backends.mha.get_fastpath_enabled()
    logged = logging.root.manager.disable
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.CRITICAL)
    try:
        with torch.no_grad(), warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logged)
        torch.backends.mha.set_fastpath_enabled(fused)


def _clean(program: ExportedProgram) -> None:
    """Drops what only tracing needed: copies that nobody could tell from the original (dropout in evaluation), and assertions about the device of the example inputs."""
    for node in list(program.graph.nodes):
        if node.target == torch.ops.aten._assert_tensor_metadata.default:
            program.graph.erase_node(node)
        elif node.target == torch.ops.aten.clone.default and _is_idle_copy(node):
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def _is_idle_copy(node: torch.fx.Node) -> bool:
    """A functional program writes to no tensor, so a copy with equal strides can be told from its original only when it is returned."""
    original = node.args[0]
    assert isinstance(original, torch.fx.Node)
    returned = any(user.op == "output" for user in node.users)
    strides, before = node.meta["val"].stride(), original.meta["val"].stride()
    return not returned and all(isinstance(stride, int) for stride in (*strides, *before)) and strides == before


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _where(error: BaseException) -> str:
    """The last line of the user's own code that was running."""
    library = Path(torch.__file__).parent
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.line and not Path(frame.filename).is_relative_to(library) and Path(frame.filename) != Path(__file__)
    ]
    return f" (at {frames[-1].filename}:{frames[-1].lineno}, `{frames[-1].line}`)" if frames else ""
