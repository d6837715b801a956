"""Captured from real TensorFlow programs: what becomes of their nodes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gdp.capture.tensorflow import capture_concrete_function, capture_graph_def
from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_lowering import lower
from gdp.capture.tensorflow_training import capture_training_step, trace_training_step
from gdp.errors import InputError
from gdp.graph import CONTROL, Graph, Phase

pytestmark = pytest.mark.tensorflow

BATCH, FEATURES, HIDDEN, CLASSES = 8, 20, 30, 10


@pytest.fixture(scope="module")
def tf() -> Any:
    return import_tensorflow()


def consumers(graph: Graph, name: str) -> list[str]:
    edges = np.flatnonzero(graph.edge_producer == graph.name.index(name))
    return [graph.name[op] for op in graph.edge_consumer[edges]]


def dense_model() -> tuple[Any, Any]:
    import keras

    keras.utils.clear_session()
    model = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(HIDDEN, activation="relu"), keras.layers.Dense(CLASSES)])
    return model, keras.optimizers.SGD(0.1, momentum=0.9)


def dense_loss(labels: Any, predictions: Any) -> Any:
    return (labels - predictions) ** 2


@pytest.fixture(scope="module")
def dense(tf: Any) -> Graph:
    model, optimizer = dense_model()
    return capture_training_step(
        model,
        dense_loss,
        optimizer,
        inputs=tf.TensorSpec((BATCH, FEATURES)),
        labels=tf.TensorSpec((BATCH, CLASSES)),
        source="two dense layers",
    )


def test_matrix_product(tf: Any) -> None:
    function = tf.function(lambda a, b: tf.matmul(a, b, transpose_b=True) + 1.0).get_concrete_function(
        tf.TensorSpec((6, 7), name="a"), tf.TensorSpec((5, 7), name="b")
    )
    graph = capture_concrete_function(function, source="a product")
    assert dict(zip(graph.name, graph.op_type, strict=True)) == {
        "a": "Placeholder",
        "b": "Placeholder",
        "MatMul": "MatMul",
        "add/y": "Const",
        "add": "AddV2",
        "Identity": "Identity",
    }
    product = graph.name.index("MatMul")
    assert graph.flops[product] == 2 * 6 * 7 * 5
    assert graph.accessed_bytes[product] == 4 * (6 * 7 + 5 * 7 + 6 * 5)
    assert graph.flops.sum() == 2 * 6 * 7 * 5 + 6 * 5
    assert consumers(graph, "MatMul") == ["add"]
    tensor = graph.tensor_producer.tolist().index(product)
    assert (graph.tensor_shape[tensor], graph.tensor_dtype[tensor], graph.tensor_bytes[tensor]) == ((6, 5), "float32", 120)
    assert set(graph.phase.tolist()) == {Phase.FORWARD}


def test_training_step_has_the_products_of_its_layers(dense: Graph) -> None:
    """A dense layer's gradient takes two products of the same size, the first layer's only one: nobody asks for the gradient of the data."""
    first, second = 2 * BATCH * FEATURES * HIDDEN, 2 * BATCH * HIDDEN * CLASSES
    products = np.array([kind == "MatMul" for kind in dense.op_type])
    assert dense.flops[products & (dense.phase == Phase.FORWARD)].sum() == first + second
    assert dense.flops[products & (dense.phase == Phase.BACKWARD)].sum() == first + 2 * second
    assert not (products & (dense.phase == Phase.UPDATE)).any()


def test_an_einsum_has_the_operations_of_its_equation(tf: Any) -> None:
    function = tf.function(lambda a, b: tf.einsum("btnh,bsnh->bnts", a, b)).get_concrete_function(
        tf.TensorSpec((2, 3, 4, 5)), tf.TensorSpec((2, 6, 4, 5))
    )
    graph = capture_concrete_function(function, source="scores")
    assert graph.flops[graph.op_type.index("Einsum")] == 2 * 2 * 3 * 4 * 5 * 6


def test_parameters_are_where_their_variable_is(dense: Graph) -> None:
    weights = 4 * (FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
    counter_and_rate = 8 + 4
    assert dense.param_bytes.sum() == 2 * weights + counter_and_rate  # the weights and their momenta
    assert {dense.op_type[op] for op in np.flatnonzero(dense.param_bytes)} == {"VarHandleOp"}


def test_whoever_takes_a_handle_shares_its_device(dense: Graph) -> None:
    handles = [op for op in range(dense.num_ops) if dense.op_type[op] == "VarHandleOp"]
    groups = dense.colocation_group[handles]
    assert (groups >= 0).all() and len(set(groups.tolist())) == len(handles) == 10
    for handle in handles:
        takers = {dense.name.index(name) for name in consumers(dense, dense.name[handle])}
        assert set(np.flatnonzero(dense.colocation_group == dense.colocation_group[handle]).tolist()) == {handle} | takers
    products = [op for op in range(dense.num_ops) if dense.op_type[op] == "MatMul"]
    assert set(dense.colocation_group[products].tolist()) == {Graph.NO_GROUP}


def test_phases_of_a_training_step(dense: Graph) -> None:
    for op in range(dense.num_ops):
        kind, name = dense.op_type[op], dense.name[op]
        if name.startswith("gradient_tape/"):
            assert dense.phase[op] == Phase.BACKWARD, name
        elif kind.startswith("Assign") or (name.startswith("sgd/") and kind != "NoOp"):
            assert dense.phase[op] == Phase.UPDATE, name
        elif name.startswith("sequential"):
            assert dense.phase[op] == Phase.FORWARD, name
    assert {int(phase) for phase in dense.phase} == set(Phase)


def test_control_dependencies_are_tensors_without_bytes(dense: Graph) -> None:
    control = [tensor for tensor in range(dense.num_tensors) if dense.tensor_dtype[tensor] == CONTROL]
    producers = dense.tensor_producer[control].tolist()
    assert len(producers) == len(set(producers)) > 0
    assert dense.tensor_bytes[control].sum() == 0
    # The step has ended when every weight is written.
    last = dense.op_type.index("NoOp")
    awaited = {dense.op_type[op] for op in dense.edge_producer[dense.edge_consumer == last]}
    assert {"AssignVariableOp", "AssignAddVariableOp"} <= awaited
    pairs = np.stack([dense.edge_producer, dense.edge_consumer], axis=1)
    of_control = np.isin(dense.edge_tensor, control)
    assert not {tuple(pair) for pair in pairs[of_control].tolist()} & {tuple(pair) for pair in pairs[~of_control].tolist()}


def test_control_edge_of_a_graph_def(tf: Any) -> None:
    with tf.Graph().as_default() as traced:
        first = tf.constant(1.0, name="first")
        with tf.control_dependencies([first]):
            tf.constant(2.0, name="second")
        tf.identity(first, name="third")
    graph_def = traced.as_graph_def()
    graph_def.node[2].input.append("^first")  # says nothing that its data does not say
    graph = capture_graph_def(graph_def, keep=[], source="two constants")
    edges = [
        (graph.name[graph.edge_producer[edge]], graph.tensor_dtype[graph.edge_tensor[edge]], graph.name[graph.edge_consumer[edge]])
        for edge in range(graph.num_edges)
    ]
    assert sorted(edges) == [("first", CONTROL, "second"), ("first", "float32", "third")]


def test_names_of_colocated_ops_hold_them_together(tf: Any) -> None:
    with tf.Graph().as_default() as traced:
        first = tf.constant(1.0, name="first")
        with tf.compat.v1.colocate_with(first):
            tf.constant(2.0, name="second")
        tf.constant(3.0, name="third")
    graph = capture_graph_def(traced.as_graph_def(), keep=[], source="three constants")
    assert graph.colocation_group.tolist() == [0, 0, Graph.NO_GROUP]


def test_lowered_step_computes_what_the_function_computes(tf: Any) -> None:
    """The same loss and the same weights after two steps, run as TensorFlow runs a GraphDef."""
    model, optimizer = dense_model()
    step = trace_training_step(
        model, dense_loss, optimizer, inputs=tf.TensorSpec((BATCH, FEATURES)), labels=tf.TensorSpec((BATCH, CLASSES))
    )
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(BATCH, FEATURES)).astype(np.float32), generator.normal(size=(BATCH, CLASSES)).astype(np.float32)
    lowered = lower(step)
    start = {node: variable.numpy() for node, variable in lowered.variables}
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(lowered.graph_def, name="")
        handles = {node: graph.get_tensor_by_name(f"{node}:0") for node in start}
        fill = [tf.raw_ops.AssignVariableOp(resource=handles[node], value=value) for node, value in start.items()]
        read = [tf.raw_ops.ReadVariableOp(resource=handles[node], dtype=value.dtype) for node, value in start.items()]
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(fill)
            feed = {f"{node}:0": value for node, value in zip(lowered.inputs, (x, y), strict=True)}
            theirs = [session.run([lowered.outputs, lowered.targets], feed)[0][0] for _ in range(2)]
            weights = session.run(read)
    ours = [step(tf.constant(x), tf.constant(y)).numpy() for _ in range(2)]
    np.testing.assert_allclose(theirs, ours, rtol=1e-5)  # float32 sums in another order
    assert theirs[1] < theirs[0]
    for (_, variable), value in zip(lowered.variables, weights, strict=True):
        np.testing.assert_allclose(value, variable.numpy(), rtol=1e-4, atol=1e-6)
    assert len(start) == len(model.variables) + len(optimizer.variables) == 10


def test_functions_that_are_called_are_flattened(tf: Any) -> None:
    weight = tf.Variable(tf.ones((7, 5)))

    @tf.function
    def inner(x: Any) -> Any:
        return tf.nn.relu(tf.matmul(x, weight))

    @tf.function
    def outer(x: Any) -> Any:
        with tf.GradientTape() as tape:
            value = tf.reduce_sum(inner(x))
        weight.assign_sub(tape.gradient(value, weight))
        return value

    graph = capture_concrete_function(outer.get_concrete_function(tf.TensorSpec((6, 7))), source="a call")
    assert "StatefulPartitionedCall" not in graph.op_type and "PartitionedCall" not in graph.op_type
    products = [op for op in range(graph.num_ops) if graph.op_type[op] == "MatMul"]
    assert graph.flops[products].tolist() == [2 * 6 * 7 * 5] * 2
    assert graph.phase[products].tolist() == [Phase.FORWARD, Phase.BACKWARD]
    assert graph.param_bytes.sum() == 4 * 7 * 5
    assert "AssignSubVariableOp" in graph.op_type
    # The handle passes through the call: its reader inside and its writer outside share a device.
    held = {
        graph.op_type[op] for op in np.flatnonzero(graph.colocation_group == graph.colocation_group[graph.op_type.index("VarHandleOp")])
    }
    assert {"VarHandleOp", "ReadVariableOp", "AssignSubVariableOp"} <= held


def test_functions_that_ask_to_stay_whole_are_flattened(tf: Any) -> None:
    compiled = tf.function(lambda x: tf.nn.relu(x), jit_compile=True)
    whole = tf.function(lambda x: tf.exp(x), experimental_attributes={"_noinline": True})
    outer = tf.function(lambda x: whole(compiled(x)) + 1.0)
    graph = capture_concrete_function(outer.get_concrete_function(tf.TensorSpec((6,))), source="two calls")
    assert [graph.op_type[op] for op in np.flatnonzero(graph.works)] == ["Relu", "Exp", "AddV2"]


def test_signature_of_a_saved_model(tf: Any, tmp_path: Path) -> None:
    model, _ = dense_model()
    model.export(str(tmp_path), verbose=False, input_signature=[tf.TensorSpec((BATCH, FEATURES))])
    loaded = tf.saved_model.load(str(tmp_path))
    graph = capture_concrete_function(loaded.signatures["serving_default"], source="saved")
    products = [op for op in range(graph.num_ops) if graph.op_type[op] == "MatMul"]
    assert graph.flops[products].tolist() == [2 * BATCH * FEATURES * HIDDEN, 2 * BATCH * HIDDEN * CLASSES]
    assert graph.param_bytes.sum() == 4 * (FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
    assert graph.colocation_group[products].tolist() == [Graph.NO_GROUP] * 2
    assert set(graph.phase[products].tolist()) == {Phase.FORWARD}


def test_what_nothing_needs_is_left_out(tf: Any) -> None:
    @tf.function
    def half_used(x: Any) -> Any:
        tf.exp(x, name="unused")
        return x + 1.0

    graph = capture_concrete_function(half_used.get_concrete_function(tf.TensorSpec((6,))), source="half used")
    assert "unused" not in graph.name and "Exp" not in graph.op_type


def test_of_several_outputs_only_those_that_are_read_are_tensors(tf: Any) -> None:
    function = tf.function(lambda x: tf.unstack(x)[1] * 2.0).get_concrete_function(tf.TensorSpec((3, 5)))
    graph = capture_concrete_function(function, source="one of three")
    made = graph.tensor_producer == graph.op_type.index("Unpack")
    assert made.sum() == 1
    assert graph.tensor_producer.tolist().count(graph.op_type.index("Identity")) == 1  # the result, which only the caller reads


def test_gradients_do_not_meet_in_one_op(dense: Graph, tf: Any) -> None:
    model, optimizer = dense_model()
    step = trace_training_step(
        model, dense_loss, optimizer, inputs=tf.TensorSpec((BATCH, FEATURES)), labels=tf.TensorSpec((BATCH, CLASSES))
    )
    traced = [node for node in step.graph.as_graph_def().node if node.op == "IdentityN"]
    assert [len(node.input) for node in traced] == [8]  # four gradients, for the pass and for the gradient of the pass
    assert "IdentityN" not in dense.op_type
    parts = {traced[0].name, *(f"{traced[0].name}_tensor_{index}" for index in range(1, 8))}
    assert len(parts & set(dense.name)) == 4  # the other four are not needed


def test_constants_are_folded(tf: Any) -> None:
    function = tf.function(lambda x: tf.reshape(x, tf.concat([tf.shape(x)[:1] * 2, [-1]], 0)) * (tf.constant(2.0) + 3.0))
    graph = capture_concrete_function(function.get_concrete_function(tf.TensorSpec((6, 8))), source="shape arithmetic")
    assert [graph.op_type[op] for op in np.flatnonzero(graph.works)] == ["Mul"]


def test_loop_is_refused(tf: Any) -> None:
    function = tf.function(lambda n: tf.while_loop(lambda i: i < n, lambda i: i + 1, [0]))
    with pytest.raises(InputError, match=r"node 'while' of 'a loop' is a StatelessWhile: .*unroll the loop"):
        capture_concrete_function(function.get_concrete_function(tf.TensorSpec((), tf.int32)), source="a loop")


def test_branch_on_data_is_refused(tf: Any) -> None:
    function = tf.function(lambda x: tf.cond(x[0] > 0.0, lambda: x * 2.0, lambda: x + 1.0))
    with pytest.raises(InputError, match=r"node 'cond' of 'a branch' is a StatelessIf: .*make the condition a Python value"):
        capture_concrete_function(function.get_concrete_function(tf.TensorSpec((6,))), source="a branch")


def test_recurrent_layer_is_refused_rolled_and_captured_unrolled(tf: Any) -> None:
    import keras

    def capture(unroll: bool) -> Graph:
        model = keras.Sequential([keras.Input((4, 3)), keras.layers.LSTM(5, unroll=unroll, use_cudnn=False)])
        return capture_concrete_function(tf.function(model).get_concrete_function(tf.TensorSpec((2, 4, 3))), source="LSTM")

    with pytest.raises(InputError, match="unroll=True"):
        capture(False)
    graph = capture(True)
    steps, gates = 4, 4 * 5
    assert graph.flops[[kind == "MatMul" for kind in graph.op_type]].sum() == steps * 2 * 2 * (3 + 5) * gates


def test_cyclic_graph_def_is_refused(tf: Any) -> None:
    graph_def = tf.compat.v1.GraphDef()
    for name, producer in (("a", "c"), ("b", "a"), ("c", "b")):
        node = graph_def.node.add(name=name, op="Identity", input=[producer])
        node.attr["T"].type = tf.float32.as_datatype_enum
    with pytest.raises(InputError, match="circle.*'?a.* -> "):
        capture_graph_def(graph_def, keep=[], source="a circle")


def test_loop_of_tensorflow_1_is_refused(tf: Any) -> None:
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="again", op="NextIteration", input=["again"])
    with pytest.raises(InputError, match="'again' of 'v1' is a NextIteration"):
        capture_graph_def(graph_def, keep=[], source="v1")


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "has no nodes"),
        ([("a", "NoOp", []), ("a", "NoOp", [])], "2 nodes .* are named 'a'"),
        ([("a", "NoOp", ["^b"])], r"node 'a' .* takes '\^b', which is no node"),
        ([("a", "NoSuchOp", [])], "not one that TensorFlow can load"),
        ([("a", "PartitionedCall", [])], "node 'a' .* calls a function"),
        ([("a", "Identity", [])], "not one that TensorFlow can load"),
    ],
)
def test_wrong_graph_def_is_refused(tf: Any, nodes: list[tuple[str, str, list[str]]], message: str) -> None:
    graph_def = tf.compat.v1.GraphDef()
    for name, kind, inputs in nodes:
        graph_def.node.add(name=name, op=kind, input=inputs)
    with pytest.raises(InputError, match=message):
        capture_graph_def(graph_def, keep=[], source="wrong")


def test_asking_for_a_node_that_is_not_there(tf: Any) -> None:
    graph_def = tf.compat.v1.GraphDef()
    graph_def.node.add(name="a", op="NoOp")
    with pytest.raises(InputError, match="'b' is to be kept but is no node"):
        capture_graph_def(graph_def, keep=["b:0"], source="one node")


def test_unknown_shapes_are_refused_with_the_remedy(tf: Any) -> None:
    function = tf.function(lambda x: tf.exp(x) + 1.0).get_concrete_function(tf.TensorSpec((None, 7)))
    with pytest.raises(InputError, match=r"2 of the 2 tensors .* have an unknown extent.*static shapes"):
        capture_concrete_function(function, source="any batch")


def test_few_unknown_shapes_are_told(tf: Any) -> None:
    def mostly_known(x: Any) -> Any:
        for _ in range(40):
            x = tf.exp(x)
        return tf.boolean_mask(x, x > 0.0)

    graph = capture_concrete_function(tf.function(mostly_known).get_concrete_function(tf.TensorSpec((7,))), source="a mask")
    assert graph.source == "a mask; 2 tensors of unknown extent, counted as one"
    assert any(-1 in shape for shape in graph.tensor_shape)


def test_variables_that_are_gone_are_missed(tf: Any) -> None:
    def traced() -> Any:
        weight = tf.Variable(1.0)
        return tf.function(lambda x: x * weight).get_concrete_function(tf.TensorSpec(()))

    with pytest.raises(InputError, match="variables that no longer exist; keep the model"):
        capture_concrete_function(traced(), source="gone")
