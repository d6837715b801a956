"""What the lower bounds divide among devices: the ops that must stay together as units, and equal devices as classes.

In the shape descriptions, `units` and `classes` are the numbers of each. A unit is a colocation group or a free op. Devices of equal kind and memory are a class:
a bound that knows no links cannot tell them apart.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.runtime.roofline import op_time_s


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Indivisible:
    """Units and device classes, with what each unit costs on each class."""

    unit_of_op: Int32[np.ndarray, " ops"]
    class_of_device: Int32[np.ndarray, " devices"]
    class_size: Int64[np.ndarray, " classes"]
    """devices in each class."""
    memory_bytes: Int64[np.ndarray, " classes"]
    """of one device of the class."""
    op_time_s: Float64[np.ndarray, "ops classes"]
    time_s: Float64[np.ndarray, "units classes"]
    """seconds of all of a unit's ops."""
    param_bytes: Int64[np.ndarray, " units"]
    """resident wherever the unit is."""
    needed_bytes: Int64[np.ndarray, " units"]
    """what a device must hold at the least to run the unit: its parameters and, of its neediest op, scratch, inputs and outputs."""
    fits: Bool[np.ndarray, "units classes"]
    """whether a device of the class can hold the unit when it holds nothing else."""

    @property
    def num_units(self) -> int:
        return len(self.param_bytes)

    @property
    def num_classes(self) -> int:
        return len(self.class_size)


def indivisible(graph: Graph, cluster: Cluster) -> Indivisible:
    """The units of `graph` and the device classes of `cluster`."""
    free = graph.colocation_group == Graph.NO_GROUP
    label = np.where(free, np.arange(graph.num_ops, dtype=np.int64), graph.num_ops + graph.colocation_group.astype(np.int64))
    names, unit_of_op = np.unique(label, return_inverse=True)
    sorts = [(device.kind, device.memory_bytes) for device in cluster.devices]
    classes = list(dict.fromkeys(sorts))
    class_of_device = np.array([classes.index(sort) for sort in sorts], np.int32)
    first = np.array([sorts.index(sort) for sort in classes])
    seconds = np.ascontiguousarray(op_time_s(graph, cluster)[:, first])
    num_units = len(names)
    time_s = np.stack([np.bincount(unit_of_op, seconds[:, c], minlength=num_units) for c in range(len(classes))], axis=1)
    param_bytes, working = np.zeros(num_units, np.int64), np.zeros(num_units, np.int64)
    np.add.at(param_bytes, unit_of_op, graph.param_bytes)
    np.maximum.at(working, unit_of_op, working_bytes(graph))
    needed_bytes = param_bytes + working
    memory_bytes = np.array([memory for _, memory in classes], np.int64)
    return Indivisible(
        unit_of_op=unit_of_op.astype(np.int32),
        class_of_device=class_of_device,
        class_size=np.bincount(class_of_device).astype(np.int64),
        memory_bytes=memory_bytes,
        op_time_s=seconds,
        time_s=time_s,
        param_bytes=param_bytes,
        needed_bytes=needed_bytes,
        fits=needed_bytes[:, np.newaxis] <= memory_bytes,
    )


def working_bytes(graph: Graph) -> Int64[np.ndarray, " ops"]:
    """What the device of an op holds just after the op's start, parameters apart: its scratch, its outputs, and its inputs, each tensor once."""
    working = graph.temp_bytes.copy()
    np.add.at(working, graph.tensor_producer, graph.tensor_bytes)
    pair = np.unique(graph.edge_consumer.astype(np.int64) * max(graph.num_tensors, 1) + graph.edge_tensor)
    consumer, tensor = np.divmod(pair, max(graph.num_tensors, 1))
    np.add.at(working, consumer, graph.tensor_bytes[tensor])
    return working
