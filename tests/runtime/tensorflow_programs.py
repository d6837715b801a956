"""Small TensorFlow programs of several families, and what they compute when TensorFlow runs them as usual."""

from pathlib import Path
from typing import Any

import numpy as np

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_program import TensorFlowProgram, function_program, keras_program, keras_training_program
from gdp.runtime.tensorflow_program import read_program, write_program
from gdp.runtime.tensorflow_session import Program

BATCH, CLASSES = 4, 5


def as_worker_reads(program: TensorFlowProgram, folder: Path) -> Program:
    """The program after its way through files."""
    write_program(program.lowered, program.example_inputs, folder / "program.pb", folder / "values.npz")
    return read_program(folder / "program.pb", folder / "values.npz", program.graph.name)


def eager_step(program: TensorFlowProgram) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    """Outputs of the concrete function, called as usual, and all variables after that; they are put back."""
    function = program.owner[0]  # type: ignore[index]
    before = {name: variable.numpy() for name, variable in program.lowered.variables}
    arguments = [import_tensorflow().constant(value) for value in program.example_inputs]
    outputs = import_tensorflow().nest.flatten(function(*arguments))
    after = {name: variable.numpy() for name, variable in program.lowered.variables}
    for name, variable in program.lowered.variables:
        variable.assign(before[name])
    return [np.asarray(output) for output in outputs], after


def convolutions_training() -> TensorFlowProgram:
    """Padding, convolutions with and without a bias, batch norm, a branch; momentum."""
    keras, generator = _keras(), np.random.default_rng(0)
    x = keras.Input((8, 8, 3))
    left = keras.layers.Conv2D(4, 3, activation="relu")(keras.layers.ZeroPadding2D(1)(x))
    right = keras.layers.ReLU()(keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3, padding="same", use_bias=False)(x)))
    y = keras.layers.BatchNormalization()(keras.layers.Conv2D(6, 3, strides=2)(keras.layers.Concatenate()([left, right])))
    model = keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling2D()(y)))
    inputs, labels = generator.standard_normal((BATCH, 8, 8, 3), np.float32), generator.integers(0, CLASSES, BATCH).astype(np.int32)
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
    return keras_training_program(model, _loss, optimizer, inputs=inputs, labels=labels, source="convolutions, training")


def lstm_inference() -> TensorFlowProgram:
    model, inputs, _ = _lstm()
    return keras_program(model, [inputs], source="lstm, inference")


def lstm_training() -> TensorFlowProgram:
    model, inputs, labels = _lstm()
    optimizer = _keras().optimizers.Adam(0.01)
    return keras_training_program(model, _loss, optimizer, inputs=inputs, labels=labels, source="lstm, training")


def attention_training() -> TensorFlowProgram:
    """With dropout, whose random numbers come from a variable."""
    keras, generator = _keras(), np.random.default_rng(2)
    x = keras.Input((6,), dtype="int32")
    y = keras.layers.Embedding(11, 8)(x)
    y = keras.layers.LayerNormalization()(y + keras.layers.MultiHeadAttention(2, 4)(y, y))
    y = keras.layers.Dropout(0.3, seed=3)(keras.layers.Dense(16, activation="gelu")(y))
    model = keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling1D()(y)))
    inputs, labels = generator.integers(0, 11, (BATCH, 6)).astype(np.int32), generator.integers(0, CLASSES, BATCH).astype(np.int32)
    optimizer = keras.optimizers.SGD(0.1)
    return keras_training_program(model, _loss, optimizer, inputs=inputs, labels=labels, source="attention, training")


def tied_training() -> TensorFlowProgram:
    """An autoencoder whose decoder is its encoder transposed: one variable with two readers, a constant from outside, two outputs, one of integers."""
    tf, generator = import_tensorflow(), np.random.default_rng(3)
    weight = tf.Variable(generator.standard_normal((12, 7), np.float32) * 0.3)
    bias = tf.Variable(tf.zeros(7))
    scale = tf.constant(generator.standard_normal((12, 12), np.float32))

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.matmul(tf.matmul(x, scale), weight) + bias)
            loss = tf.reduce_mean((tf.matmul(hidden, weight, transpose_b=True) - x) ** 2)
        for variable, gradient in zip((weight, bias), tape.gradient(loss, (weight, bias)), strict=True):
            variable.assign_sub(0.5 * gradient)
        return loss, tf.argmax(hidden, axis=1)

    inputs = generator.standard_normal((BATCH, 12), np.float32)
    traced = tf.function(step, autograph=False).get_concrete_function(tf.TensorSpec(inputs.shape, tf.float32))
    return function_program(traced, [inputs], source="tied, training", owner=(weight, bias, scale))


def bias_before_batch_norm() -> TensorFlowProgram:
    """The gradient of such a bias is zero but for rounding, and Adam divides it by itself."""
    keras, generator = _keras(), np.random.default_rng(4)
    x = keras.Input((8, 8, 3))
    y = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(x))
    y = keras.layers.BatchNormalization()(keras.layers.Conv2D(4, 3)(keras.layers.ReLU()(y)))
    model = keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling2D()(y)))
    inputs, labels = generator.standard_normal((BATCH, 8, 8, 3), np.float32), generator.integers(0, CLASSES, BATCH).astype(np.int32)
    return keras_training_program(
        model, _loss, keras.optimizers.Adam(0.01), inputs=inputs, labels=labels, source="a bias before batch norm"
    )


def drawing() -> TensorFlowProgram:
    """Random numbers of ops without seeds."""
    tf = import_tensorflow()
    traced = tf.function(lambda x: tf.nn.dropout(tf.nn.dropout(x, 0.5), 0.5), autograph=False).get_concrete_function(tf.TensorSpec((50,)))
    return function_program(traced, [np.ones(50, np.float32)], source="drawing")


FAMILIES = (convolutions_training, lstm_inference, lstm_training, attention_training, tied_training)


def _lstm() -> tuple[Any, np.ndarray, np.ndarray]:
    keras, generator = _keras(), np.random.default_rng(1)
    x = keras.Input((3, 4))
    y = keras.layers.LSTM(5, unroll=True)(keras.layers.LSTM(5, return_sequences=True, unroll=True)(x))
    labels = generator.integers(0, CLASSES, BATCH).astype(np.int32)
    return keras.Model(x, keras.layers.Dense(CLASSES)(y)), generator.standard_normal((BATCH, 3, 4), np.float32), labels


def _keras() -> Any:
    import_tensorflow()
    import keras

    keras.utils.set_random_seed(0)
    return keras


def _loss(labels: Any, predictions: Any) -> Any:
    return _keras_loss()(labels, predictions, from_logits=True)


def _keras_loss() -> Any:
    import keras

    return keras.losses.sparse_categorical_crossentropy
