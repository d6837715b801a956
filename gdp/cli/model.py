"""What a user may name as MODEL: a workload of the catalog, `file.py:function`, a SavedModel, a graph file, or a profile of PipeDream or DOPPLER."""

import contextlib
import dataclasses
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gdp.capture.tensorflow_import import leave_gpu_memory_to_others
from gdp.cli.profile_file import is_profile, read_profile
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.runtime.verdict import Dispatch

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from gdp.capture.tensorflow_program import TensorFlowProgram

GRAPH, PROFILE = "graph.parquet", "profile.json"
"""What `gdp profile` writes side by side."""

HELP = (
    "a workload of the catalog, FILE.py:FUNCTION that returns (module, example inputs), a TrainingStep or a TensorFlowProgram, a SavedModel (FOLDER or FOLDER:SIGNATURE), "
    "a graph file (.parquet), or a profile (graph.txt:KIND)"
)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A captured model; one that came from PyTorch or TensorFlow with its program can be run, too."""

    graph: Graph
    program: "ExportedProgram | TensorFlowProgram | None"
    example_inputs: tuple[Any, ...]
    """of an exported program."""
    dispatch: Dispatch = "ready_order"
    """how its devices choose what to run: those that run a program here keep the program's order, TensorFlow's own executor takes what is ready."""
    note: str = ""
    """what a user should know of it before relying on what is predicted."""


def resolve_model(text: str) -> Model:
    """Captures or reads what `text` names. A file's function is the user's own code and is executed; nothing else is.

    Raises `InputError` when there is no such workload, file or function, or when it returns something else than it should.
    """
    if text.endswith(".parquet"):
        from gdp.capture.parquet import read_graph

        return _stored(Path(text), read_graph(Path(text)))
    if is_profile(text):
        return Model(graph=read_profile(text), program=None, example_inputs=())
    if ".py:" in text:
        with _kept_process():
            return _from_function(text)
    folder, _, signature = text.rpartition(":") if not os.path.isdir(text) and ":" in text else (text, "", "serving_default")
    if os.path.isfile(os.path.join(folder, "saved_model.pb")):
        from gdp.capture.tensorflow_program import saved_model_program

        return _from_tensorflow(saved_model_program(Path(folder), signature=signature))
    if text.endswith(".py") and os.path.isfile(text):
        raise InputError(f"{text} is a file; name the function in it that returns (module, example inputs): {text}:FUNCTION")
    from gdp.workloads.catalog import workload

    entry = workload(text)
    if entry.program is not None:
        return _from_module(*entry.program(), where=f"workload {text!r}")
    return Model(graph=entry.build(), program=None, example_inputs=(), dispatch=entry.dispatch)


def _stored(path: Path, graph: Graph) -> Model:
    """A graph that was read; one of `gdp profile` has its profile beside it, which knows how its devices choose what to run."""
    beside = path.with_name(PROFILE)
    if path.name != GRAPH or not beside.exists():
        return Model(graph=graph, program=None, example_inputs=())
    from gdp.runtime.fingerprint import changes, fingerprint
    from gdp.runtime.profile import read_profile as read_measured

    profile = read_measured(beside, graph)
    gpus = sorted({what.partition(" ")[0] for what in profile.fingerprint if what.startswith("cuda:")})
    changed = changes(profile.fingerprint, fingerprint(gpus))
    note = (
        f"{path} was measured elsewhere, or before something changed ({'; '.join(changed)}); its times may not hold here" if changed else ""
    )
    return Model(graph=graph, program=None, example_inputs=(), dispatch=profile.dispatch, note=note)


def _from_function(text: str) -> Model:
    file, _, name = text.rpartition(":")
    path = Path(file)
    if not os.path.isfile(path):
        raise InputError(f"there is no file {path}; name MODEL as FILE.py:FUNCTION")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    leave_gpu_memory_to_others()
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules[path.stem] = module  # dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
        if name not in vars(module):
            functions = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
            raise InputError(f"{path} has no function {name!r}; it has {', '.join(functions) or 'none'}")
        result = vars(module)[name]()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{text} raised {type(error).__name__}: {error}; run it by itself and mend it") from error
    if isinstance(result, Graph):
        return Model(graph=result, program=None, example_inputs=())
    from gdp.capture.tensorflow_program import TensorFlowProgram
    from gdp.capture.torch_training import TrainingStep, capture_training

    if isinstance(result, TensorFlowProgram):
        return _from_tensorflow(result)
    if isinstance(result, TrainingStep):
        captured = capture_training(result)
        inputs = (result.inputs, result.targets)
        return Model(graph=captured.graph, program=captured.program, example_inputs=inputs, dispatch="program_order")
    if not isinstance(result, tuple) or len(result) != 2:
        raise InputError(
            f"{text} returned {type(result).__name__}; it must return (module, example inputs), a gdp.capture.torch_training.TrainingStep, "
            "a gdp.capture.tensorflow_program.TensorFlowProgram or a gdp.Graph"
        )
    return _from_module(*result, where=text)


def _from_tensorflow(program: "TensorFlowProgram") -> Model:
    """A session of gdp's own runs a device's ops in the program's order."""
    return Model(graph=program.graph, program=program, example_inputs=(), dispatch="program_order")


@contextlib.contextmanager
def _kept_process() -> Iterator[None]:
    """What a user's file changes in the process is put back: the working folder, the import path, a module of its name, torch's defaults; what it prints goes to standard error."""
    import torch

    folder, import_path, modules = os.open(".", os.O_RDONLY), list(sys.path), dict(sys.modules)
    default_device, default_dtype = torch.get_default_device(), torch.get_default_dtype()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.fchdir(folder)
        os.close(folder)
        sys.path[:] = import_path
        if torch.get_default_device() != default_device:
            torch.set_default_device(default_device)
        torch.set_default_dtype(default_dtype)
        sys.modules.update(modules)  # a file may have the name of a module that is loaded


def _from_module(module: Any, example_inputs: Any, *, where: str) -> Model:
    import torch

    from gdp.capture.torch import capture

    if not isinstance(module, torch.nn.Module) or not isinstance(example_inputs, tuple):
        raise InputError(
            f"{where} returned ({type(module).__name__}, {type(example_inputs).__name__}); it must return a torch.nn.Module and a tuple of example inputs"
        )
    captured = capture(module, example_inputs)
    return Model(graph=captured.graph, program=captured.program, example_inputs=example_inputs, dispatch="program_order")
