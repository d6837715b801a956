"""Hypothesis strategies for the nouns: small random graphs, clusters, and device arrays.

Costs come mostly from a few round values, so that ties (in time, in rank, in size) are common; some are arbitrary.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from hypothesis import strategies as st

from gdp.cluster import Cluster, Device
from gdp.graph import CONTROL, Graph
from gdp.placement import Origin, Placement

KINDS = ("fast", "slow")
"""The device kinds of `clusters`; `graphs` may carry measured seconds for any of them."""

FLOPS_PER_S = {"fast": 8.0, "slow": 2.0}

_seconds = st.one_of(st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.floats(0.0, 3.0))
_bytes = st.sampled_from([0, 1, 2, 4, 8, 1000])


@contextmanager
def _random_state_kept() -> Iterator[None]:
    """The run-time type checks look at a random item of each tuple; a strategy may not move the global random state."""
    state = random.getstate()
    yield
    random.setstate(state)


def _array(draw: st.DrawFn, elements: st.SearchStrategy, count: int, dtype: type) -> np.ndarray:
    return np.array(draw(st.lists(elements, min_size=count, max_size=count)), dtype)


@st.composite
def graphs(
    draw: st.DrawFn, *, min_ops: int = 1, max_ops: int = 10, max_inputs: int = 3, colocation: bool = True, measured: bool = True
) -> Graph:
    """A graph of `min_ops` to `max_ops` ops whose ops consume up to `max_inputs` tensors of earlier ops, sometimes one of them twice."""
    num_ops = draw(st.integers(min_ops, max_ops))
    outputs = _array(draw, st.sampled_from([1, 1, 1, 0, 2, 3]), num_ops, np.int32)
    producer = np.repeat(np.arange(num_ops, dtype=np.int32), outputs)
    num_tensors = len(producer)
    control = _array(draw, st.sampled_from([False, False, False, True]), num_tensors, np.bool_)
    edges = []
    for op in range(1, num_ops):
        earlier = int(np.searchsorted(producer, op))
        if earlier:
            edges += [(tensor, op) for tensor in draw(st.lists(st.integers(0, earlier - 1), max_size=max_inputs))]
    edges = draw(st.permutations(edges))
    group = st.sampled_from([Graph.NO_GROUP, Graph.NO_GROUP, Graph.NO_GROUP, 0, 1]) if colocation else st.just(Graph.NO_GROUP)
    kinds = draw(st.lists(st.sampled_from(KINDS), unique=True)) if measured else []
    with _random_state_kept():
        return Graph(
            op_type=tuple(draw(st.lists(st.sampled_from(["MatMul", "Add", "Reshape"]), min_size=num_ops, max_size=num_ops))),
            name=tuple(f"op{op}" for op in range(num_ops)),
            module_path=("",) * num_ops,
            flops=_array(draw, st.one_of(st.sampled_from([0.0, 1.0, 8.0]), st.floats(0.0, 20.0)), num_ops, np.float64),
            accessed_bytes=_array(draw, _bytes, num_ops, np.int64),
            param_bytes=_array(draw, _bytes, num_ops, np.int64),
            temp_bytes=_array(draw, _bytes, num_ops, np.int64),
            phase=np.zeros(num_ops, np.int8),
            colocation_group=_array(draw, group, num_ops, np.int32),
            tensor_producer=producer,
            tensor_bytes=np.where(control, 0, _array(draw, _bytes, num_tensors, np.int64)),
            tensor_shape=((-1,),) * num_tensors,
            tensor_dtype=tuple(CONTROL if alone else "float32" for alone in control),
            edge_tensor=np.array([tensor for tensor, _ in edges], np.int32),
            edge_consumer=np.array([op for _, op in edges], np.int32),
            source="tests.strategies.graphs",
            measured_time_s={kind: _array(draw, _seconds, num_ops, np.float64) for kind in kinds},
        )


@st.composite
def clusters(draw: st.DrawFn, *, min_devices: int = 1, max_devices: int = 4, equal: bool = False, roomy: bool = False) -> Cluster:
    """A cluster whose pairs share channels, have their own, or have none, mixed.

    Its devices differ in kind and memory, except when `equal`. `roomy` devices have memory for any graph of `graphs`, the others perhaps not.
    """
    count = draw(st.integers(min_devices, max_devices))
    kinds = [draw(st.sampled_from(KINDS))] * count if equal else draw(st.lists(st.sampled_from(KINDS), min_size=count, max_size=count))
    num_channels = draw(st.integers(0, 3))
    memory = st.just(2**40) if roomy else st.sampled_from([0, 100, 3000, 8000, 2**40, 2**40, 2**40, 2**40])
    shape = (count, count)
    bandwidth = _array(draw, st.one_of(st.sampled_from([1.0, 4.0, np.inf]), st.floats(0.5, 100.0)), count**2, np.float64)
    with _random_state_kept():
        return Cluster(
            name="tests.strategies.clusters",
            devices=tuple(
                Device(
                    name=f"gpu{number}",
                    kind=kind,
                    memory_bytes=draw(memory),
                    flops_per_s={"float32": FLOPS_PER_S[kind]},
                    memory_bytes_per_s=1000.0,
                    op_overhead_s=0.25,
                )
                for number, kind in enumerate(kinds)
            ),
            bandwidth_bytes_per_s=bandwidth.reshape(shape),
            latency_s=_array(draw, _seconds, count**2, np.float64).reshape(shape),
            channel=_array(draw, st.integers(Cluster.NO_CHANNEL, num_channels - 1), count**2, np.int32).reshape(shape),
            channel_name=tuple(f"channel{number}" for number in range(num_channels)),
        )


@st.composite
def devices(draw: st.DrawFn, graph: Graph, cluster: Cluster) -> np.ndarray:
    """`[ops]` int32 device indices that keep colocation groups together."""
    device = _array(draw, st.integers(0, cluster.num_devices - 1), graph.num_ops, np.int32)
    for group in set(graph.colocation_group.tolist()) - {Graph.NO_GROUP}:
        members = graph.colocation_group == group
        device[members] = device[members][0]
    return device


def placement(device: np.ndarray) -> Placement:
    """A placement that says where it came from: a test."""
    return Placement(device=np.array(device, np.int32), origin=Origin(placer="test"))


def seeded_graph(generator: np.random.Generator, *, num_ops: int, max_inputs: int = 3) -> Graph:
    """A random graph made at once, for many or for large cases. Half of them have only round costs, and so many ties."""
    outputs = generator.choice([0, 1, 1, 1, 2], num_ops)
    producer = np.repeat(np.arange(num_ops), outputs)
    earlier = np.searchsorted(producer, np.arange(num_ops))
    count = np.where(earlier > 0, generator.integers(0, max_inputs + 1, num_ops), 0)
    consumer = np.repeat(np.arange(num_ops), count)
    reach = generator.choice([3, 30, num_ops + 1])  # how far back an op's inputs lie
    limit = earlier[consumer]
    tensor = limit - 1 - np.minimum((generator.random(len(consumer)) * np.minimum(limit, reach)).astype(int), limit - 1)
    shuffled = generator.permutation(len(consumer))
    rounded = generator.random() < 0.5
    seconds = generator.choice([0.0, 0.0, 1.0, 2.0], num_ops) if rounded else generator.random(num_ops)
    group = np.where(generator.random(num_ops) < 0.1, generator.integers(0, 3, num_ops), Graph.NO_GROUP)
    return Graph(
        op_type=("MatMul",) * num_ops,
        name=tuple(map(str, range(num_ops))),
        module_path=("",) * num_ops,
        flops=generator.choice([0.0, 1.0, 10.0], num_ops),
        accessed_bytes=generator.integers(0, 100, num_ops),
        param_bytes=generator.integers(0, 100, num_ops),
        temp_bytes=generator.integers(0, 100, num_ops),
        phase=np.zeros(num_ops, np.int8),
        colocation_group=group.astype(np.int32),
        tensor_producer=producer.astype(np.int32),
        tensor_bytes=generator.choice([0, 1, 2, 64], len(producer)),
        tensor_shape=((-1,),) * len(producer),
        tensor_dtype=("float32",) * len(producer),
        edge_tensor=tensor[shuffled].astype(np.int32),
        edge_consumer=consumer[shuffled].astype(np.int32),
        source="tests.strategies.seeded_graph",
        measured_time_s={kind: seconds * (number + 1) for number, kind in enumerate(KINDS)},
    )


def seeded_cluster(generator: np.random.Generator, *, num_devices: int) -> Cluster:
    """A random cluster made at once: unequal devices, tight or ample memory, and shared, own or no channels."""
    num_channels = int(generator.integers(0, 4))
    shape = (num_devices, num_devices)
    return Cluster(
        name="tests.strategies.seeded_cluster",
        devices=tuple(
            Device(
                name=f"gpu{number}",
                kind=KINDS[generator.integers(len(KINDS))],
                memory_bytes=int(generator.choice([0, 1000, 2**40, 2**40, 2**40])),
                flops_per_s={"float32": 10.0},
                memory_bytes_per_s=100.0,
                op_overhead_s=0.5,
            )
            for number in range(num_devices)
        ),
        bandwidth_bytes_per_s=generator.choice([1.0, 32.0, 100.0, np.inf], shape),
        latency_s=generator.choice([0.0, 0.0, 0.5, float(generator.random())], shape),
        channel=generator.integers(Cluster.NO_CHANNEL, num_channels, shape).astype(np.int32),
        channel_name=tuple(f"channel{number}" for number in range(num_channels)),
    )


def seeded_device(generator: np.random.Generator, graph: Graph, cluster: Cluster) -> np.ndarray:
    """`[ops]` int32 random device indices that keep colocation groups together."""
    device = generator.integers(0, cluster.num_devices, graph.num_ops).astype(np.int32)
    for group in set(graph.colocation_group.tolist()) - {Graph.NO_GROUP}:
        members = graph.colocation_group == group
        device[members] = device[members][0]
    return device
