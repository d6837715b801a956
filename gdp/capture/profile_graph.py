"""A `Graph` from a profile: ops with seconds in place of FLOPs, one output tensor an op."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64, Int8, Int32, Int64

from gdp.capture.order import topological_order
from gdp.graph import Graph


def profile_graph(
    *,
    op_type: Sequence[str],
    name: Sequence[str],
    time_s: dict[str, Float64[np.ndarray, " ops"]],
    param_bytes: Int64[np.ndarray, " ops"],
    output_bytes: Int64[np.ndarray, " ops"],
    phase: Int8[np.ndarray, " ops"],
    colocation_group: Int32[np.ndarray, " ops"],
    edges: Int64[np.ndarray, "edges 2"],
    source: str,
) -> Graph:
    """The graph, sorted topologically; `edges` are rows (producer, consumer), and an op without consumers has no output tensor.

    FLOPs are unknown: 0. Accessed bytes are the tensors read and written and the parameters, at least one byte where an op takes time on some device, none
    where it takes none. Raises `InputError` when the ops depend on each other in a circle, or a value is out of a graph's bounds.
    """
    count = len(name)
    order = topological_order(count, edges, name)
    place = np.empty(count, np.int64)
    place[order] = np.arange(count)
    producer, consumer = (place[edges[:, 0]], place[edges[:, 1]]) if len(edges) else (np.zeros(0, np.int64), np.zeros(0, np.int64))
    sorting = np.lexsort((consumer, producer))
    producer, consumer = producer[sorting], consumer[sorting]
    tensor_producer, edge_tensor = np.unique(producer, return_inverse=True)
    tensor_bytes = output_bytes[order][tensor_producer]
    accessed = param_bytes[order].astype(np.float64)
    np.add.at(accessed, tensor_producer, tensor_bytes)
    np.add.at(accessed, consumer, tensor_bytes[edge_tensor])
    works = np.any([seconds[order] > 0 for seconds in time_s.values()], axis=0) if time_s else np.zeros(count, np.bool_)
    return Graph(
        op_type=tuple(op_type[op] for op in order),
        name=tuple(name[op] for op in order),
        module_path=("",) * count,
        flops=np.zeros(count),
        accessed_bytes=np.where(works, np.clip(accessed, 1, 2**60), 0).astype(np.int64),
        param_bytes=param_bytes[order],
        temp_bytes=np.zeros(count, np.int64),
        phase=phase[order],
        colocation_group=colocation_group[order],
        tensor_producer=tensor_producer.astype(np.int32),
        tensor_bytes=tensor_bytes,
        tensor_shape=((-1,),) * len(tensor_producer),
        tensor_dtype=("uint8",) * len(tensor_producer),
        edge_tensor=edge_tensor.astype(np.int32),
        edge_consumer=consumer.astype(np.int32),
        source=source,
        measured_time_s={kind: seconds[order] for kind, seconds in time_s.items()},
    )
