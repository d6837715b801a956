"""Graph x Cluster -> GraphTensors. Linear in ops and edges; every number is about 1 in size, and times are relative to the graph's own work."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64

from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.features.config import PHASES, FeatureConfig
from gdp.features.graph_tensors import GraphTensors
from gdp.features.op_flow import op_flow
from gdp.features.vocabulary import type_ids
from gdp.graph import CONTROL, Graph
from gdp.runtime.levels import b_level, t_level
from gdp.runtime.roofline import op_time_s
from gdp.runtime.verdict import Dispatch

_MAX_LOG = 30.0
"""Natural logarithms of counts of bytes and operations are divided by this."""


def featurize(
    graph: Graph, cluster: Cluster, grouping: Grouping, config: FeatureConfig, *, dispatch: Dispatch = "ready_order"
) -> GraphTensors:
    """The graph's groups, their data flow and the cluster's devices as a policy sees them (docs/policy.md lists every feature).

    Op times are those of `op_time_s`: measured where the graph has them, else a roofline. Of `dispatch`, what matters is whether devices keep the program's order.
    Raises `InputError` when the grouping belongs to another graph.
    """
    group_of = grouping.group_of_op.astype(np.int64)
    count, devices = grouping.num_groups, cluster.num_devices
    if len(group_of) != graph.num_ops:
        raise InputError(
            f"the grouping has {len(group_of)} ops but the graph from {graph.source!r} has {graph.num_ops}; group the graph that is placed"
        )

    def total(values: np.ndarray) -> Float64[np.ndarray, " groups"]:
        return np.bincount(group_of, weights=values, minlength=count)

    op_s = op_time_s(graph, cluster)
    fastest_s = op_s.min(axis=1)
    unit_s = float(fastest_s.sum()) / devices or 1.0
    time = np.stack([total(op_s[:, device]) for device in range(devices)], axis=1) / unit_s
    fastest = total(fastest_s) / unit_s
    heaviest = _heaviest(group_of, fastest_s, count)

    latency, time_per_byte = _links(cluster, unit_s)
    output_bytes = np.bincount(graph.tensor_producer, weights=graph.tensor_bytes, minlength=graph.num_ops)
    edges = _quotient_edges(graph, group_of, count)
    mean_transfer = edges.messages * _pair_mean(latency) + edges.bytes * _pair_mean(time_per_byte)
    sent = np.bincount(edges.producer, weights=mean_transfer, minlength=count)
    received = np.bincount(edges.consumer, weights=mean_transfer, minlength=count)
    around = np.bincount(np.concatenate([edges.producer, edges.consumer]), weights=np.tile(mean_transfer, 2), minlength=count)

    op_transfer = _pair_mean(latency) + graph.tensor_bytes[graph.edge_tensor] * _pair_mean(time_per_byte)
    before = t_level(graph, fastest_s / unit_s, np.zeros(graph.num_edges))
    after = b_level(graph, fastest_s / unit_s, np.zeros(graph.num_edges))
    rank = b_level(graph, op_s.mean(axis=1) / unit_s, op_transfer)
    path = max(float((before + after).max()), 1e-12)

    capacity = np.maximum(cluster.memory_bytes.astype(np.float64), 1.0)
    param_bytes, group_output_bytes = total(graph.param_bytes), total(output_bytes)
    shares = _Shares(
        param=param_bytes[:, None] / capacity,
        output=group_output_bytes[:, None] / capacity,
        pressure=(param_bytes.sum() + group_output_bytes.sum()) / capacity,
    )
    flops, accessed = total(graph.flops), total(graph.accessed_bytes)
    columns = [
        np.log(fastest / max(fastest.mean(), 1e-12) + 1e-3) / 7,
        np.log1p(fastest),
        np.log1p(flops) / _MAX_LOG,
        np.log1p(accessed) / _MAX_LOG,
        np.log1p(param_bytes) / _MAX_LOG,
        np.log1p(group_output_bytes) / _MAX_LOG,
        np.log1p(flops / np.maximum(accessed, 1.0)) / 10,
        np.log1p(received),
        np.log1p(sent),
        around / np.maximum(around + fastest, 1e-12),
        np.log1p(np.bincount(edges.consumer, minlength=count)) / 5,
        np.log1p(np.bincount(edges.producer, minlength=count)) / 5,
        np.log1p(total(np.ones(graph.num_ops))) / 10,
        before[heaviest] / path,
        after[heaviest] / path,
        1 - (before + after)[heaviest] / path,
        rank[heaviest] / max(float(rank.max()), 1e-12),
        (np.arange(count) + 0.5) / count,
        np.log1p(shares.param.mean(axis=1)),
        np.log1p(shares.output.mean(axis=1)),
        *((graph.phase[heaviest] == phase).astype(np.float64) for phase in range(len(PHASES))),
        *_shape_columns(graph, heaviest, config.shape_slots),
    ]
    slowness = np.where(fastest[:, None] > 0, time / np.maximum(fastest[:, None], 1e-12), 1.0)
    type_group, type_id, type_share = _type_bag(graph, group_of, fastest_s, count, config)
    return GraphTensors(
        group=_float(np.stack(columns, axis=1)),
        type_group=torch.from_numpy(type_group),
        type_id=torch.from_numpy(type_id),
        type_share=_float(type_share),
        edge_producer=torch.from_numpy(edges.producer),
        edge_consumer=torch.from_numpy(edges.consumer),
        edge=_float(
            np.stack(
                [
                    np.log1p(edges.bytes) / _MAX_LOG,
                    np.log1p(mean_transfer),
                    mean_transfer / np.maximum(mean_transfer + fastest[edges.consumer], 1e-12),
                    (edges.producer > edges.consumer).astype(np.float64),
                ],
                axis=1,
            )
        ),
        edge_bytes=_float(edges.bytes),
        edge_messages=_float(edges.messages),
        device=_float(_device_features(graph, cluster, time, shares.pressure, latency, time_per_byte, edges, unit_s)),
        slot=torch.arange(devices),
        pair=_float(np.stack([np.log(slowness), np.log1p(time), np.minimum(shares.param, 2.0), np.minimum(shares.output, 2.0)], axis=2)),
        context=_float(
            np.array(
                [
                    np.log(count) / 10,
                    np.log(devices),
                    np.log(max(float(fastest.sum()), 1e-12) / path) if fastest.any() else 0.0,
                    np.log1p(mean_transfer.sum()) / 3,
                    np.log1p(param_bytes.sum() / capacity.sum()),
                    np.log1p(group_output_bytes.sum() / capacity.sum()),
                    np.log(max(float(time.sum()), 1e-12) / max(float(fastest.sum()) * devices, 1e-12)) if fastest.any() else 0.0,
                    float(dispatch == "program_order"),
                ]
            )
        ),
        program_order=torch.tensor(dispatch == "program_order"),
        allowed=torch.from_numpy(_allowed(graph, cluster, group_of, param_bytes, output_bytes, count)),
        time=_float(time),
        param_share=_float(shares.param),
        output_share=_float(shares.output),
        ops=op_flow(graph, cluster, grouping, op_s=op_s, unit_s=unit_s),
    )


class _Shares(NamedTuple):
    """Bytes over memory: of parameters and outputs `[groups, devices]`, and of the whole graph `[devices]`."""

    param: np.ndarray
    output: np.ndarray
    pressure: np.ndarray


class _Edges(NamedTuple):
    """`[edges]` of the grouped graph."""

    producer: np.ndarray
    consumer: np.ndarray
    bytes: np.ndarray
    messages: np.ndarray


def _float(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, np.float32))


def _pair_mean(values: np.ndarray) -> float:
    """The mean over ordered pairs of different devices; 0 on a single device."""
    pairs = len(values) * (len(values) - 1)
    return float(values.sum()) / pairs if pairs else 0.0


def _links(cluster: Cluster, unit_s: float) -> tuple[np.ndarray, np.ndarray]:
    same = np.eye(cluster.num_devices, dtype=bool)
    time_per_byte = np.zeros_like(cluster.bandwidth_bytes_per_s)
    time_per_byte[~same] = 1.0 / cluster.bandwidth_bytes_per_s[~same]
    return np.where(same, 0.0, cluster.latency_s) / unit_s, time_per_byte / unit_s


def _heaviest(group_of: np.ndarray, time: np.ndarray, count: int) -> np.ndarray:
    """The op of each group that takes longest, the first of equals."""
    order = np.lexsort((np.arange(len(time)), -time, group_of))
    return np.asarray(order[np.searchsorted(group_of[order], np.arange(count))])


def _quotient_edges(graph: Graph, group_of: np.ndarray, count: int) -> _Edges:
    """One edge for every ordered pair of groups that a tensor joins; a tensor counts once per pair, however many of its ops consume it."""
    consumer_group = group_of[graph.edge_consumer]
    crossing = group_of[graph.edge_producer] != consumer_group
    tensor_and_group = np.unique(graph.edge_tensor[crossing].astype(np.int64) * count + consumer_group[crossing])
    tensor, consumer = tensor_and_group // count, tensor_and_group % count
    pair, index = np.unique(consumer * count + group_of[graph.tensor_producer[tensor]], return_inverse=True)
    return _Edges(
        producer=pair % count,
        consumer=pair // count,
        bytes=np.bincount(index, weights=graph.tensor_bytes[tensor], minlength=len(pair)),
        messages=np.bincount(index, minlength=len(pair)).astype(np.float64),
    )


def _type_bag(
    graph: Graph, group_of: np.ndarray, time: np.ndarray, count: int, config: FeatureConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The op types of each group with their share of its time; by number of ops in a group that takes no time."""
    number = np.array(type_ids(graph.op_type, vocabulary=config.op_vocabulary, num_buckets=config.num_hash_buckets), np.int64)
    idle = np.bincount(group_of, weights=time, minlength=count) == 0
    weight = np.where(idle[group_of], 1.0, time)
    pair, index = np.unique(group_of * config.num_types + number, return_inverse=True)
    share = np.bincount(index, weights=weight) / np.bincount(group_of, weights=weight, minlength=count)[pair // config.num_types]
    return pair // config.num_types, pair % config.num_types, share


def _shape_columns(graph: Graph, heaviest: np.ndarray, slots: int) -> list[np.ndarray]:
    """The rank and the leading extents of the largest output of each given op, as logarithms; 0 where there is none or it is unknown."""
    largest: dict[int, int] = {}
    for tensor, (producer, dtype) in enumerate(zip(graph.tensor_producer.tolist(), graph.tensor_dtype, strict=True)):
        if dtype != CONTROL and (producer not in largest or graph.tensor_bytes[tensor] > graph.tensor_bytes[largest[producer]]):
            largest[producer] = tensor
    shapes = [graph.tensor_shape[largest[op]] if op in largest else () for op in heaviest.tolist()]
    extents = np.array([[*shape[:slots], *[0] * (slots - len(shape))] for shape in shapes], np.float64).reshape(len(shapes), slots)
    return [np.array([len(shape) for shape in shapes]) / 8, *(np.log1p(np.maximum(extents, 0)) / 10).T]


def _device_features(
    graph: Graph,
    cluster: Cluster,
    time: np.ndarray,
    pressure: np.ndarray,
    latency: np.ndarray,
    time_per_byte: np.ndarray,
    edges: _Edges,
    unit_s: float,
) -> np.ndarray:
    total = time.sum(axis=0)
    others = max(cluster.num_devices - 1, 1)
    overhead = int(graph.works.sum()) * np.array([device.op_overhead_s for device in cluster.devices]) / unit_s
    link = latency * edges.messages.sum() + time_per_byte * edges.bytes.sum()
    memory = np.maximum(cluster.memory_bytes.astype(np.float64), 1.0)
    return np.stack(
        [
            np.log(np.maximum(total, 1e-12) / max(float(total.min()), 1e-12)),
            np.log(memory / memory.max()),
            np.log1p(pressure),
            np.minimum(overhead / np.maximum(total, 1e-12), 1.0),
            np.log1p(link.sum(axis=1) / others) / 3,
            np.log1p(link.sum(axis=0) / others) / 3,
        ],
        axis=1,
    )


def _allowed(
    graph: Graph, cluster: Cluster, group_of: np.ndarray, param_bytes: np.ndarray, output_bytes: np.ndarray, count: int
) -> np.ndarray:
    """Where a group can run at all: its parameters are always resident, and every op needs its inputs, outputs and scratch at once."""
    read = np.unique(graph.edge_consumer.astype(np.int64) * max(graph.num_tensors, 1) + graph.edge_tensor)
    tensor, consumer = read % max(graph.num_tensors, 1), read // max(graph.num_tensors, 1)
    at_once = graph.temp_bytes + output_bytes + np.bincount(consumer, weights=graph.tensor_bytes[tensor], minlength=graph.num_ops)
    hungriest = np.zeros(count)
    np.maximum.at(hungriest, group_of, at_once)
    fits = (param_bytes + hungriest)[:, None] <= cluster.memory_bytes
    return np.asarray(fits | ~fits.any(axis=1, keepdims=True))
