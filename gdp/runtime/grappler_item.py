"""A placed GraphDef in the form in which grappler estimates it: its nodes on named devices, and every transfer an op on the channel that carries it."""

import dataclasses
from typing import Any, Literal

import numpy as np
from jaxtyping import Int32

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph

Ties = Literal["name", "number"]
"""Of the ops that became ready at one moment, the first by name or the lowest number goes first."""

_HOST = "/job:localhost/replica:0/task:0/device:"
_ARRIVALS = f"{_HOST}ARRIVALS:0"
_CHANNEL_BYTES_PER_S = 1e9


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GrapplerItem:
    """What `tensorflow.python.grappler` is given."""

    meta_graph: Any
    node: tuple[str, ...]
    """`[ops]` the node of each op."""
    devices: tuple[Any, ...]
    """`NamedDevice`: those of the cluster, the channels, and the one of arrivals."""
    contended: tuple[str, ...]
    """names of the cluster's devices and channels."""
    num_transfers: int
    transferred_bytes: int


def grappler_item(
    graph_def: Any, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " ops"], *, transfers_take_time: bool, ties: Ties
) -> GrapplerItem:
    """The GraphDef that `graph` was captured from, with the devices of a placement.

    With `transfers_take_time`, each transfer is a `CollectiveBcastRecv` of as many bytes as it takes nanoseconds, on a device of 1 GB/s that stands for its channel (a pair
    without a channel has one for each transfer). It waits for its producer alone; its consumers wait for its arrival, a `NoOp` on a device that is never busy. (Of control
    dependencies from several devices grappler heeds the one that was scheduled last, not the one that ended last; arrivals are scheduled as they end.)
    With `ties` by number, nodes are named by their numbers.

    Raises:
        InputError: when an op of the graph is no node of the GraphDef.
    """
    from tensorflow.core.protobuf import meta_graph_pb2

    node_of_name = {node.name: node for node in graph_def.node}
    missing = [name for name in graph.name if name not in node_of_name]
    if missing:
        raise InputError(
            f"{len(missing)} ops of the graph from {graph.source!r}, {missing[0]!r} among them, are no nodes of the GraphDef; "
            "give the GraphDef that was captured (for a concrete function, the lowered one)"
        )
    names = graph.name if ties == "name" else tuple(f"{op:08d}" for op in range(graph.num_ops))
    new_name = dict(zip(graph.name, names, strict=True))
    meta_graph = meta_graph_pb2.MetaGraphDef()
    placed = meta_graph.graph_def
    placed.versions.CopyFrom(graph_def.versions)
    for op, name in enumerate(graph.name):
        node = placed.node.add()
        node.CopyFrom(node_of_name[name])
        node.name, node.device = names[op], device_name(int(device[op]))
        node.attr.pop("_class", None)
        inputs = [_renamed(one, new_name) for one in node.input]
        del node.input[:]
        node.input.extend(inputs)
    edges = np.flatnonzero(device[graph.edge_producer] != device[graph.edge_consumer])
    sent = np.stack([graph.edge_producer[edges], device[graph.edge_consumer[edges]], graph.edge_tensor[edges]], axis=1)
    transfers, transfer_of_edge = np.unique(sent, axis=0, return_inverse=True)
    num_channels = _add_transfers(placed, graph, cluster, device, transfers) if transfers_take_time else 0
    if transfers_take_time:
        _wait_for_arrivals(placed, graph, device, edges, transfer_of_edge)
    # Grappler estimates what the ops of this collection need; the sinks need every op.
    sinks = np.setdiff1d(np.arange(graph.num_ops), graph.edge_producer)
    meta_graph.collection_def["train_op"].node_list.value.extend(names[op] for op in sinks.tolist())
    ours = [
        _named_device(device_name(number), flops_per_s=one.flops_per_s["float32"], bytes_per_s=one.memory_bytes_per_s)
        for number, one in enumerate(cluster.devices)
    ]
    others = [
        _named_device(name, flops_per_s=1e9, bytes_per_s=_CHANNEL_BYTES_PER_S) for name in (*map(_channel, range(num_channels)), _ARRIVALS)
    ]
    return GrapplerItem(
        meta_graph=meta_graph,
        node=names,
        devices=(*ours, *others),
        contended=(*map(device_name, range(cluster.num_devices)), *map(_channel, range(cluster.num_channels))),
        num_transfers=len(transfers),
        transferred_bytes=int(graph.tensor_bytes[transfers[:, 2]].sum()),
    )


def device_name(number: int) -> str:
    """What grappler calls a device of the cluster."""
    return f"{_HOST}DEVICE:{number}"


def _channel(number: int) -> str:
    return f"{_HOST}CHANNEL:{number}"


def _arrival(number: int) -> str:
    return f"arrival_{number:08d}"


def _renamed(one: str, new_name: dict[str, str]) -> str:
    """An input of a node (`^node`, `node` or `node:index`) after the nodes have been renamed."""
    control = "^" if one.startswith("^") else ""
    name, colon, index = one.removeprefix("^").partition(":")
    return f"{control}{new_name[name]}{colon}{index}"


def _add_transfers(placed: Any, graph: Graph, cluster: Cluster, device: np.ndarray, transfers: Int32[np.ndarray, "transfers 3"]) -> int:
    """Adds the ops of each transfer (producer, destination, tensor) and returns how many channels they are on, those of the cluster first."""
    from tensorflow.core.framework import types_pb2

    num_channels = cluster.num_channels
    for number, (producer, destination, tensor) in enumerate(transfers.tolist()):
        pair = int(device[producer]), destination
        seconds = cluster.latency_s[pair] + graph.tensor_bytes[tensor] / cluster.bandwidth_bytes_per_s[pair]
        channel = int(cluster.channel[pair])
        if channel == Cluster.NO_CHANNEL:
            channel, num_channels = num_channels, num_channels + 1
        before = f"^{placed.node[producer].name}"
        transfer = placed.node.add(name=f"transfer_{number:08d}", op="CollectiveBcastRecv", device=_channel(channel), input=[before])
        transfer.attr["T"].type = types_pb2.DT_BOOL
        transfer.attr["shape"].shape.dim.add(size=round(seconds * _CHANNEL_BYTES_PER_S))
        for attribute, value in (("group_size", 2), ("group_key", 1), ("instance_key", number)):
            transfer.attr[attribute].i = value
        placed.node.add(name=_arrival(number), op="NoOp", device=_ARRIVALS, input=[f"^{transfer.name}"])
    return num_channels


def _wait_for_arrivals(placed: Any, graph: Graph, device: np.ndarray, edges: np.ndarray, transfer_of_edge: np.ndarray) -> None:
    """Makes the consumers wait for what they are sent, in place of their control dependencies on other devices."""
    home = {placed.node[op].name: device[op] for op in range(graph.num_ops)}
    arriving: dict[int, set[int]] = {}
    for consumer, transfer in zip(graph.edge_consumer[edges].tolist(), transfer_of_edge.tolist(), strict=True):
        arriving.setdefault(consumer, set()).add(transfer)
    for consumer, transfers in arriving.items():
        node = placed.node[consumer]
        kept = [one for one in node.input if not one.startswith("^") or home[one[1:]] == device[consumer]]
        del node.input[:]
        node.input.extend([*kept, *(f"^{_arrival(transfer)}" for transfer in sorted(transfers))])


def _named_device(name: str, *, flops_per_s: float, bytes_per_s: float) -> Any:
    """A device of the given speeds. Its type is CPU, whose MHz times cores grappler takes for its operations per second; a GPU's it derives from the architecture."""
    from tensorflow.core.protobuf import device_properties_pb2

    properties = device_properties_pb2.DeviceProperties(
        type="CPU", num_cores=1, frequency=max(1, round(flops_per_s / 1e6)), bandwidth=max(1, round(bytes_per_s / 1e3))
    )
    return device_properties_pb2.NamedDevice(name=name, properties=properties)
