"""What every capture of a PyTorch program needs: silence while it is traced, a sentence for what went wrong, and the removal of what only tracing needed."""

import io
import logging
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from gdp.errors import InputError


@contextmanager
def quiet_tracing(*, gradients: bool) -> Iterator[None]:
    """With or without gradients, no fused kernels that hide a layer's ops, and nothing printed: what went wrong is in the exception."""
    fused = torch.backends.mha.get_fastpath_enabled()
    logged = logging.root.manager.disable
    torch.backends.mha.set_fastpath_enabled(False)
    logging.disable(logging.CRITICAL)
    try:
        with torch.set_grad_enabled(gradients), warnings.catch_warnings(), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logged)
        torch.backends.mha.set_fastpath_enabled(fused)


def not_captured(name: str, error: BaseException) -> InputError:
    """What to tell the user whose module `name` raised `error` while it was traced."""
    return InputError(
        f"{name} cannot be captured: {_first_line(error)}{_where(error)}; "
        "check that the module runs on these inputs, and keep its forward free of branches and sizes that depend on the values of tensors (use torch.where, masks)"
    )


def clean(program: ExportedProgram) -> None:
    """Drops what only tracing needed: copies that nobody could tell from the original (dropout in evaluation), the marks where gradients stop, and assertions about
    the device of the example inputs."""
    for node in list(program.graph.nodes):
        if node.target == torch.ops.aten._assert_tensor_metadata.default:
            program.graph.erase_node(node)
        elif node.target in (torch.ops.aten.clone.default, torch.ops.aten.detach.default) and _is_idle_copy(node):
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()


def _is_idle_copy(node: Node) -> bool:
    """A functional program writes to no tensor, so a copy with equal strides can be told from its original only when it is returned."""
    original = node.args[0]
    assert isinstance(original, Node)
    returned = any(user.op == "output" for user in node.users)
    strides, before = node.meta["val"].stride(), original.meta["val"].stride()
    return not returned and all(isinstance(stride, int) for stride in (*strides, *before)) and strides == before


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _where(error: BaseException) -> str:
    """The last line of the user's own code that was running."""
    libraries = (Path(torch.__file__).parent, Path(__file__).parent)
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.line and not any(Path(frame.filename).is_relative_to(library) for library in libraries)
    ]
    return f" (at {frames[-1].filename}:{frames[-1].lineno}, `{frames[-1].line}`)" if frames else ""
