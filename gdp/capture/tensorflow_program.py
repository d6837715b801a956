"""TensorFlow programs that can be run, not only placed: from concrete functions, Keras models, SavedModels and GraphDefs."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gdp.capture.tensorflow import capture_graph_def
from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_lowering import Lowered, lower
from gdp.capture.tensorflow_training import trace_training_step
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.plain_array import plain_array


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TensorFlowProgram:
    """A captured program with what it takes to run it (`gdp.runtime.tensorflow.TensorFlowRuntime`)."""

    graph: Graph
    """its ops are nodes of `lowered.graph_def`."""
    lowered: Lowered
    example_inputs: tuple[np.ndarray, ...]
    """a value for each of `lowered.inputs`."""
    owner: object = None
    """what keeps the variables alive."""


def function_program(concrete_function: Any, example_inputs: Sequence[Any], *, source: str, owner: object = None) -> TensorFlowProgram:
    """A `tf.function`'s concrete function.

    Args:
        concrete_function: with static shapes in its signature.
        example_inputs: a value for every tensor it takes, in the order of `concrete_function.inputs`.
        source: what it is, for people.
        owner: of its variables; kept alive with the program.

    Raises:
        InputError: as `gdp.capture.tensorflow.capture_concrete_function`.
    """
    lowered = lower(concrete_function)
    return _program(lowered, example_inputs, source=source, owner=(concrete_function, owner))


def keras_program(model: Any, example_inputs: Sequence[Any], *, source: str) -> TensorFlowProgram:
    """A call of a Keras model in inference, on one array for each of its inputs."""
    tf = import_tensorflow()
    arrays = _arrays(example_inputs)
    call = tf.function(lambda *x: model(x[0] if len(x) == 1 else list(x), training=False), autograph=False)
    traced = call.get_concrete_function(*(tf.TensorSpec(array.shape, array.dtype) for array in arrays))
    return function_program(traced, arrays, source=source, owner=model)


def keras_training_program(
    model: Any, loss: Callable[[Any, Any], Any], optimizer: Any, *, inputs: Any, labels: Any, source: str
) -> TensorFlowProgram:
    """A training step of a Keras model (`gdp.capture.tensorflow_training`), on arrays of inputs and labels."""
    tf = import_tensorflow()
    arrays = [plain_array(inputs, "the example of the inputs"), plain_array(labels, "the example of the labels")]
    specs = [tf.TensorSpec(array.shape, array.dtype) for array in arrays]
    traced = trace_training_step(model, loss, optimizer, inputs=specs[0], labels=specs[1])
    return function_program(traced, arrays, source=source, owner=(model, optimizer))


def saved_model_program(
    folder: Path, *, signature: str = "serving_default", example_inputs: Mapping[str, Any] | None = None, batch: int = 1
) -> TensorFlowProgram:
    """A signature of a SavedModel, which is a program and is loaded as one.

    Args:
        folder: that holds `saved_model.pb`.
        signature: its name.
        example_inputs: a value by the name of each argument; without them, ones of the signature's shapes.
        batch: what an unknown first extent becomes where there are no example inputs.

    Raises:
        InputError: when there is no such model or signature, or an argument of unknown shape has no example.
    """
    tf = import_tensorflow()
    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as error:  # a damaged one leads TensorFlow's loader to any of Python's
        raise InputError(
            f"{folder} is no SavedModel that TensorFlow {tf.__version__} can load ({_first_line(error)}); save or download it again"
        ) from error
    if signature not in loaded.signatures:
        have = ", ".join(sorted(loaded.signatures)) or "none"
        raise InputError(f"the SavedModel {folder} has no signature {signature!r}; it has {have}")
    function = loaded.signatures[signature]
    _, wanted = function.structured_input_signature
    values = {name: plain_array(value, f"the example of {name!r}") for name, value in (example_inputs or {}).items()}
    if example_inputs is None:
        values = {name: _ones(name, spec, batch, folder) for name, spec in wanted.items()}
    if set(values) != set(wanted):
        raise InputError(
            f"the signature {signature!r} of {folder} takes {', '.join(sorted(wanted))}, but there are examples for {', '.join(sorted(values)) or 'none'}"
        )
    # Traced again with the shapes of the examples, in which there is no unknown extent.
    specs = {name: tf.TensorSpec(value.shape, wanted[name].dtype, name=name) for name, value in values.items()}
    try:
        traced = tf.function(lambda **arguments: function(**arguments), autograph=False).get_concrete_function(**specs)
        ordered = [values[tensor.op.get_attr("_user_specified_name").decode()] for tensor in traced.inputs if _is_argument(traced, tensor)]
        return function_program(traced, ordered, source=f"{folder.name}, {signature}", owner=loaded)
    except InputError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{name}: {list(value.shape)}" for name, value in values.items())
        raise InputError(
            f"the signature {signature!r} of {folder} cannot be called with examples of the shapes {shapes} ({_first_line(error)}); "
            "give example_inputs that it takes, or save the model again if it is damaged"
        ) from error


def graph_def_program(
    graph_def: Any,
    *,
    feeds: Mapping[str, Any],
    fetches: Sequence[str],
    targets: Sequence[str] = (),
    variables: Mapping[str, Any] | None = None,
    source: str,
) -> TensorFlowProgram:
    """A GraphDef without function calls.

    Args:
        graph_def: a `tf.compat.v1.GraphDef`.
        feeds: a value by the name of each `Placeholder` node.
        fetches: tensor names, `node:index`.
        targets: nodes that must run, too.
        variables: the initial value by the name of each `VarHandleOp` node.
        source: what it is, for people.

    Raises:
        InputError: as `gdp.capture.tensorflow.capture_graph_def`.
    """
    lowered = Lowered(
        graph_def=graph_def,
        inputs=tuple(feeds),
        outputs=tuple(name if ":" in name else f"{name}:0" for name in fetches),
        targets=tuple(targets),
        variables=tuple((variables or {}).items()),
    )
    return _program(lowered, tuple(feeds.values()), source=source, owner=None)


def _program(lowered: Lowered, example_inputs: Sequence[Any], *, source: str, owner: object) -> TensorFlowProgram:
    graph = capture_graph_def(lowered.graph_def, keep=[*lowered.inputs, *lowered.outputs, *lowered.targets], source=source)
    return TensorFlowProgram(graph=graph, lowered=lowered, example_inputs=tuple(_arrays(example_inputs)), owner=owner)


def _arrays(example_inputs: Sequence[Any]) -> list[np.ndarray]:
    return [plain_array(value, f"example input {number}") for number, value in enumerate(example_inputs)]


def _ones(name: str, spec: Any, batch: int, folder: Path) -> np.ndarray:
    extents = [None] if spec.shape.rank is None else spec.shape.as_list()
    if None in extents[1:] or spec.shape.rank is None:
        raise InputError(f"argument {name!r} of the SavedModel {folder} has the shape {spec.shape}; give example_inputs")
    return np.ones([batch if extent is None else extent for extent in extents], spec.dtype.as_numpy_dtype)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"


def _is_argument(traced: Any, tensor: Any) -> bool:
    return all(internal is not tensor for _, internal in traced.graph.captures)
