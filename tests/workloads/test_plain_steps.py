"""Training steps written in plain TensorFlow ops: small ones, against what can be counted by hand."""

import numpy as np
import pytest

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.graph import Graph, Phase
from gdp.workloads.training_step import Update, Weights, capture_plain_step

pytestmark = pytest.mark.tensorflow


def one_product(update: Update) -> Graph:
    tf = import_tensorflow()

    def loss(weights: Weights, x: object) -> tuple[object, list[object]]:
        with tf.name_scope("layer_0"):
            hidden = tf.matmul(x, weights("kernel", 16, 32))
            twice = tf.matmul(tf.matmul(hidden, weights("square", 32, 32)), weights("square", 32, 32))
        return tf.reduce_sum(twice), [hidden]

    return capture_plain_step(loss, [tf.TensorSpec((8, 16), tf.float32, name="x")], update=update, source="two products")


def kinds(graph: Graph, phase: Phase) -> list[str]:
    return [kind for kind, one in zip(graph.op_type, graph.phase, strict=True) if one == phase]


def test_a_step_of_gradient_descent() -> None:
    graph = one_product(Update(optimizer="gradient-descent"))
    assert graph.param_bytes.sum() == 4 * (16 * 32 + 32 * 32)
    assert kinds(graph, Phase.FORWARD).count("MatMul") == 3
    assert (
        kinds(graph, Phase.BACKWARD).count("MatMul") == 5
    )  # two of each square product, one of the first, whose input is no one's to learn
    assert kinds(graph, Phase.UPDATE).count("ResourceApplyGradientDescent") == 2
    # A weight is read once, however often it is used.
    assert graph.op_type.count("ReadVariableOp") == 2


def test_adam_keeps_two_slots_where_the_weight_is() -> None:
    graph = one_product(Update(optimizer="adam"))
    assert graph.param_bytes.sum() == 4 * (3 * (16 * 32 + 32 * 32) + 2)
    for op in np.flatnonzero(np.array(graph.op_type) == "ResourceApplyAdam"):
        together = graph.colocation_group == graph.colocation_group[op]
        assert np.count_nonzero(graph.param_bytes[together]) == 3
        assert len(set(graph.param_bytes[together & (graph.param_bytes > 0)].tolist())) == 1


def test_clipping_waits_for_every_gradient() -> None:
    graph = one_product(Update(optimizer="gradient-descent", clip_norm=1.0))
    before: list[set[int]] = [set() for _ in range(graph.num_ops)]
    for producer, consumer in sorted(
        zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True), key=lambda edge: edge[1]
    ):
        before[consumer] |= before[producer] | {producer}
    gradients = {op for op in range(graph.num_ops) if graph.op_type[op] == "L2Loss"}
    assert len(gradients) == 2
    for op in range(graph.num_ops):
        if graph.op_type[op] == "ResourceApplyGradientDescent":
            assert gradients <= before[op]


def test_rows_looked_up_are_the_only_ones_updated() -> None:
    from gdp.workloads.rnnlm import rnnlm_training

    graph = rnnlm_training(2, batch_size=2, num_steps=3, units=8, vocabulary=11)
    assert graph.op_type.count("ResourceScatterSub") == 1
    assert kinds(graph, Phase.FORWARD).count("MatMul") == 2 * 3 + 1
    assert kinds(graph, Phase.BACKWARD).count("MatMul") == 2 * (2 * 3 + 1)
    assert graph.param_bytes.sum() == 4 * (2 * 11 * 8 + 11 + 2 * (16 * 32 + 32))


def test_the_same_graph_every_time() -> None:
    from gdp.workloads.gnmt import gnmt_training

    size = {"batch_size": 2, "source_length": 3, "target_length": 2, "units": 8, "vocabulary": 11}
    assert gnmt_training(3, **size).sha256 == gnmt_training(3, **size).sha256


def test_every_encoder_step_reaches_every_decoder_step() -> None:
    """Attention and the two directions: the last output of the decoder depends on each word, the first one on no later target."""
    from gdp.workloads.gnmt import gnmt_training

    graph = gnmt_training(3, batch_size=2, source_length=3, target_length=2, units=8, vocabulary=11, dropout=0.0)
    reached: dict[str, set[int]] = {}
    after: list[set[int]] = [set() for _ in range(graph.num_ops)]
    for producer, consumer in sorted(
        zip(graph.edge_producer.tolist(), graph.edge_consumer.tolist(), strict=True), key=lambda edge: -edge[0]
    ):
        after[producer] |= after[consumer] | {consumer}
    for op, name in enumerate(graph.name):
        if name.endswith("/MatMul") and not name.startswith("gradient_tape"):
            reached[name.removesuffix("/MatMul")] = {int(i) for i in after[op]}
    products = {scope: graph.name.index(f"{scope}/MatMul") for scope in reached}
    decoder = [products[f"decoder/layer_2/step_{step}"] for step in range(2)]
    for direction in ("forwards", "backwards"):
        for step in range(3):
            assert set(decoder) <= reached[f"encoder/layer_0/{direction}/step_{step}"]
    assert decoder[0] not in reached["decoder/layer_0/step_1"]
    assert decoder[1] in reached["decoder/layer_0/step_0"]


def test_the_memory_of_transformer_xl_is_read_and_handed_on() -> None:
    from gdp.workloads.transformer_xl import transformer_xl_training

    graph = transformer_xl_training(2, batch_size=2, length=4, memory=6, width=16, num_heads=2, inner=32, vocabulary=11)
    shapes = {graph.name[op]: shape for op, shape in zip(graph.tensor_producer.tolist(), graph.tensor_shape, strict=True)}
    assert [shapes[f"memory_{layer}"] for layer in range(2)] == [(2, 6, 16)] * 2
    results = [name for name in graph.name if name.startswith("Identity")]
    assert sorted(shapes[name] for name in results) == [(), (2, 6, 16), (2, 6, 16)]


def test_transformer_xl_sees_positions_at_their_distance() -> None:
    """The shift of appendix B: row `i` of the scores of distances `span - 1` to 0 ends up with distance `i + memory - j` at column `j`."""
    tf = import_tensorflow()
    length, memory = 3, 2
    span = length + memory
    distance = tf.broadcast_to(tf.range(span - 1, -1, -1)[None, None, None], (1, 1, length, span))
    from gdp.workloads.transformer_xl import shifted

    moved = shifted(distance).numpy()[0, 0]
    for row in range(length):
        for column in range(row + memory + 1):
            assert moved[row, column] == row + memory - column
