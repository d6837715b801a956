"""Small graphs, clusters and policies that the tests of the policy share."""

import numpy as np
import torch

from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster, Device
from gdp.features.config import FeatureConfig
from gdp.features.featurize import featurize
from gdp.features.graph_tensors import GraphTensors
from gdp.graph import Graph
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Policy

FEATURES = FeatureConfig(op_vocabulary=("MatMul", "Add"), num_hash_buckets=4)


def cluster(*speeds: float, memory_bytes: int = 2**30, bytes_per_s: float = 1e9) -> Cluster:
    """Devices of the given FLOP/s, every pair joined by a channel of its own."""
    count = len(speeds)
    return Cluster(
        name="test",
        devices=tuple(
            Device(
                name=f"gpu{number}",
                kind=f"at{speed:g}",
                memory_bytes=memory_bytes,
                flops_per_s={"float32": speed},
                memory_bytes_per_s=1e15,
                op_overhead_s=0.0,
            )
            for number, speed in enumerate(speeds)
        ),
        bandwidth_bytes_per_s=np.full((count, count), bytes_per_s),
        latency_s=np.full((count, count), 1e-6),
        channel=np.arange(count * count, dtype=np.int32).reshape(count, count),
        channel_name=tuple(f"c{number}" for number in range(count * count)),
    )


def graph(edges: list[tuple[int, int]], *, flops: list[float], tensor_bytes: int = 1000, param_bytes: list[int] | None = None) -> Graph:
    """Ops of the given work; every op that has a consumer produces one tensor."""
    count = len(flops)
    producers = sorted({producer for producer, _ in edges})
    return Graph(
        op_type=tuple("MatMul" if op % 2 else "Add" for op in range(count)),
        name=tuple(f"op{op}" for op in range(count)),
        module_path=("",) * count,
        flops=np.array(flops, np.float64),
        accessed_bytes=np.zeros(count, np.int64),
        param_bytes=np.array(param_bytes or [0] * count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        phase=np.zeros(count, np.int8),
        colocation_group=np.full(count, Graph.NO_GROUP, np.int32),
        tensor_producer=np.array(producers, np.int32),
        tensor_bytes=np.full(len(producers), tensor_bytes, np.int64),
        tensor_shape=((tensor_bytes // 4,),) * len(producers),
        tensor_dtype=("float32",) * len(producers),
        edge_tensor=np.array([producers.index(producer) for producer, _ in edges], np.int32),
        edge_consumer=np.array([consumer for _, consumer in edges], np.int32),
        source="tests.policy",
    )


def layered_graph(*, layers: int, width: int, seed: int, tensor_bytes: int = 200_000) -> Graph:
    """Each op consumes one or two of the layer before; about 1 ms of work per op at 1e12 FLOP/s."""
    generator = np.random.default_rng(seed)
    edges = {
        ((layer - 1) * width + int(producer), layer * width + op)
        for layer in range(1, layers)
        for op in range(width)
        for producer in generator.choice(width, generator.integers(1, min(width, 2) + 1), replace=False)
    }
    return graph(sorted(edges), flops=list(generator.lognormal(0, 0.7, layers * width) * 1e9), tensor_bytes=tensor_bytes)


def every_op_alone(of: Graph) -> Grouping:
    return Grouping(group_of_op=np.arange(of.num_ops, dtype=np.int32), num_groups=of.num_ops)


def tensors(of: Graph, on: Cluster) -> GraphTensors:
    return featurize(of, on, every_op_alone(of), FEATURES)


def policy(*, seed: int = 0, shaken: bool = True, **sizes: object) -> Policy:
    """A small policy; `shaken` moves every parameter, also those that start at zero."""
    small: dict[str, object] = {
        "hidden": 16,
        "type_embedding": 4,
        "heads": 2,
        "segment": 8,
        "feed_forward": 16,
        "head_width": 8,
        "context": 8,
    }
    generator = torch.Generator().manual_seed(seed)
    out = Policy(PolicyConfig(**{**small, **sizes}), FEATURES, generator=generator)  # type: ignore[arg-type]
    if shaken:
        with torch.no_grad():
            for parameter in out.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return out
