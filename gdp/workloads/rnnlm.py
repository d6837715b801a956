"""RNNLM: a language model of stacked LSTM layers, unrolled over time (Zaremba et al., arXiv 1409.2329; Jozefowicz et al., arXiv 1602.02410).

In the placement literature since ColRL (Mirhoseini et al., 2017), with 2 layers and a batch of 64; GDP (arXiv 1910.01578) has 2, 4 and 8. The vocabulary is that of
the Penn Treebank in Zaremba et al., 10 000 words; so is plain gradient descent with clipped gradients (here to a global norm of 5). Ours: 40 steps, 1024 units,
dropout 0.5. States start at zero instead of where the previous batch ended.
"""

from collections.abc import Sequence
from typing import Any

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.graph import Graph
from gdp.workloads.lstm_cell import lstm_step, zero_state
from gdp.workloads.training_step import Update, Weights, capture_plain_step


def rnnlm_training(
    num_layers: int = 2, *, batch_size: int = 64, num_steps: int = 40, units: int = 1024, vocabulary: int = 10_000, dropout: float = 0.5
) -> Graph:
    """The training step, every layer at every step a scope of its own: `layer_1/step_7`; the rest is under `embedding` and `softmax`."""
    tf = import_tensorflow()

    def loss(weights: Weights, words: Any, next_words: Any) -> tuple[Any, Sequence[Any]]:
        with tf.name_scope("embedding"):
            inputs = tf.unstack(tf.gather(weights("embedding", vocabulary, units), words), axis=1)
        states = [zero_state(batch_size, units) for _ in range(num_layers)]
        outputs = []
        for step, x in enumerate(inputs):
            for layer in range(num_layers):
                with tf.name_scope(f"layer_{layer}/step_{step}"):
                    states[layer] = lstm_step(weights, f"layer_{layer}", x, states[layer], dropout=dropout)
                x = states[layer][0]
            outputs.append(x)
        with tf.name_scope("softmax"):
            hidden = tf.reshape(tf.stack(outputs, axis=1), (-1, units))
            if dropout:
                hidden = tf.nn.dropout(hidden, dropout)
            logits = tf.nn.bias_add(tf.matmul(hidden, weights("softmax/kernel", units, vocabulary)), weights("softmax/bias", vocabulary))
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(next_words, (-1,)), logits=logits)
            return tf.reduce_mean(losses), ()

    return capture_plain_step(
        loss,
        [tf.TensorSpec((batch_size, num_steps), tf.int32, name=name) for name in ("words", "next_words")],
        update=Update(optimizer="gradient-descent", clip_norm=5.0),
        source=f"RNNLM, {num_layers} LSTM layers of {units} units, {num_steps} steps, batch {batch_size}, {vocabulary} words, training step, TensorFlow",
    )
