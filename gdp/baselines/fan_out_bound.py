"""The fan-out bound: what is too much for one device is on several, and the tensors that it shares must be sent.

Suppose a step of `T` seconds. The producer of a tensor and all its consumers, with the rest of their units, need at least `k` devices: as many as their least work fills in `T`
seconds each, and as hold their parameters. The tensor is then sent to `k - 1` devices at least, over links of which the fastest is counted. All these transfers must
fit into `T` seconds of every channel:

    sum over tensors (k(T) - 1) * transfer seconds <= channels * T.

The least `T` that satisfies this is a bound. It knows what bounds that divide units cannot: that a recurrent network's weights, an embedding, or a wide layer's input must be
copied when the work is spread. Where some pair of devices has no channel, transfers are free of contention and the bound is nothing.
"""

import numpy as np
from jaxtyping import Float64, Int64

from gdp.baselines.indivisible import Indivisible
from gdp.cluster import Cluster
from gdp.graph import Graph

_STEPS = 60
_ROUNDING = 1e-9
"""A device is taken to run this share more than it can, against rounding in the counts of devices."""


def fan_out_bound_s(graph: Graph, cluster: Cluster, units: Indivisible) -> float:
    """The least `T` of the text above, from below. Every unit fits on some class."""
    pairs = ~np.eye(cluster.num_devices, dtype=bool)
    channels = np.unique(cluster.channel[pairs])
    if not graph.num_tensors or not len(channels) or channels[0] == Cluster.NO_CHANNEL:
        return 0.0
    work_s, copies, tensor = _neighbourhoods(graph, cluster, units)
    transfer_s = (cluster.latency_s[pairs] + graph.tensor_bytes[tensor, np.newaxis] / cluster.bandwidth_bytes_per_s[pairs]).min(axis=1)
    low_s, high_s = 0.0, float(cluster.num_devices * transfer_s.sum() / len(channels))
    for _ in range(_STEPS):
        middle_s = (low_s + high_s) / 2
        if middle_s <= low_s or middle_s >= high_s:
            break
        devices = np.clip(np.ceil(work_s / middle_s * (1 - _ROUNDING)), 1, cluster.num_devices)
        if float(((np.maximum(devices, copies) - 1) * transfer_s).sum()) > len(channels) * middle_s:
            low_s = middle_s
        else:
            high_s = middle_s
    return low_s


def _neighbourhoods(
    graph: Graph, cluster: Cluster, units: Indivisible
) -> tuple[Float64[np.ndarray, " shared"], Int64[np.ndarray, " shared"], Int64[np.ndarray, " shared"]]:
    """For every tensor whose producer and consumers are of several units: their least work, the devices that their parameters need, and the tensor."""
    unit = units.unit_of_op.astype(np.int64)
    tensor = np.concatenate([np.arange(graph.num_tensors), graph.edge_tensor.astype(np.int64)])
    member = np.concatenate([unit[graph.tensor_producer], unit[graph.edge_consumer]])
    tensor, member = np.divmod(np.unique(tensor * units.num_units + member), units.num_units)
    least_s = np.where(units.fits, units.time_s, np.inf).min(axis=1)
    several = np.bincount(tensor, minlength=graph.num_tensors) > 1
    work_s = np.bincount(tensor, least_s[member], minlength=graph.num_tensors)
    param_bytes = np.zeros(graph.num_tensors, np.int64)
    np.add.at(param_bytes, tensor, units.param_bytes[member])
    room = np.cumsum(np.sort(cluster.memory_bytes)[::-1])
    copies = np.minimum(np.searchsorted(room, param_bytes) + 1, cluster.num_devices)
    return work_s[several], copies[several], np.flatnonzero(several)
