"""The grouped graph as the walk reads it: edges by consumer and by producer."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from gdp.features.graph_tensors import GraphTensors
from gdp.runtime.offsets import offsets


class GroupFlow(NamedTuple):
    """Producers of a group and its consumers lie together between two offsets. Units as in `GraphTensors`."""

    time: Float32[np.ndarray, "groups devices"]
    param_share: Float32[np.ndarray, "groups devices"]
    output_share: Float32[np.ndarray, "groups devices"]
    allowed: Bool[np.ndarray, "groups devices"]
    in_start: Int64[np.ndarray, " groups_and_end"]
    in_group: Int64[np.ndarray, " edges"]
    in_bytes: Float32[np.ndarray, " edges"]
    in_messages: Float32[np.ndarray, " edges"]
    out_start: Int64[np.ndarray, " groups_and_end"]
    out_group: Int64[np.ndarray, " edges"]
    out_bytes: Float32[np.ndarray, " edges"]
    out_messages: Float32[np.ndarray, " edges"]


def group_flow(x: GraphTensors) -> GroupFlow:
    producer, consumer, size, messages = map(as_numpy, (x.edge_producer, x.edge_consumer, x.edge_bytes, x.edge_messages))
    by_producer = np.lexsort((consumer, producer))
    return GroupFlow(
        time=as_numpy(x.time),
        param_share=as_numpy(x.param_share),
        output_share=as_numpy(x.output_share),
        allowed=as_numpy(x.allowed),
        in_start=offsets(consumer, x.num_groups),
        in_group=producer,
        in_bytes=size,
        in_messages=messages,
        out_start=offsets(producer, x.num_groups),
        out_group=consumer[by_producer],
        out_bytes=size[by_producer],
        out_messages=messages[by_producer],
    )


def as_numpy(tensor: Tensor) -> np.ndarray:
    """A contiguous copy on the CPU, or the tensor's own memory where it lies so already."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy())
