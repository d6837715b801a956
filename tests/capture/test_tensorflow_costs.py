"""Closed forms of the costs, and TensorFlow's own profiler as a second judge."""

from collections.abc import Mapping

import pytest

from gdp.capture.tensorflow_costs import OpShapes, Shape, accessed_bytes, flops


def op(
    kind: str, inputs: list[Shape], outputs: list[Shape], attributes: Mapping[str, object] | None = None, *, num_handles: int = 0
) -> OpShapes:
    """An op on float32 tensors."""
    return OpShapes(
        op_type=kind,
        input_shapes=tuple(inputs),
        input_bytes=tuple(4 * elements(shape) for shape in inputs),
        output_shapes=tuple(outputs),
        output_bytes=tuple(4 * elements(shape) for shape in outputs),
        num_handles=num_handles,
        attributes=attributes or {},
    )


def elements(shape: Shape) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


IMAGE, RESULT, FILTER = (2, 8, 8, 3), (2, 4, 4, 5), (3, 3, 3, 5)
# Each of the 2*4*4*5 results is a sum of 3*3*3 products, so is what goes back through it.
CONVOLUTION = 2 * (2 * 4 * 4 * 5) * (3 * 3 * 3)

CASES = [
    (op("Conv2D", [IMAGE, FILTER], [RESULT]), CONVOLUTION),
    (op("Conv2DBackpropInput", [(4,), FILTER, RESULT], [IMAGE]), CONVOLUTION),
    (op("Conv2DBackpropFilter", [IMAGE, (4,), RESULT], [FILTER]), CONVOLUTION),
    (op("Conv2D", [(2, 8, 8, 6), (3, 3, 2, 9)], [(2, 8, 8, 9)]), 2 * (2 * 8 * 8 * 9) * (3 * 3 * 2)),  # three groups
    (op("Conv3D", [(1, 4, 4, 4, 2), (3, 3, 3, 2, 7)], [(1, 4, 4, 4, 7)]), 2 * (64 * 7) * (27 * 2)),
    (op("DepthwiseConv2dNative", [IMAGE, (3, 3, 3, 2)], [(2, 8, 8, 6)]), 2 * (2 * 8 * 8 * 6) * 9),
    (op("DepthwiseConv2dNativeBackpropInput", [(4,), (3, 3, 3, 2), (2, 8, 8, 6)], [IMAGE]), 2 * (2 * 8 * 8 * 6) * 9),
    (op("DepthwiseConv2dNativeBackpropFilter", [IMAGE, (4,), (2, 8, 8, 6)], [(3, 3, 3, 2)]), 2 * (2 * 8 * 8 * 6) * 9),
    (op("MatMul", [(6, 7), (7, 5)], [(6, 5)], {"transpose_a": False}), 2 * 6 * 7 * 5),
    (op("MatMul", [(7, 6), (7, 5)], [(6, 5)], {"transpose_a": True}), 2 * 6 * 7 * 5),
    (op("BatchMatMulV2", [(3, 6, 7), (3, 7, 5)], [(3, 6, 5)], {"adj_x": False}), 3 * 2 * 6 * 7 * 5),
    (op("BatchMatMulV2", [(3, 7, 6), (7, 5)], [(3, 6, 5)], {"adj_x": True}), 3 * 2 * 6 * 7 * 5),
    (op("Einsum", [(3, 6, 7), (7, 5)], [(3, 6, 5)], {"equation": "bmk,kn->bmn"}), 3 * 2 * 6 * 7 * 5),
    (op("Einsum", [(4, 3, 6, 7), (3, 7, 5)], [(4, 3, 6, 5)], {"equation": "...mk,...kn->...mn"}), 12 * 2 * 6 * 7 * 5),
    (op("AddV2", [(6, 5), (5,)], [(6, 5)]), 30),
    (op("BiasAdd", [(6, 5), (5,)], [(6, 5)]), 30),
    (op("AddN", [(6, 5)] * 4, [(6, 5)]), 3 * 30),
    (op("Sum", [(6, 5), (1,)], [(5,)]), 30),
    (op("BiasAddGrad", [(6, 5)], [(5,)]), 30),
    (op("MaxPool", [(2, 8, 8, 3)], [(2, 4, 4, 3)], {"ksize": [1, 2, 2, 1]}), (2 * 4 * 4 * 3) * 4),
    (op("MaxPoolGrad", [(2, 8, 8, 3), (2, 4, 4, 3), (2, 4, 4, 3)], [(2, 8, 8, 3)], {"ksize": [1, 2, 2, 1]}), (2 * 4 * 4 * 3) * 4),
    (op("AvgPoolGrad", [(4,), (2, 4, 4, 3)], [(2, 8, 8, 3)], {"ksize": [1, 2, 2, 1]}), (2 * 4 * 4 * 3) * 4),
    (op("FusedBatchNormV3", [IMAGE, (3,), (3,), (3,), (3,)], [IMAGE, (3,), (3,)], {"is_training": True}), 7 * 384),
    (op("FusedBatchNormV3", [IMAGE, (3,), (3,), (3,), (3,)], [IMAGE, (3,), (3,)], {"is_training": False}), 2 * 384),
    (op("FusedBatchNormGradV3", [IMAGE, IMAGE, (3,), (3,), (3,)], [IMAGE, (3,), (3,)], {"is_training": True}), 10 * 384),
    (op("Softmax", [(6, 5)], [(6, 5)]), 5 * 30),
    (op("ResourceApplyMomentum", [(), (6, 5), ()], [], num_handles=2), 4 * 30),
    (op("Transpose", [(6, 5), (2,)], [(5, 6)]), 0),
    (op("Reshape", [(6, 5), (1,)], [(30,)]), 0),
]


@pytest.mark.parametrize(("one", "expected"), CASES, ids=[f"{one.op_type}-{number}" for number, (one, _) in enumerate(CASES)])
def test_flops_are_those_of_the_closed_form(one: OpShapes, expected: int) -> None:
    assert flops(one) == expected


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (op("AddV2", [(6, 5), (5,)], [(6, 5)]), 4 * (30 + 5 + 30)),
        (op("MatMul", [(6, 7), (7, 5)], [(6, 5)], {"transpose_a": False}), 4 * (42 + 35 + 30)),
        (op("GatherV2", [(1000, 8), (3,), ()], [(3, 8)]), 4 * (24 + 24 + 3 + 1)),  # only the rows asked for
        (op("ResourceGather", [(3,)], [(3, 8)], num_handles=1), 4 * (24 + 24 + 3)),
        (op("Fill", [(2,), ()], [(6, 5)]), 4 * 30),
        (op("AssignAddVariableOp", [(6, 5)], [], num_handles=1), 3 * 4 * 30),  # reads the variable and the addend, writes the variable
        (op("ResourceApplyMomentum", [(), (6, 5), ()], [], num_handles=2), 5 * 4 * 30),
        *((op(kind, [(6, 5)], [(6, 5)]), 0) for kind in ("Identity", "Reshape", "Squeeze", "StopGradient", "Shape")),
        *((op(kind, [], [(6, 5)]), 0) for kind in ("Const", "Placeholder", "VarHandleOp")),
        (op("ReadVariableOp", [], [(6, 5)], num_handles=1), 0),
        (op("AssignVariableOp", [(6, 5)], [], num_handles=1), 0),
    ],
    ids=lambda value: value.op_type if isinstance(value, OpShapes) else "",
)
def test_bytes_are_what_is_read_and_written(one: OpShapes, expected: int) -> None:
    assert accessed_bytes(one) == expected


def test_unknown_extent_counts_as_one() -> None:
    one = op("MatMul", [(-1, 7), (7, 5)], [(-1, 5)], {"transpose_a": False})
    assert flops(one) == 2 * 7 * 5


@pytest.mark.tensorflow
def test_agrees_with_the_profiler_of_tensorflow() -> None:
    """On the op types that TensorFlow counts by the same convention: convolution and its gradients, matrix products.

    Where a stride does not divide the image, TensorFlow rounds the gradients' share differently; here it does.
    """
    from gdp.capture.tensorflow import capture_graph_def
    from gdp.capture.tensorflow_import import import_tensorflow

    tf = import_tensorflow()
    graph = tf.Graph()
    with graph.as_default():
        image = tf.compat.v1.placeholder(tf.float32, (2, 8, 8, 3))
        kernel = tf.compat.v1.placeholder(tf.float32, (3, 3, 3, 4))
        features = tf.nn.conv2d(image, kernel, strides=2, padding="SAME")
        depthwise = tf.nn.depthwise_conv2d(features, tf.ones((3, 3, 4, 2)), strides=(1, 1, 1, 1), padding="VALID")
        product = tf.matmul(tf.reshape(depthwise, (2, -1)), tf.compat.v1.placeholder(tf.float32, (6, 32)), transpose_b=True)
        tf.gradients(product, [image, kernel])
    captured = capture_graph_def(graph.as_graph_def(), keep=[], source="a small CNN")
    counted = {"Conv2D", "MatMul", "DepthwiseConv2dNative", "Conv2DBackpropInput", "Conv2DBackpropFilter"}
    profile = tf.compat.v1.profiler.profile(
        graph,
        cmd="scope",
        options=tf.compat.v1.profiler.ProfileOptionBuilder(tf.compat.v1.profiler.ProfileOptionBuilder.float_operation())
        .with_empty_output()
        .build(),
    )
    theirs: dict[str, float] = {}
    nodes = list(profile.children)
    while nodes:
        node = nodes.pop()
        nodes.extend(node.children)
        theirs[node.name] = node.float_ops
    ours = {
        name: amount for name, kind, amount in zip(captured.name, captured.op_type, captured.flops.tolist(), strict=True) if kind in counted
    }
    assert {captured.op_type[captured.name.index(name)] for name in ours} == counted
    assert ours == {name: theirs[name] for name in ours}
