"""The TensorFlow programs that the benchmarks of real timing run: Keras models, steps of some tens of milliseconds on one core."""

from collections.abc import Callable
from typing import Any

import numpy as np

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_program import TensorFlowProgram, keras_program, keras_training_program

BATCH, CLASSES = 32, 10


def branching_convolutions(keras: Any) -> Any:
    """Blocks of four branches that are joined, in the manner of Inception."""
    x = keras.Input((28, 28, 16))
    y = x
    for _ in range(2):
        branches = [keras.layers.Conv2D(32, 1, padding="same", activation="relu")(y) for _ in range(4)]
        for kernel, number in ((3, 1), (5, 2), (3, 3)):
            branches[number] = keras.layers.Conv2D(32, kernel, padding="same", activation="relu")(branches[number])
        branches[3] = keras.layers.Conv2D(32, 3, padding="same", activation="relu")(branches[3])
        y = keras.layers.Concatenate()(branches)
    return keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling2D()(y)))


def two_towers(keras: Any) -> Any:
    """Two perceptrons over halves of the input, multiplied."""
    x = keras.Input((1024,))
    towers = []
    for half in (x[:, :512], x[:, 512:]):
        for width in (2048, 2048, 512):
            half = keras.layers.Dense(width, activation="relu")(half)
        towers.append(half)
    return keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.Multiply()(towers)))


def recurrent(keras: Any) -> Any:
    """Two layers of an unrolled LSTM, whose cells can run along a wave front."""
    x = keras.Input((12, 384))
    y = keras.layers.LSTM(384, unroll=True)(keras.layers.LSTM(384, return_sequences=True, unroll=True)(x))
    return keras.Model(x, keras.layers.Dense(CLASSES)(y))


def attention(keras: Any) -> Any:
    """Encoder layers of a Transformer."""
    x = keras.Input((48, 128))
    y = x
    for _ in range(2):
        y = keras.layers.LayerNormalization()(y + keras.layers.MultiHeadAttention(4, 32)(y, y))
        y = keras.layers.LayerNormalization()(y + keras.layers.Dense(128)(keras.layers.Dense(512, activation="gelu")(y)))
    return keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling1D()(y)))


def residual(keras: Any) -> Any:
    """Residual blocks one after the other: a chain."""
    x = keras.Input((28, 28, 32))
    y = x
    for _ in range(3):
        z = keras.layers.ReLU()(keras.layers.BatchNormalization()(keras.layers.Conv2D(32, 3, padding="same", use_bias=False)(y)))
        y = keras.layers.ReLU()(y + keras.layers.BatchNormalization()(keras.layers.Conv2D(32, 3, padding="same", use_bias=False)(z)))
    return keras.Model(x, keras.layers.Dense(CLASSES)(keras.layers.GlobalAveragePooling2D()(y)))


def real_tensorflow_models() -> dict[str, Callable[[], TensorFlowProgram]]:
    """Builders by name, the same weights and inputs every time."""
    return {
        "Keras branching convolutions": lambda: _program(branching_convolutions, training=False),
        "Keras two towers, training": lambda: _program(two_towers, training=True),
        "Keras LSTM": lambda: _program(recurrent, training=False),
        "Keras attention, training": lambda: _program(attention, training=True),
        "Keras residual network, training": lambda: _program(residual, training=True),
    }


def _program(build: Callable[[Any], Any], *, training: bool) -> TensorFlowProgram:
    import_tensorflow()
    import keras

    def loss(labels: Any, predictions: Any) -> Any:
        return keras.losses.sparse_categorical_crossentropy(labels, predictions, from_logits=True)

    keras.utils.set_random_seed(0)
    generator, model = np.random.default_rng(0), build(keras)
    inputs = generator.standard_normal((BATCH, *model.input_shape[1:]), np.float32)
    if not training:
        return keras_program(model, [inputs], source=build.__name__)
    labels = generator.integers(0, CLASSES, BATCH).astype(np.int32)
    return keras_training_program(
        model, loss, keras.optimizers.SGD(1e-6, momentum=0.9), inputs=inputs, labels=labels, source=build.__name__
    )
