"""Transformer-XL: a language model of attention layers that also see the previous segment's hidden states (Dai et al., arXiv 1901.02860).

GDP (arXiv 1910.01578) places 2, 4 and 8 layers. Widths are those of the paper's large model: 1024, 16 heads, 4096 inside; dropout 0.2; Adam, with gradients clipped
to norm 0.25. Ours: segments and memory of 128 tokens, a batch of 32, 32 000 words, one softmax instead of an adaptive one, content and position biases per layer.
Memories come in as inputs and go out as results of the step.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.graph import Graph
from gdp.workloads.attention_block import dense, join_heads, layer_norm, split_heads
from gdp.workloads.training_step import Update, Weights, capture_plain_step


def transformer_xl_training(
    num_layers: int = 2,
    *,
    batch_size: int = 32,
    length: int = 128,
    memory: int = 128,
    width: int = 1024,
    num_heads: int = 16,
    inner: int = 4096,
    vocabulary: int = 32_000,
    dropout: float = 0.2,
) -> Graph:
    """The training step on one segment; layers are the scopes `layer_0`, ..., beside `embedding` and `softmax`."""
    tf = import_tensorflow()

    def loss(weights: Weights, words: Any, next_words: Any, *memories: Any) -> tuple[Any, Sequence[Any]]:
        with tf.name_scope("embedding"):
            x = tf.gather(weights("embedding", vocabulary, width), words) * float(np.sqrt(width))
            x = tf.nn.dropout(x, dropout) if dropout else x
            positions = tf.constant(_positions(length + memory, width))
        states = []
        for layer, seen in enumerate(memories):
            with tf.name_scope(f"layer_{layer}"):
                states.append(tf.stop_gradient(tf.concat([seen, x], 1)[:, -memory:]))
                attended = _attention(weights, f"layer_{layer}/attention", x, seen, positions, num_heads=num_heads)
                attended = tf.nn.dropout(attended, dropout) if dropout else attended
                x = layer_norm(weights, f"layer_{layer}/attention_norm", x + attended)
                hidden = tf.nn.relu(dense(weights, f"layer_{layer}/inner", x, inner))
                hidden = dense(weights, f"layer_{layer}/outer", tf.nn.dropout(hidden, dropout) if dropout else hidden, width)
                hidden = tf.nn.dropout(hidden, dropout) if dropout else hidden
                x = layer_norm(weights, f"layer_{layer}/norm", x + hidden)
        with tf.name_scope("softmax"):
            logits = dense(weights, "softmax", x, vocabulary)
            return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=next_words, logits=logits)), states

    words = [tf.TensorSpec((batch_size, length), tf.int32, name=name) for name in ("words", "next_words")]
    memories = [tf.TensorSpec((batch_size, memory, width), tf.float32, name=f"memory_{layer}") for layer in range(num_layers)]
    return capture_plain_step(
        loss,
        [*words, *memories],
        update=Update(optimizer="adam", clip_norm=0.25),
        source=f"Transformer-XL, {num_layers} layers of width {width}, segments of {length} and memory of {memory} tokens, batch {batch_size}, {vocabulary} words, "
        "training step with Adam, TensorFlow",
    )


def _attention(weights: Weights, name: str, x: Any, seen: Any, positions: Any, *, num_heads: int) -> Any:
    """Section 3.3: content and position scores with their own biases `u` and `v`, positions relative by the shift of appendix B."""
    tf = import_tensorflow()
    batch_size, length, width = (int(extent) for extent in x.shape)
    span = length + int(seen.shape[1])
    both = tf.concat([seen, x], 1)
    query = dense(weights, f"{name}/query", x, width, bias=False)
    keys, values = (split_heads(dense(weights, f"{name}/{part}", both, width, bias=False), num_heads) for part in ("key", "value"))
    position_keys = split_heads(dense(weights, f"{name}/position", positions[None], width, bias=False), num_heads)
    content = tf.matmul(split_heads(query + weights(f"{name}/u", width), num_heads), keys, transpose_b=True)
    position = tf.matmul(split_heads(query + weights(f"{name}/v", width), num_heads), position_keys[0], transpose_b=True)
    position = shifted(position)
    future = tf.constant(np.triu(np.full((length, span), -1e30, np.float32), k=span - length + 1))
    probability = tf.nn.softmax((content + position) * float((width // num_heads) ** -0.5) + future)
    return dense(weights, f"{name}/output", join_heads(tf.matmul(probability, values)), width, bias=False)


def shifted(scores: Any) -> Any:
    """Appendix B: from scores by distance, `[batch, heads, length, span]` with the distances `span - 1` to 0 along the last axis, to scores by key.

    Entries of keys that lie in the future hold what does not belong to them, and are masked.
    """
    tf = import_tensorflow()
    batch_size, num_heads, length, span = scores.shape
    padded = tf.reshape(tf.pad(scores, ((0, 0), (0, 0), (0, 0), (1, 0))), (batch_size, num_heads, span + 1, length))
    return tf.reshape(padded[:, :, 1:], (batch_size, num_heads, length, span))


def _positions(span: int, width: int) -> np.ndarray:
    """`[span, width]` float32: sines and cosines of the distances `span - 1` to 0."""
    angles = np.arange(span - 1, -1, -1)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)
