"""The training step of a Keras model as one concrete function."""

from collections.abc import Callable
from typing import Any

from gdp.capture.tensorflow import capture_concrete_function
from gdp.capture.tensorflow_import import import_tensorflow
from gdp.graph import Graph


def capture_training_step(model: Any, loss: Callable[[Any, Any], Any], optimizer: Any, *, inputs: Any, labels: Any, source: str) -> Graph:
    """Forward pass, mean loss, gradients and update of a Keras model, captured as one graph.

    Args:
        model: a `keras.Model` on the TensorFlow backend.
        loss: `(labels, predictions) -> losses`, such as `keras.losses.sparse_categorical_crossentropy`; its mean is minimised.
        optimizer: a `keras.optimizers.Optimizer`.
        inputs: `tf.TensorSpec` of the model's input, static, batch included.
        labels: `tf.TensorSpec` of the labels, static.
        source: what it is, for people.

    Raises:
        InputError: as `capture_concrete_function`.
    """
    return capture_concrete_function(trace_training_step(model, loss, optimizer, inputs=inputs, labels=labels), source=source)


def trace_training_step(model: Any, loss: Callable[[Any, Any], Any], optimizer: Any, *, inputs: Any, labels: Any) -> Any:
    """The same step as a concrete function `(inputs, labels) -> loss`; the caller keeps `model` and `optimizer` alive, which own the variables."""
    tf = import_tensorflow()
    optimizer.build(model.trainable_variables)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_mean(loss(y, model(x, training=True)))
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    return tf.function(step, autograph=False).get_concrete_function(inputs, labels)
