"""Records in a form that can be compared: equal forms, equal records."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from gdp.cluster import Cluster
from gdp.graph import Graph


def form(value: Any, *, without: frozenset[str] = frozenset()) -> Any:
    """Nested tuples of plain values; numbers keep their type and every bit. Fields named in `without`, at any depth, are left out."""
    if isinstance(value, torch.nn.Module):
        return tuple((name, form(tensor.numpy())) for name, tensor in value.state_dict().items())
    if isinstance(value, Cluster):
        channels = [[value.channel_name[number] if number >= 0 else None for number in row] for row in value.channel.tolist()]
        return value.name, form(value.devices), form(value.bandwidth_bytes_per_s), form(value.latency_s), form(channels)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.name not in without]
        return type(value).__name__, tuple((name, form(getattr(value, name), without=without)) for name in fields)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return tuple(sorted((key, form(inner, without=without)) for key, inner in value.items()))
    if isinstance(value, list | tuple):
        return tuple(form(inner, without=without) for inner in value)
    return type(value).__name__, repr(value)


def form_by_name(graph: Graph) -> Any:
    """A graph whatever the order of its ops: what is true of each by name, and the edges between names. The source is left out."""
    groups: dict[int, list[str]] = {}
    for name, group in zip(graph.name, graph.colocation_group.tolist(), strict=True):
        groups.setdefault(group, []).append(name)
    seconds = {kind: dict(zip(graph.name, values.tolist(), strict=True)) for kind, values in graph.measured_time_s.items()}
    ops = {
        name: (
            graph.op_type[op],
            int(graph.accessed_bytes[op]),
            int(graph.param_bytes[op]),
            int(graph.phase[op]),
            None if graph.colocation_group[op] < 0 else sorted(groups[int(graph.colocation_group[op])]),
            {kind: values[name].hex() for kind, values in seconds.items()},
        )
        for op, name in enumerate(graph.name)
    }
    edges = sorted(
        (graph.name[int(graph.tensor_producer[tensor])], graph.name[consumer], int(graph.tensor_bytes[tensor]))
        for tensor, consumer in zip(graph.edge_tensor.tolist(), graph.edge_consumer.tolist(), strict=True)
    )
    return ops, edges
