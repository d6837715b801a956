"""The training step of an image classifier of Keras."""

from collections.abc import Callable
from typing import Any

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_training import capture_training_step
from gdp.graph import Graph


def image_classifier_training(build: Callable[[Any], Any], *, image_size: int, batch_size: int, name: str) -> Graph:
    """Forward pass, cross-entropy, gradients and update with momentum 0.9, on square RGB images.

    Starts Keras' automatic layer names afresh (`keras.utils.clear_session`), so that the same graph results however often it is built.

    Args:
        build: from the `keras` module to a model whose outputs are probabilities.
        image_size: height and width, pixels.
        batch_size: images a step.
        name: the network, for people.
    """
    tf = import_tensorflow()
    import keras

    keras.utils.clear_session()
    return capture_training_step(
        build(keras),
        keras.losses.sparse_categorical_crossentropy,
        keras.optimizers.SGD(0.1, momentum=0.9),
        inputs=tf.TensorSpec((batch_size, image_size, image_size, 3), tf.float32, name="images"),
        labels=tf.TensorSpec((batch_size,), tf.int32, name="labels"),
        source=f"{name}, batch {batch_size}, training step with momentum, TensorFlow",
    )
