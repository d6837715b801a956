"""One step of an LSTM layer in plain TensorFlow ops."""

from typing import Any

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.workloads.training_step import Weights

State = tuple[Any, Any]
"""Output and cell, `[batch, units]` each."""


def lstm_step(weights: Weights, name: str, x: Any, state: State, *, dropout: float) -> State:
    """The next state of the layer `name` for the input `x` `[batch, width]`.

    Gates as in Zaremba et al., "Recurrent Neural Network Regularization" (arXiv 1409.2329), equation 4, all four in one product, with dropout on the
    non-recurrent input (section 3.2) and a forget bias of one. Weights: `(width + units) x 4 units`, and a bias.
    """
    tf = import_tensorflow()
    output, cell = state
    units = int(output.shape[1])
    if dropout:
        x = tf.nn.dropout(x, dropout)
    kernel = weights(f"{name}/kernel", int(x.shape[1]) + units, 4 * units)
    gates = tf.nn.bias_add(tf.matmul(tf.concat([x, output], 1), kernel), weights(f"{name}/bias", 4 * units))
    write, candidate, forget, read = tf.split(gates, 4, axis=1)
    cell = cell * tf.sigmoid(forget + 1.0) + tf.sigmoid(write) * tf.tanh(candidate)
    return tf.tanh(cell) * tf.sigmoid(read), cell


def zero_state(batch_size: int, units: int) -> State:
    tf = import_tensorflow()
    return tf.zeros((batch_size, units)), tf.zeros((batch_size, units))
