"""Small problems whose best step time is known in closed form: what a placer or a learner must find.

All ops that work take one second wherever they run; memory never binds; `ready_order` dispatch reaches the optimum.
"""

import dataclasses

import numpy as np

from gdp.cluster import Cluster, Device
from gdp.errors import InputError
from gdp.graph import Graph, Phase


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SolvedProblem:
    """A graph, a cluster, and the least step time of any placement."""

    graph: Graph
    cluster: Cluster
    optimum_s: float


def independent_chains(*, num_chains: int, length: int, num_devices: int) -> SolvedProblem:
    """Chains of `length` ops with nothing between them, on equal devices. A transfer takes as long as all the work, so no chain is cut:

    the optimum is `ceil(num_chains / num_devices) * length` seconds.
    """
    _at_least_one(num_chains=num_chains, length=length, num_devices=num_devices)
    edges = [(chain * length + step, chain * length + step + 1) for chain in range(num_chains) for step in range(length - 1)]
    return SolvedProblem(
        graph=_graph(num_chains * length, edges, tensor_bytes=1, source=f"{num_chains} independent chains of {length}"),
        cluster=_cluster(num_devices, bytes_per_s=1.0 / (num_chains * length)),
        optimum_s=float(-(-num_chains // num_devices) * length),
    )


def fork_join(*, num_branches: int, transfer_s: float) -> SolvedProblem:
    """An op, `num_branches` ops that read its tensor, and one that reads theirs, on two devices with a channel in each direction.

    With `k` branches on the other device than the first op and a transfer of `c <= 1` seconds, the branches' results are at the last op after `2 c + k` seconds from
    there and after `num_branches - k` from here when the last op stands with the first; when it stands on the other device, after `c + k` and `num_branches - k + c`. The
    optimum is two seconds for the ends and the least, over `k` and the last op's device, of the larger of the two.
    """
    _at_least_one(num_branches=num_branches)
    if not 0 <= transfer_s <= 1:
        raise InputError(f"the fork and join has a closed form for transfers of 0 to 1 s, not {transfer_s}")
    edges = [(0, branch) for branch in range(1, num_branches + 1)] + [(branch, num_branches + 1) for branch in range(1, num_branches + 1)]
    times = [float(num_branches)]
    for there in range(1, num_branches + 1):
        here = num_branches - there
        times.append(max(float(here), 2 * transfer_s + there))
        times.append(max(here + transfer_s if here else 0.0, transfer_s + there))
    return SolvedProblem(
        graph=_graph(num_branches + 2, edges, tensor_bytes=1000, source=f"fork and join of {num_branches} branches"),
        cluster=_cluster(2, bytes_per_s=1000 / transfer_s if transfer_s else 1e300),
        optimum_s=2.0 + min(times),
    )


def _at_least_one(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InputError(f"{name} is {count}; it must be at least 1")


def _graph(num_ops: int, edges: list[tuple[int, int]], *, tensor_bytes: int, source: str) -> Graph:
    """Ops of one second that produce one tensor each."""
    return Graph(
        op_type=("aten.linear.default",) * num_ops,
        name=tuple(f"op{op}" for op in range(num_ops)),
        module_path=("",) * num_ops,
        flops=np.ones(num_ops),
        accessed_bytes=np.zeros(num_ops, np.int64),
        param_bytes=np.zeros(num_ops, np.int64),
        temp_bytes=np.zeros(num_ops, np.int64),
        phase=np.full(num_ops, Phase.FORWARD, np.int8),
        colocation_group=np.full(num_ops, Graph.NO_GROUP, np.int32),
        tensor_producer=np.arange(num_ops, dtype=np.int32),
        tensor_bytes=np.full(num_ops, tensor_bytes, np.int64),
        tensor_shape=((tensor_bytes,),) * num_ops,
        tensor_dtype=("int8",) * num_ops,
        edge_tensor=np.array([producer for producer, _ in edges], np.int32),
        edge_consumer=np.array([consumer for _, consumer in edges], np.int32),
        source=source,
    )


def _cluster(num_devices: int, *, bytes_per_s: float) -> Cluster:
    """Equal devices, every ordered pair with a channel of its own and no latency."""
    shape = (num_devices, num_devices)
    return Cluster(
        name=f"{num_devices} equal devices",
        devices=tuple(
            Device(
                name=f"gpu{number}",
                kind="unit",
                memory_bytes=2**40,
                flops_per_s={"float32": 1.0},
                memory_bytes_per_s=1.0,
                op_overhead_s=0.0,
            )
            for number in range(num_devices)
        ),
        bandwidth_bytes_per_s=np.full(shape, bytes_per_s),
        latency_s=np.zeros(shape),
        channel=np.arange(num_devices**2, dtype=np.int32).reshape(shape),
        channel_name=tuple(f"gpu{i} to gpu{j}" for i in range(num_devices) for j in range(num_devices)),
    )
