"""Why a placement cannot run: the sentences in `Measurement.detail`, and the checks behind them."""

from typing import Literal

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.runtime.roofline import op_time_s

Dispatch = Literal["ready_order", "program_order", "priority"]
"""Which of its ready ops a device takes next: the earliest ready, strictly the next in topological order, or the one of highest rank."""


def check_rank(graph: Graph, dispatch: Dispatch, rank: Float64[np.ndarray, " ranked"] | None) -> None:
    """Raises `InputError` unless `rank` is given exactly when `dispatch` is `priority`, one comparable number per op."""
    if (dispatch == "priority") != (rank is not None):
        raise InputError(
            f"dispatch {dispatch!r} {'needs a' if rank is None else 'takes no'} rank; give one number per op with 'priority' only"
        )
    if rank is not None and len(rank) != graph.num_ops:
        raise InputError(f"there are {len(rank)} ranks but {graph.num_ops} ops in the graph from {graph.source!r}; give one number per op")
    if rank is not None and np.isnan(rank).any():
        raise InputError(f"the rank of op number {int(np.isnan(rank).argmax())} is not a number; give every op a rank that can be compared")


def check_finite(graph: Graph, cluster: Cluster) -> None:
    """Raises `InputError` where a step could be too long for a double: on devices or links of next to no speed."""
    links = ~np.eye(cluster.num_devices, dtype=bool)
    largest = int(graph.tensor_bytes.max(initial=0))
    with np.errstate(over="ignore"):
        transfer_s = (cluster.latency_s[links] + largest / cluster.bandwidth_bytes_per_s[links]).max(initial=0.0)
        serial_s = op_time_s(graph, cluster).max(axis=1).sum() + graph.num_tensors * cluster.num_devices * transfer_s
    if not np.isfinite(serial_s):
        raise InputError(
            f"a step of the graph from {graph.source!r} on cluster {cluster.name!r} could take longer than a double can count; "
            "give its devices and links speeds of a real machine"
        )


def invalid_detail(graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " placed"]) -> str:
    """Why `device` is no placement of this graph on this cluster; empty when it is one."""
    if len(device) != graph.num_ops:
        return f"the placement has {len(device)} ops but the graph from {graph.source!r} has {graph.num_ops}"
    outside = np.flatnonzero((device < 0) | (device >= cluster.num_devices))
    if len(outside):
        op = int(outside[0])
        return (
            f"op {graph.name[op]!r} (number {op}) is placed on device {int(device[op])}, "
            f"but cluster {cluster.name!r} has devices 0 to {cluster.num_devices - 1}"
        )
    grouped = np.flatnonzero(graph.colocation_group != Graph.NO_GROUP)
    group, first = np.unique(graph.colocation_group[grouped], return_index=True)
    leader = np.zeros(graph.num_ops, np.int64)
    leader[grouped] = grouped[first][np.searchsorted(group, graph.colocation_group[grouped])]
    apart = grouped[device[grouped] != device[leader[grouped]]]
    if len(apart):
        op, other = int(apart[0]), int(leader[apart[0]])
        return (
            f"colocation group {int(graph.colocation_group[op])} is split: op {graph.name[other]!r} (number {other}) is on "
            f"{cluster.devices[device[other]].name!r}, but op {graph.name[op]!r} (number {op}) on {cluster.devices[device[op]].name!r}"
        )
    return ""


def out_of_memory_detail(cluster: Cluster, peak_memory_bytes: Int64[np.ndarray, " devices"]) -> str:
    """The device with the most bytes over its capacity (the first of equals), and how many; empty when everything fits."""
    excess = peak_memory_bytes - cluster.memory_bytes
    worst = int(excess.argmax())
    if excess[worst] <= 0:
        return ""
    others = int((excess > 0).sum()) - 1
    return (
        f"device {cluster.devices[worst].name!r} needs {_readable(int(peak_memory_bytes[worst]))} at its peak "
        f"but has {_readable(cluster.devices[worst].memory_bytes)}: {_readable(int(excess[worst]))} too much"
        + (f"; {others} other device{'s' * (others > 1)} too" if others else "")
    )


def _readable(count: int) -> str:
    for exponent, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if count >= 1024**exponent:
            return f"{count / 1024**exponent:.2f} {unit}"
    return f"{count} B"
