"""GNMT: translation with stacked LSTM encoder and decoder and attention, unrolled over time (Wu et al., "Google's Neural Machine Translation System", arXiv 1609.08144).

The first encoder layer reads in both directions; residual connections start at the third layer of either side (section 3.1, figure 1). The attention is additive over
the encoder's outputs (Bahdanau et al.), asked by the decoder's first layer; its context goes to that layer at the next step and to all other layers at this one. Batch 64 as
in ColRL (Mirhoseini et al., 2017), 1024 units, dropout 0.2 and gradients clipped to norm 5 as in section 8.2 of the paper. Ours: 50 words on either side, 32 000 word
pieces, gradient descent (with which the paper's training ends), no padding masks, no coverage penalty.
"""

from collections.abc import Callable, Sequence
from typing import Any

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.graph import Graph
from gdp.workloads.lstm_cell import State, lstm_step, zero_state
from gdp.workloads.training_step import Update, Weights, capture_plain_step


def gnmt_training(
    num_layers: int = 2,
    *,
    batch_size: int = 64,
    source_length: int = 50,
    target_length: int = 50,
    units: int = 1024,
    vocabulary: int = 32_000,
    dropout: float = 0.2,
) -> Graph:
    """The training step of `num_layers` layers on either side.

    Scopes, each with a `step_7` below it where it is unrolled: `encoder/embedding`, `encoder/layer_0/forwards` and `.../backwards`, `encoder/layer_1`, ...;
    `decoder/embedding`, `decoder/layer_0`, ..., `attention`, `softmax`.
    """
    tf = import_tensorflow()

    def loss(weights: Weights, source: Any, target: Any, next_target: Any) -> tuple[Any, Sequence[Any]]:
        memory = _encode(weights, source, num_layers=num_layers, units=units, vocabulary=vocabulary, dropout=dropout)
        hidden = _decode(weights, target, memory, num_layers=num_layers, vocabulary=vocabulary, dropout=dropout)
        with tf.name_scope("softmax"):
            rows = tf.reshape(tf.stack(hidden, axis=1), (-1, units))
            logits = tf.matmul(rows, weights("softmax/kernel", units, vocabulary))
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.reshape(next_target, (-1,)), logits=logits)
            return tf.reduce_mean(losses), ()

    return capture_plain_step(
        loss,
        [
            tf.TensorSpec((batch_size, length), tf.int32, name=name)
            for name, length in (("source", source_length), ("target", target_length), ("next_target", target_length))
        ],
        update=Update(optimizer="gradient-descent", clip_norm=5.0),
        source=f"GNMT, {num_layers} encoder and {num_layers} decoder layers of {units} units, {source_length} and {target_length} steps, batch {batch_size}, "
        f"{vocabulary} word pieces, training step, TensorFlow",
    )


def _encode(weights: Weights, source: Any, *, num_layers: int, units: int, vocabulary: int, dropout: float) -> list[Any]:
    """The outputs of the last layer, `[batch, units]` a step."""
    tf = import_tensorflow()
    batch_size = int(source.shape[0])
    with tf.name_scope("encoder/embedding"):
        sequence: list[Any] = tf.unstack(tf.gather(weights("encoder/embedding", vocabulary, units), source), axis=1)

    def run(name: str, inputs: Sequence[Any], order: Callable[[Any], Any]) -> list[Any]:
        state, outputs = zero_state(batch_size, units), {}
        for step in order(range(len(inputs))):
            with tf.name_scope(f"{name}/step_{step}"):
                state = lstm_step(weights, name, inputs[step], state, dropout=dropout)
            outputs[step] = state[0]
        return [outputs[step] for step in range(len(inputs))]

    both = [run("encoder/layer_0/forwards", sequence, list), run("encoder/layer_0/backwards", sequence, reversed)]
    for layer in range(1, num_layers):
        inputs = []
        for step in range(len(sequence)):
            with tf.name_scope(f"encoder/layer_{layer}/input_{step}"):
                inputs.append(tf.concat([one[step] for one in both], 1) if layer == 1 else sequence[step])
        outputs = run(f"encoder/layer_{layer}", inputs, list)
        for step in range(len(sequence)):
            with tf.name_scope(f"encoder/layer_{layer}/output_{step}"):
                sequence[step] = outputs[step] + inputs[step] if layer >= 2 else outputs[step]
    return sequence


def _decode(weights: Weights, target: Any, memory: Sequence[Any], *, num_layers: int, vocabulary: int, dropout: float) -> list[Any]:
    """The outputs of the last layer, `[batch, units]` a step."""
    tf = import_tensorflow()
    batch_size, units = memory[0].shape
    with tf.name_scope("decoder/embedding"):
        inputs = tf.unstack(tf.gather(weights("decoder/embedding", vocabulary, units), target), axis=1)
    with tf.name_scope("attention"):
        values = tf.stack(memory, axis=1)
        keys = tf.reshape(tf.matmul(tf.reshape(values, (-1, units)), weights("attention/keys", units, units)), values.shape)
        query_kernel, score = weights("attention/query", units, units), weights("attention/score", units)
        context = tf.zeros((batch_size, units))
    states: list[State] = [zero_state(batch_size, units) for _ in range(num_layers)]
    outputs = []
    for step, x in enumerate(inputs):
        for layer in range(num_layers):
            name = f"decoder/layer_{layer}"
            with tf.name_scope(f"{name}/step_{step}"):
                states[layer] = lstm_step(weights, name, tf.concat([x, context], 1), states[layer], dropout=dropout)
                x = states[layer][0] + x if layer >= 2 else states[layer][0]
            if layer == 0:
                with tf.name_scope(f"attention/step_{step}"):
                    query = tf.expand_dims(tf.matmul(x, query_kernel), 1)
                    energy = tf.reduce_sum(score * tf.tanh(keys + query), axis=2)
                    weight = tf.expand_dims(tf.nn.softmax(energy), 1)
                    context = tf.squeeze(tf.matmul(weight, values), 1)
        outputs.append(x)
    return outputs
