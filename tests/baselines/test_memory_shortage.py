"""Why nothing fits, to the byte; and never said of a cluster on which some placement runs."""

import dataclasses
import itertools

import numpy as np
from hypothesis import given, settings

from gdp.baselines.memory_shortage import memory_shortage
from gdp.cluster import Cluster, preset
from gdp.graph import Graph
from gdp.measurement import Status
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered
from tests.strategies import clusters, graphs


def _cluster(*memory_bytes: int) -> Cluster:
    cluster = preset("p100x4")
    devices = tuple(dataclasses.replace(device, memory_bytes=memory) for device, memory in zip(cluster.devices, memory_bytes, strict=True))
    return dataclasses.replace(cluster, devices=devices)


def _graph(param_bytes: list[int], groups: list[int]) -> Graph:
    """Ops without tensors."""
    graph = layered(np.random.default_rng(0), num_ops=len(param_bytes))
    nothing = np.zeros(0, np.int32)
    return dataclasses.replace(
        graph,
        param_bytes=np.array(param_bytes, np.int64),
        temp_bytes=np.zeros(graph.num_ops, np.int64),
        colocation_group=np.array(groups + [-1] * (graph.num_ops - len(groups)), np.int32),
        tensor_producer=nothing,
        tensor_bytes=nothing.astype(np.int64),
        tensor_shape=(),
        tensor_dtype=(),
        edge_tensor=nothing,
        edge_consumer=nothing,
    )


def test_it_says_what_does_not_fit_by_how_many_bytes_and_where() -> None:
    count = layered(np.random.default_rng(0), num_ops=8).num_ops
    some = [10] * count
    fits = memory_shortage(_graph(some, []), _cluster(80, 80, 80, 80))
    together = memory_shortage(_graph([10, 10, 10, 40] + [0] * (count - 4), [7, 7, 7]), _cluster(20, 20, 20, 20))
    in_all = memory_shortage(_graph(some, []), _cluster(10, 10, 10, 10))
    larger = memory_shortage(_graph([30, 30, 30] + [0] * (count - 3), []), _cluster(29, 29, 40, 40))
    assert fits is None
    assert together is not None and "needs 40 bytes on one device" in together and "holds 20 bytes: 20 bytes too much" in together
    group = memory_shortage(_graph([10, 10, 10] + [0] * (count - 3), [7, 7, 7]), _cluster(20, 20, 20, 20))
    assert group is not None and "colocation group 7 (3 ops" in group and "10 bytes too much" in group
    assert in_all is not None and f"need {10 * count} bytes" in in_all and f"{10 * count - 40} bytes too much" in in_all
    assert larger is not None and "the 3 parts" in larger and "'gpu2', 'gpu3'" in larger and "10 bytes too much" in larger


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graph=graphs(max_ops=5), cluster=clusters(max_devices=3))
def test_where_a_placement_runs_nothing_is_short(graph: Graph, cluster: Cluster) -> None:
    device = np.array(list(itertools.product(range(cluster.num_devices), repeat=graph.num_ops)), np.int32)
    if memory_shortage(graph, cluster) is not None:
        assert not (Simulator().batch(graph, cluster, device).status == Status.OK).any()
