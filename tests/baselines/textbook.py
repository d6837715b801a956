"""The ten tasks on three processors of Topcuoglu, Hariri and Wu, IEEE TPDS 13, 2002, figure 2, whose schedules the paper gives."""

import numpy as np

from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster, Device
from gdp.graph import Graph

_SECONDS = [
    [14, 16, 9],
    [13, 19, 18],
    [11, 13, 19],
    [13, 8, 17],
    [12, 13, 10],
    [13, 16, 9],
    [7, 15, 11],
    [5, 11, 14],
    [18, 12, 20],
    [21, 7, 16],
]
_EDGES = {
    (0, 1): 18, (0, 2): 12, (0, 3): 9, (0, 4): 11, (0, 5): 14, (1, 7): 19, (1, 8): 16, (2, 6): 23,
    (3, 7): 27, (3, 8): 23, (4, 8): 13, (5, 7): 15, (6, 9): 17, (7, 9): 11, (8, 9): 13,
}  # fmt: skip


def ten_tasks() -> tuple[Graph, Cluster]:
    """The graph, whose every edge has a tensor of its own, and the processors, which exchange a byte a second without contention."""
    seconds = np.array(_SECONDS, np.float64)
    count = len(seconds)
    graph = Graph(
        op_type=("task",) * count,
        name=tuple(f"n{task + 1}" for task in range(count)),
        module_path=("",) * count,
        flops=np.ones(count),
        accessed_bytes=np.zeros(count, np.int64),
        param_bytes=np.zeros(count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        phase=np.zeros(count, np.int8),
        colocation_group=np.full(count, Graph.NO_GROUP, np.int32),
        tensor_producer=np.array([producer for producer, _ in _EDGES], np.int32),
        tensor_bytes=np.array(list(_EDGES.values()), np.int64),
        tensor_shape=((-1,),) * len(_EDGES),
        tensor_dtype=("int8",) * len(_EDGES),
        edge_tensor=np.arange(len(_EDGES), dtype=np.int32),
        edge_consumer=np.array([consumer for _, consumer in _EDGES], np.int32),
        source="Topcuoglu's ten tasks",
        measured_time_s={f"p{number + 1}": np.ascontiguousarray(seconds[:, number]) for number in range(3)},
    )
    cluster = Cluster(
        name="three processors",
        devices=tuple(
            Device(
                name=f"p{number + 1}",
                kind=f"p{number + 1}",
                memory_bytes=2**40,
                flops_per_s={"float32": 1.0},
                memory_bytes_per_s=1.0,
                op_overhead_s=0.0,
            )
            for number in range(3)
        ),
        bandwidth_bytes_per_s=np.ones((3, 3)),
        latency_s=np.zeros((3, 3)),
        channel=np.full((3, 3), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )
    return graph, cluster


def every_op_alone(graph: Graph) -> Grouping:
    return Grouping(group_of_op=np.arange(graph.num_ops, dtype=np.int32), num_groups=graph.num_ops)
