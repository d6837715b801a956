"""Mistakes in what a TensorFlow program is made from are told in one sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_program import function_program, graph_def_program, keras_program, keras_training_program, saved_model_program
from gdp.errors import InputError

pytestmark = pytest.mark.tensorflow

RAGGED = [[1.0, 2.0], [3.0]]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tf = import_tensorflow()

    class Product(tf.Module):
        def __init__(self) -> None:
            self.weight = tf.Variable(tf.ones((3, 2)))

        @tf.function(input_signature=[tf.TensorSpec((None, 3), name="x")])
        def __call__(self, x: Any) -> Any:
            return {"y": tf.matmul(x, self.weight)}

    module, folder = Product(), tmp_path_factory.mktemp("saved") / "model"
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.__call__})
    return folder


def lead_nowhere(model: Any) -> None:
    for node in model.meta_graphs[0].object_graph_def.nodes:
        for child in node.children:
            child.node_id = 999


def forget_functions(model: Any) -> None:
    model.meta_graphs[0].object_graph_def.concrete_functions.clear()


def empty_library(model: Any) -> None:
    del model.meta_graphs[0].graph_def.library.function[:]


def forget_types(model: Any) -> None:
    for function in model.meta_graphs[0].object_graph_def.concrete_functions.values():
        function.ClearField("output_signature")


def unknown_op(model: Any) -> None:
    for function in model.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            node.op = node.op.replace("MatMul", "NoSuchOp")


def unbind_variables(model: Any) -> None:
    for function in model.meta_graphs[0].object_graph_def.concrete_functions.values():
        del function.bound_inputs[:]


@pytest.mark.parametrize("damage", [lead_nowhere, forget_functions, empty_library, forget_types, unknown_op, unbind_variables])
def test_a_damaged_saved_model_is_refused_in_a_sentence(saved: Path, tmp_path: Path, damage: Callable[[Any], None]) -> None:
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    assert saved_model_program(saved).graph.num_ops > 0
    model = SavedModel.FromString((saved / "saved_model.pb").read_bytes())
    damage(model)
    for part in saved.rglob("*"):
        copy = tmp_path / part.relative_to(saved)
        copy.mkdir() if part.is_dir() else copy.write_bytes(part.read_bytes())
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    with pytest.raises(InputError) as caught:
        saved_model_program(tmp_path)
    told = str(caught.value)
    assert str(tmp_path) in told and "\n" not in told and " again" in told


def test_examples_that_a_signature_cannot_take_are_refused(saved: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be called with examples of the shapes x: \[5, 4\] .* give example_inputs that it takes"):
        saved_model_program(saved, example_inputs={"x": np.ones((5, 4), np.float32)})


def test_ragged_examples_are_refused(saved: Path) -> None:
    tf = import_tensorflow()
    import keras

    x = keras.Input((2,))
    model = keras.Model(x, keras.layers.Dense(1)(x))
    concrete = tf.function(lambda x: x + 1.0, autograph=False).get_concrete_function(tf.TensorSpec((2, 2)))
    graph_def = concrete.graph.as_graph_def()

    def train() -> Any:
        examples = {"inputs": np.ones((2, 2), np.float32), "labels": RAGGED}
        return keras_training_program(model, keras.losses.MeanSquaredError(), keras.optimizers.SGD(0.1), **examples, source="ragged")

    attempts: list[tuple[str, Callable[[], Any]]] = [
        ("example input 0", lambda: keras_program(model, [RAGGED], source="ragged")),
        ("the example of the labels", train),
        ("the example of 'x'", lambda: saved_model_program(saved, example_inputs={"x": RAGGED})),
        ("example input 0", lambda: function_program(concrete, [RAGGED], source="ragged")),
        ("example input 0", lambda: graph_def_program(graph_def, feeds={"x": RAGGED}, fetches=["Identity"], source="ragged")),
    ]
    for what, attempt in attempts:
        with pytest.raises(InputError, match=rf"^{what} is no array \(.*inhomogeneous.*\); give one whose rows are of one length"):
            attempt()
