"""The parts that Transformer models share, in plain TensorFlow ops."""

from typing import Any

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.workloads.training_step import Weights


def dense(weights: Weights, name: str, x: Any, width: int, *, bias: bool = True) -> Any:
    """`x W + b` over the last axis."""
    tf = import_tensorflow()
    *rows, inner = (int(extent) for extent in x.shape)
    y = tf.matmul(tf.reshape(x, (-1, inner)), weights(f"{name}/kernel", inner, width))
    if bias:
        y = tf.nn.bias_add(y, weights(f"{name}/bias", width))
    return tf.reshape(y, (*rows, width))


def layer_norm(weights: Weights, name: str, x: Any) -> Any:
    """Ba et al., "Layer Normalization" (arXiv 1607.06450), over the last axis, as the pointwise ops that TensorFlow has for it."""
    tf = import_tensorflow()
    width = int(x.shape[-1])
    mean = tf.reduce_mean(x, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.math.squared_difference(x, tf.stop_gradient(mean)), axis=-1, keepdims=True)
    scale, shift = weights(f"{name}/scale", width), weights(f"{name}/shift", width)
    return (x - mean) * tf.math.rsqrt(variance + 1e-12) * scale + shift


def split_heads(x: Any, num_heads: int) -> Any:
    """`[batch, length, width]` -> `[batch, heads, length, width / heads]`."""
    tf = import_tensorflow()
    batch_size, length, width = x.shape
    return tf.transpose(tf.reshape(x, (batch_size, length, num_heads, width // num_heads)), (0, 2, 1, 3))


def join_heads(x: Any) -> Any:
    """The inverse of `split_heads`."""
    tf = import_tensorflow()
    batch_size, num_heads, length, width = x.shape
    return tf.reshape(tf.transpose(x, (0, 2, 1, 3)), (batch_size, length, num_heads * width))
