"""A concrete function, flattened into the one GraphDef that is captured, placed, annotated with devices and run."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from gdp.capture.tensorflow_import import import_tensorflow
from gdp.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lowered:
    """A flat GraphDef: no function calls, variables as `VarHandleOp`."""

    graph_def: Any
    """`tf.compat.v1.GraphDef` with static shapes in the attribute `_output_shapes`."""
    inputs: tuple[str, ...]
    """names of the `Placeholder` nodes of the function's arguments, in order."""
    outputs: tuple[str, ...]
    """tensor names, `node:index`, of the function's results, in order."""
    targets: tuple[str, ...]
    """nodes that must run, too, for their effects: assignments of variables."""
    variables: tuple[tuple[str, Any], ...]
    """each `VarHandleOp` node with the `tf.Variable` it stands for."""
    captured: tuple[tuple[str, Any], ...] = ()
    """each `Placeholder` node that stands for a tensor from outside the function, which is no argument, with that tensor."""


def lower(concrete_function: Any) -> Lowered:
    """Flattens a `tf.types.experimental.ConcreteFunction`.

    Variables stay variables: the placeholders through which the function captured their handles become `VarHandleOp` nodes, so that a variable is an op that
    lives somewhere. Calls of other functions are inlined (grappler's function optimizer, nothing else of it). `IdentityN`, through which Keras hands all gradients
    to the optimiser at once, becomes one `Identity` per tensor: in a placed graph it would draw every gradient to one device and wait for the last.

    Raises:
        InputError: when variables of the function have been deleted since it was traced.
    """
    tf = import_tensorflow()
    graph = concrete_function.graph
    graph_def = graph.as_graph_def()
    variables = _replace_captured_handles(tf, concrete_function, graph_def)
    outputs = tuple(tensor.name for tensor in concrete_function.outputs)
    targets = tuple(dict.fromkeys(op.name for op in graph.control_outputs))
    closed_over = {internal.name for _, internal in graph.captures}
    inputs = tuple(tensor.op.name for tensor in graph.inputs if tensor.name not in closed_over)
    handles = {name for name, _ in variables}
    captured = tuple((internal.op.name, external) for external, internal in graph.captures if internal.op.name not in handles)
    if any(node.op in _CALLS or node.op in {function.signature.name for function in graph_def.library.function} for node in graph_def.node):
        graph_def = _inline(tf, graph_def, [*inputs, *outputs, *targets])
    _split_identity_n(graph_def)
    left = {node.name for node in graph_def.node}
    return Lowered(
        graph_def=_with_shapes(tf, graph_def),
        inputs=inputs,
        outputs=outputs,
        targets=targets,
        variables=variables,
        captured=tuple((name, value) for name, value in captured if name in left),
    )


_CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
_AGAINST_INLINING = ("api_implements", "_noinline", "_XlaMustCompile")
"""What keeps a function whole: a twin for GPUs, chosen later (Keras); its author's wish; compilation by XLA. Placing ops one by one undoes all three."""


def _replace_captured_handles(tf: Any, concrete_function: Any, graph_def: Any) -> tuple[tuple[str, Any], ...]:
    try:
        variable_of_handle = {id(variable.handle): variable for variable in concrete_function.graph.variables}
    except AssertionError as error:
        raise InputError(
            f"the concrete function {concrete_function.name!r} uses variables that no longer exist; keep the model and the optimiser that own them alive"
        ) from error
    nodes = {node.name: node for node in graph_def.node}
    replaced = []
    for external, internal in concrete_function.graph.captures:
        variable = variable_of_handle.get(id(external))
        if variable is None:
            continue
        node = nodes[internal.op.name]
        node.op = "VarHandleOp"
        node.ClearField("attr")
        node.attr["dtype"].type = variable.dtype.as_datatype_enum
        node.attr["shape"].shape.CopyFrom(variable.shape.as_proto())
        node.attr["shared_name"].s = node.name.encode()
        replaced.append((node.name, variable))
    return tuple(replaced)


def _inline(tf: Any, graph_def: Any, kept: Sequence[str]) -> Any:
    """The GraphDef after grappler's function optimizer alone; nodes that `kept` names, as nodes or tensors, survive under their names."""
    from tensorflow.python.grappler import tf_optimizer

    called = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    for holder in [*graph_def.library.function, *called]:
        for attribute in _AGAINST_INLINING:
            holder.attr.pop(attribute, None)
    for node in called:
        if "_lower_using_switch_merge" in node.attr:
            node.attr["_lower_using_switch_merge"].b = False
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
        meta_graph = tf.compat.v1.train.export_meta_graph(graph=graph)
    meta_graph.collection_def["train_op"].node_list.value.extend(kept)
    config = tf.compat.v1.ConfigProto()
    rewrite = config.graph_options.rewrite_options
    rewrite.min_graph_nodes = -1
    rewrite.meta_optimizer_iterations = 1
    rewrite.optimizers.append("function")
    return tf_optimizer.OptimizeGraph(config, meta_graph)


def _split_identity_n(graph_def: Any) -> None:
    width = {node.name: len([one for one in node.input if not one.startswith("^")]) for node in graph_def.node if node.op == "IdentityN"}
    if not width:
        return
    taken = {node.name for node in graph_def.node}
    parts: dict[str, list[str]] = {}
    for name, count in width.items():
        # The first keeps the name, so that `name` and `name:0` remain what they were.
        parts[name] = [name, *(f"{name}_tensor_{index}" for index in range(1, count))]
        assert taken.isdisjoint(parts[name][1:])
    before = list(graph_def.node)
    del graph_def.node[:]
    for node in before:
        rewired = []
        for one in node.input:
            producer, _, index = one.removeprefix("^").partition(":")
            if producer not in parts:
                rewired.append(one)
            elif one.startswith("^"):
                rewired.extend(f"^{part}" for part in parts[producer])
            else:
                rewired.append(parts[producer][int(index or 0)])
        del node.input[:]
        node.input.extend(dict.fromkeys(one for one in rewired if one.startswith("^")) if not rewired else rewired)
        if node.op != "IdentityN":
            graph_def.node.add().CopyFrom(node)
            continue
        control = [one for one in rewired if one.startswith("^")]
        for index, part in enumerate(parts[node.name]):
            identity = graph_def.node.add(name=part, op="Identity", input=[rewired[index], *control], device=node.device)
            identity.attr["T"].type = node.attr["T"].list.type[index]


def _with_shapes(tf: Any, graph_def: Any) -> Any:
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(graph_def, name="")
    return graph.as_graph_def(add_shapes=True)
