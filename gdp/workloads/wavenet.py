"""WaveNet: dilated causal convolutions over audio samples (van den Oord et al., arXiv 1609.03499).

GDP (arXiv 1910.01578) places "2-stack 18-layer" and "4-stack 36-layer": stacks of 9 layers, dilations 1, 2, ..., 256 in each. Filters of width 2, gated units, residual
and skip connections, 256 quantised values, as in sections 2.1 to 2.4 of the WaveNet paper. Ours, which the papers do not print: 512 residual and gated channels,
256 skip channels, a batch of 2 clips of 8192 samples; Adam.
"""

from collections.abc import Sequence
from typing import Any

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.graph import Graph
from gdp.workloads.training_step import Update, Weights, capture_plain_step

_VALUES = 256
_FILTER_WIDTH = 2


def wavenet_training(
    num_stacks: int = 2,
    *,
    layers_per_stack: int = 9,
    batch_size: int = 2,
    length: int = 8192,
    residual_channels: int = 512,
    skip_channels: int = 256,
) -> Graph:
    """The training step; layers are the scopes `layer_0`, ... over all stacks, beside `embedding` and `softmax`."""
    tf = import_tensorflow()

    def loss(weights: Weights, samples: Any, next_samples: Any) -> tuple[Any, Sequence[Any]]:
        with tf.name_scope("embedding"):
            x = tf.one_hot(samples, _VALUES)[:, None]
            x = _convolution(weights, "embedding", x, residual_channels)
        skips = []
        for layer in range(num_stacks * layers_per_stack):
            name = f"layer_{layer}"
            with tf.name_scope(name):
                gates = _convolution(
                    weights,
                    f"{name}/dilated",
                    x,
                    2 * residual_channels,
                    filter_width=_FILTER_WIDTH,
                    dilation=2 ** (layer % layers_per_stack),
                )
                signal, gate = tf.split(gates, 2, axis=3)
                hidden = tf.tanh(signal) * tf.sigmoid(gate)
                skips.append(_convolution(weights, f"{name}/skip", hidden, skip_channels))
                if layer < num_stacks * layers_per_stack - 1:
                    x = x + _convolution(weights, f"{name}/residual", hidden, residual_channels)
        with tf.name_scope("softmax"):
            hidden = tf.nn.relu(tf.add_n(skips))
            hidden = tf.nn.relu(_convolution(weights, "softmax/hidden", hidden, skip_channels))
            logits = _convolution(weights, "softmax/logits", hidden, _VALUES)[:, 0]
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=next_samples, logits=logits)), ()

    return capture_plain_step(
        loss,
        [tf.TensorSpec((batch_size, length), tf.int32, name=name) for name in ("samples", "next_samples")],
        update=Update(optimizer="adam"),
        source=f"WaveNet, {num_stacks} stacks of {layers_per_stack} layers, {residual_channels} channels, batch {batch_size}, {length} samples, "
        "training step with Adam, TensorFlow",
    )


def _convolution(weights: Weights, name: str, x: Any, channels: int, *, filter_width: int = 1, dilation: int = 1) -> Any:
    """Over time, the third axis of `[batch, 1, time, channels]`; causal: zeros before the first sample, none after the last."""
    tf = import_tensorflow()
    if filter_width > 1:
        x = tf.pad(x, ((0, 0), (0, 0), ((filter_width - 1) * dilation, 0), (0, 0)))
    kernel = weights(f"{name}/kernel", 1, filter_width, int(x.shape[3]), channels)
    y = tf.nn.conv2d(x, kernel, strides=1, padding="VALID", dilations=(1, dilation))
    return tf.nn.bias_add(y, weights(f"{name}/bias", channels))
