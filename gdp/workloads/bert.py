"""BERT: pre-training by masked words and next sentences (Devlin et al., arXiv 1810.04805).

Base as published: 12 layers, width 768, 12 heads, 30 522 word pieces, dropout 0.1, the output layer tied to the word embedding. Sequences of 128 tokens (appendix A.2: 90 % of
the steps), 20 of them predicted; gradients clipped to norm 1 and Adam, without weight decay. A batch of 32 is ours.
"""

from collections.abc import Sequence
from typing import Any

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.graph import Graph
from gdp.workloads.attention_block import dense, join_heads, layer_norm, split_heads
from gdp.workloads.training_step import Update, Weights, capture_plain_step

_POSITIONS = 512
_SEGMENTS = 2


def bert_training(
    num_layers: int = 12,
    *,
    batch_size: int = 32,
    length: int = 128,
    predictions: int = 20,
    width: int = 768,
    num_heads: int = 12,
    vocabulary: int = 30_522,
    dropout: float = 0.1,
) -> Graph:
    """The training step; layers are the scopes `layer_0`, ..., beside `embedding`, `pooler`, `masked_words` and `next_sentence`."""
    tf = import_tensorflow()

    def drop(x: Any) -> Any:
        return tf.nn.dropout(x, dropout) if dropout else x

    def loss(
        weights: Weights, words: Any, segments: Any, padding: Any, masked: Any, labels: Any, is_next: Any
    ) -> tuple[Any, Sequence[Any]]:
        with tf.name_scope("embedding"):
            table = weights("embedding/words", vocabulary, width)
            positions = weights("embedding/positions", _POSITIONS, width)[:length]
            x = tf.gather(table, words) + tf.gather(weights("embedding/segments", _SEGMENTS, width), segments) + positions
            x = drop(layer_norm(weights, "embedding/norm", x))
            bias = (1.0 - padding[:, None, None, :]) * -10_000.0
        for layer in range(num_layers):
            name = f"layer_{layer}"
            with tf.name_scope(name):
                query, keys, values = (
                    split_heads(dense(weights, f"{name}/{part}", x, width), num_heads) for part in ("query", "key", "value")
                )
                scores = tf.matmul(query, keys, transpose_b=True) * float((width // num_heads) ** -0.5) + bias
                attended = join_heads(tf.matmul(drop(tf.nn.softmax(scores)), values))
                x = layer_norm(weights, f"{name}/attention_norm", x + drop(dense(weights, f"{name}/attention", attended, width)))
                hidden = _gelu(dense(weights, f"{name}/inner", x, 4 * width))
                x = layer_norm(weights, f"{name}/norm", x + drop(dense(weights, f"{name}/outer", hidden, width)))
        with tf.name_scope("masked_words"):
            chosen = _gelu(dense(weights, "masked_words/transform", tf.gather(x, masked, batch_dims=1), width))
            rows = tf.reshape(layer_norm(weights, "masked_words/norm", chosen), (-1, width))
            logits = tf.nn.bias_add(tf.matmul(rows, table, transpose_b=True), weights("masked_words/bias", vocabulary))
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(labels, (-1,)), logits=logits)
            of_words = tf.reduce_mean(losses)
        with tf.name_scope("pooler"):
            pooled = tf.tanh(dense(weights, "pooler", x[:, 0], width))
        with tf.name_scope("next_sentence"):
            logits = dense(weights, "next_sentence", pooled, 2)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=is_next, logits=logits)
            return of_words + tf.reduce_mean(losses), ()

    spec = tf.TensorSpec
    return capture_plain_step(
        loss,
        [
            spec((batch_size, length), tf.int32, name="words"),
            spec((batch_size, length), tf.int32, name="segments"),
            spec((batch_size, length), tf.float32, name="padding"),
            spec((batch_size, predictions), tf.int32, name="masked"),
            spec((batch_size, predictions), tf.int32, name="labels"),
            spec((batch_size,), tf.int32, name="is_next"),
        ],
        update=Update(optimizer="adam", clip_norm=1.0),
        source=f"BERT, {num_layers} layers of width {width}, {length} tokens, batch {batch_size}, pre-training step with Adam, TensorFlow",
    )


def _gelu(x: Any) -> Any:
    tf = import_tensorflow()
    return tf.nn.gelu(x, approximate=True)
