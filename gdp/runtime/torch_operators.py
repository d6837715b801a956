"""Operators that a measuring process knows: those of torch alone, for it does not run the user's file that registers others."""

import functools
import os
import subprocess
import sys

import torch

from gdp.errors import InputError

_OF_TORCH = frozenset({"aten", "prims"})
"""Namespaces that need no asking."""

_LISTING = "import gdp.runtime.worker, torch; print(*torch._C._dispatch_get_all_op_names())"


def refuse_unknown_operators(program: torch.export.ExportedProgram) -> None:
    """Raises `InputError` when the program calls an operator that a fresh process with the worker's imports does not have."""
    graphs = [module.graph for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    operators = [node.target for graph in graphs for node in graph.nodes if isinstance(node.target, torch._ops.OpOverload)]
    for operator in operators:
        if operator.namespace not in _OF_TORCH and operator._name not in _known_to_workers():
            raise InputError(
                f"the program calls the operator {operator._name!r}, which torch does not have by itself, and a process that measures does not run the code "
                "that registers it; write that part with torch's operators, or have its time predicted instead of measured"
            )


@functools.cache
def _known_to_workers() -> frozenset[str]:
    """Names of operators, `namespace::name.overload`, in a fresh process; it takes some seconds."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", _LISTING], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise InputError(f"a process like those that measure cannot import torch ({last}); mend the installation")
    return frozenset(done.stdout.split())
