"""TensorFlow programs -> `Graph`: a concrete function or a GraphDef, every node an op.

What becomes of what:

- a node is an op of the same name and type, its scope the `module_path`; nodes that neither a result nor an effect needs are left out, as TensorFlow's executor
  leaves them out;
- a variable is its `VarHandleOp`, which holds its bytes (`param_bytes`); ops that take the handle must share its device, as TensorFlow demands, and so
  must ops that name one another in `_class` (`loc:@...`);
- handles, strings and variants have no bytes; of several outputs, those that nobody reads are left out;
- control dependencies are one tensor of dtype `CONTROL` per producer, to those consumers that take no data from it;
- costs: `tensorflow_costs`; an op computed from constants and shapes alone, with at most 1 024 elements out, does no work, as TensorFlow folds it
  before the first step; scratch memory of kernels is not known to the graph and counts as none;
- phases: `tensorflow_phases`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gdp.capture.order import topological_order
from gdp.capture.tensorflow_colocation import colocation_groups
from gdp.capture.tensorflow_costs import BOOKKEEPING, OpShapes, accessed_bytes, flops
from gdp.capture.tensorflow_import import import_tensorflow
from gdp.capture.tensorflow_lowering import lower
from gdp.capture.tensorflow_phases import phases
from gdp.capture.tensorflow_tensors import WITHOUT_BYTES, elements, is_handle, shape_of, size_bytes, variable_bytes, writes_variable
from gdp.errors import InputError
from gdp.graph import CONTROL, Graph

_MAX_UNKNOWN_SHARE = 0.05
_MAX_FOLDED_ELEMENTS = 1024
_LOOPS = frozenset({"Enter", "RefEnter", "NextIteration", "RefNextIteration"})
_BRANCHES = frozenset({"While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase", "For"})
_SHAPE_QUERIES = frozenset({"Const", "Shape", "ShapeN", "Size", "Rank"})
_ASKED_ATTRIBUTES = ("transpose_a", "adj_x", "ksize", "equation", "is_training")


def capture_concrete_function(concrete_function: Any, *, source: str) -> Graph:
    """The graph of a TensorFlow 2 concrete function, flattened (see `lower`); ops are named as in `lower(concrete_function).graph_def`.

    Args:
        concrete_function: from `tf.function(...).get_concrete_function(...)`, with static shapes in its signature.
        source: what it is, for people.

    Raises:
        InputError: when it holds loops or branches that depend on data, or too many tensors of unknown shape (`capture_graph_def`).
    """
    lowered = lower(concrete_function)
    return capture_graph_def(lowered.graph_def, keep=[*lowered.inputs, *lowered.outputs, *lowered.targets], source=source)


def capture_graph_def(graph_def: Any, *, keep: Sequence[str], source: str) -> Graph:
    """The graph of a GraphDef without function calls.

    Args:
        graph_def: a `tf.compat.v1.GraphDef`.
        keep: nodes or tensors (`node:0`) that are asked for; ops that none of them needs are left out. Where it is empty every node stays.
        source: what it is, for people.

    Raises:
        InputError: when the GraphDef is wrong, cyclic, or holds loops, data-dependent branches or function calls, or when more than 5 % of the tensors that its
            working ops make have an unknown extent. Up to that share an unknown extent counts as one, and `Graph.source` says so.
    """
    tf = import_tensorflow()
    _check_structure(graph_def, source)
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.graph_util.import_graph_def(graph_def, name="")
    except (ValueError, KeyError, tf.errors.OpError) as error:
        raise InputError(f"the GraphDef of {source!r} is not one that TensorFlow can load: {str(error).splitlines()[0]}") from error
    traced = [graph.get_operation_by_name(node.name) for node in graph_def.node]
    ops = _needed(_ordered(traced), _asked(graph, keep, source)) if keep else _ordered(traced)
    return _build(ops, source)


def _check_structure(graph_def: Any, source: str) -> None:
    """Refuses what has no place in a flat graph, before TensorFlow sees it."""
    counts = Counter(node.name for node in graph_def.node)
    if not counts:
        raise InputError(f"the GraphDef of {source!r} has no nodes: there is nothing to place; capture a program that computes something")
    name, times = counts.most_common(1)[0]
    if times > 1:
        raise InputError(f"{times} nodes of the GraphDef of {source!r} are named {name!r}; give every node its own name")
    functions = {function.signature.name for function in graph_def.library.function}
    for node in graph_def.node:
        if node.op in _LOOPS or node.op in _BRANCHES:
            raise InputError(
                f"node {node.name!r} of {source!r} is a {node.op}: how long it runs depends on data, so it cannot be placed op by op; unroll the loop (Keras: "
                "`unroll=True`), or make the condition a Python value"
            )
        if node.op in functions or node.op in ("PartitionedCall", "StatefulPartitionedCall"):
            raise InputError(
                f"node {node.name!r} of {source!r} calls a function; capture the concrete function, which is flattened, instead"
            )
    place = {node.name: number for number, node in enumerate(graph_def.node)}
    edges = []
    for number, node in enumerate(graph_def.node):
        for one in node.input:
            producer = one.removeprefix("^").partition(":")[0]
            if producer not in place:
                raise InputError(f"node {node.name!r} of {source!r} takes {one!r}, which is no node of the GraphDef; give a complete one")
            edges.append((place[producer], number))
    topological_order(len(place), _rows(edges), list(place))


def _ordered(traced: Sequence[Any]) -> list[Any]:
    """The operations in topological order, as they were traced wherever that is one."""
    place = {op.name: number for number, op in enumerate(traced)}
    edges = [
        (place[producer.name], number)
        for number, op in enumerate(traced)
        for producer in (*(tensor.op for tensor in op.inputs), *op.control_inputs)
    ]
    return [traced[op] for op in topological_order(len(traced), _rows(edges), list(place))]


def _asked(graph: Any, keep: Sequence[str], source: str) -> set[str]:
    asked = {name.removeprefix("^").partition(":")[0] for name in keep}
    missing = asked - {op.name for op in graph.get_operations()}
    if missing:
        raise InputError(f"{sorted(missing)[0]!r} is to be kept but is no node of {source!r}; name nodes of the GraphDef")
    return asked


def _needed(ops: Sequence[Any], asked: set[str]) -> list[Any]:
    needed = set(asked)
    for op in reversed(ops):
        if op.name in needed:
            needed.update(tensor.op.name for tensor in op.inputs)
            needed.update(producer.name for producer in op.control_inputs)
    return [op for op in ops if op.name in needed]


def _build(ops: Sequence[Any], source: str) -> Graph:
    place = {op.name: number for number, op in enumerate(ops)}
    costs = _costs(ops)
    producer: list[int] = []
    tensor_bytes: list[int] = []
    shapes: list[tuple[int, ...]] = []
    dtypes: list[str] = []
    edges: list[tuple[int, int]] = []
    data_edges: list[tuple[int, int]] = []
    control_consumers: list[list[int]] = [[] for _ in ops]
    for number, op in enumerate(ops):
        inputs = {place[tensor.op.name] for tensor in op.inputs}
        data_edges.extend((one, number) for one in sorted(inputs))
        for before in {place[one.name] for one in op.control_inputs} - inputs:
            control_consumers[before].append(number)
    for number, op in enumerate(ops):
        for tensor in op.outputs:
            consumers = sorted({place[one.name] for one in tensor.consumers() if one.name in place})
            if not consumers and len(op.outputs) > 1:
                continue
            edges.extend((len(producer), consumer) for consumer in consumers)
            producer.append(number)
            tensor_bytes.append(size_bytes(tensor))
            shapes.append(shape_of(tensor))
            dtypes.append(tensor.dtype.base_dtype.name)
        if control_consumers[number]:
            edges.extend((len(producer), consumer) for consumer in control_consumers[number])
            producer.append(number)
            tensor_bytes.append(0)
            shapes.append(())
            dtypes.append(CONTROL)
    unknown = _count_unknown(ops, source)
    op_type = tuple(op.type for op in ops)
    names = tuple(op.name for op in ops)
    edge = _rows(edges)
    writes = np.array([writes_variable(op) for op in ops], bool)
    return Graph(
        op_type=op_type,
        name=names,
        module_path=tuple(name.rpartition("/")[0] for name in names),
        flops=np.array([one for one, _ in costs], np.float64),
        accessed_bytes=np.array([one for _, one in costs], np.int64),
        param_bytes=np.array([variable_bytes(op) for op in ops], np.int64),
        temp_bytes=np.zeros(len(ops), np.int64),
        phase=phases(op_type, names, writes, _rows(data_edges)),
        colocation_group=colocation_groups(ops, place),
        tensor_producer=np.array(producer, np.int32),
        tensor_bytes=np.array(tensor_bytes, np.int64),
        tensor_shape=tuple(shapes),
        tensor_dtype=tuple(dtypes),
        edge_tensor=edge[:, 0].astype(np.int32),
        edge_consumer=edge[:, 1].astype(np.int32),
        source=f"{source}; {unknown} tensors of unknown extent, counted as one" if unknown else source,
    )


def _costs(ops: Sequence[Any]) -> list[tuple[float, int]]:
    """FLOPs and bytes accessed of each op; none for what TensorFlow computes once, before the first step."""
    costs: list[tuple[float, int]] = []
    folded: set[str] = set()
    for op in ops:
        if _is_folded(op, folded):
            folded.add(op.name)
            costs.append((0.0, 0))
        else:
            shapes = _op_shapes(op)
            costs.append((flops(shapes), accessed_bytes(shapes)))
    return costs


def _is_folded(op: Any, folded: set[str]) -> bool:
    if op.type in _SHAPE_QUERIES:
        return True
    return (
        len(op.inputs) > 0
        and not op.op_def.is_stateful
        and all(tensor.op.name in folded for tensor in op.inputs)
        and all(elements(tensor) <= _MAX_FOLDED_ELEMENTS for tensor in op.outputs)
    )


def _op_shapes(op: Any) -> OpShapes:
    defined = set(op.node_def.attr)
    attributes: Mapping[str, object] = {key: _attribute(op, key) for key in _ASKED_ATTRIBUTES if key in defined}
    data = [tensor for tensor in op.inputs if not is_handle(tensor, op)]
    results = [tensor for tensor in op.outputs if not is_handle(tensor, op)]
    return OpShapes(
        op_type=op.type,
        input_shapes=tuple(shape_of(tensor) for tensor in data),
        input_bytes=tuple(size_bytes(tensor) for tensor in data),
        output_shapes=tuple(shape_of(tensor) for tensor in results),
        output_bytes=tuple(size_bytes(tensor) for tensor in results),
        num_handles=len(op.inputs) - len(data),
        attributes=attributes,
    )


def _attribute(op: Any, key: str) -> object:
    """An attribute of an op; texts are `bytes` to TensorFlow."""
    value = op.get_attr(key)
    return value.decode() if isinstance(value, bytes) else value


def _count_unknown(ops: Sequence[Any], source: str) -> int:
    """How many tensors of working ops have an unknown extent."""
    made = [
        tensor for op in ops if op.type not in BOOKKEEPING for tensor in op.outputs if tensor.dtype.base_dtype.name not in WITHOUT_BYTES
    ]
    unknown = [tensor for tensor in made if not tensor.shape.is_fully_defined()]
    if len(unknown) > _MAX_UNKNOWN_SHARE * len(made):
        raise InputError(
            f"{len(unknown)} of the {len(made)} tensors that {source!r} computes have an unknown extent, {unknown[0].name!r} of shape {unknown[0].shape} the first; "
            "give static shapes, e.g. tf.TensorSpec((32, 224, 224, 3)), batch size included"
        )
    return len(unknown)


def _rows(edges: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.array(edges, np.int64).reshape(-1, 2)
