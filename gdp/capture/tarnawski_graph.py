"""An instance of Tarnawski et al. as a graph and a cluster: what any placer and the simulator take.

The costs are no longer theirs: here transfers overlap computing, and a tensor goes once to every device that reads it. A tensor's bytes are such that
each of an accelerator's ways to and from host memory takes the node's transfer time; from one accelerator to another it takes both, one after the other.
Every ordered pair of devices has its own transfers, unlimited in number. Memory holds the nodes' sizes, as before, and these tensors. Between CPU cores
everything is there at once, nearly.
"""

import numpy as np

from gdp.capture.profile_graph import profile_graph
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.cluster import Cluster, Device
from gdp.errors import InputError
from gdp.graph import Graph, Phase

_BANDWIDTH_BYTES_PER_S = 1e9
"""Between an accelerator and host memory. Tensors are sized to suit, so it decides only that times are kept to the nanosecond, and what tensors hold."""

_SHARED_MEMORY_BYTES_PER_S = 1e18
_UNLIMITED_BYTES = 2**60


def to_graph_and_cluster(instance: TarnawskiInstance) -> tuple[Graph, Cluster]:
    """The instance with measured times for the device kinds `accelerator` and `cpu`, and its devices in the same order.

    Raises `InputError` when a node runs on the CPU alone, which a `Graph` cannot say, or when transfers are too long for byte counts.
    """
    if instance.num_accelerators and not instance.runs_on_accelerator.all():
        node = instance.node_id[int(instance.runs_on_accelerator.argmin())]
        raise InputError(
            f"node {node} of the instance {instance.source!r} runs on the CPU alone, which a graph cannot say; use the solvers of this cost model"
        )
    if (instance.transfer_s * _BANDWIDTH_BYTES_PER_S > 2**55).any():
        node = instance.node_id[int(instance.transfer_s.argmax())]
        raise InputError(
            f"node {node} of the instance {instance.source!r} takes {instance.transfer_s.max():g} s to send; at most about 36 million can be converted"
        )
    graph = profile_graph(
        op_type=["node"] * instance.num_nodes,
        name=[f"node{node}" for node in instance.node_id],
        time_s={"accelerator": instance.accelerator_time_s.copy(), "cpu": instance.cpu_time_s.copy()},
        param_bytes=np.rint(instance.size_bytes).astype(np.int64),
        output_bytes=np.rint(instance.transfer_s * _BANDWIDTH_BYTES_PER_S).astype(np.int64),
        phase=np.where(instance.backward, Phase.BACKWARD, Phase.FORWARD).astype(np.int8),
        colocation_group=instance.colour.copy(),
        edges=np.stack([instance.edge_from, instance.edge_to], axis=1).astype(np.int64),
        source=f"Tarnawski instance {instance.source}",
    )
    accelerators, cpus = instance.num_accelerators, instance.num_cpus
    devices = tuple(
        _device(f"accelerator{number}", "accelerator", int(instance.accelerator_memory_bytes)) for number in range(accelerators)
    )
    devices += tuple(_device(f"cpu{number}", "cpu", _UNLIMITED_BYTES) for number in range(cpus))
    is_accelerator = np.arange(instance.num_devices) < accelerators
    crossings = is_accelerator[:, None].astype(int) + is_accelerator[None, :]
    return graph, Cluster(
        name=f"{accelerators} accelerators and {cpus} CPU cores",
        devices=devices,
        bandwidth_bytes_per_s=np.choose(crossings, [_SHARED_MEMORY_BYTES_PER_S, _BANDWIDTH_BYTES_PER_S, _BANDWIDTH_BYTES_PER_S / 2]),
        latency_s=np.zeros((instance.num_devices, instance.num_devices)),
        channel=np.full((instance.num_devices, instance.num_devices), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )


def _device(name: str, kind: str, memory_bytes: int) -> Device:
    """All times are measured: the speeds stand for nothing."""
    return Device(
        name=name, kind=kind, memory_bytes=memory_bytes, flops_per_s={"float32": 1e12}, memory_bytes_per_s=1e12, op_overhead_s=0.0
    )
