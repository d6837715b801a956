"""A learning problem whose best placement is known, and the pieces to learn it with."""

import numpy as np
import torch

from gdp.cluster import Cluster, Device
from gdp.features.config import FeatureConfig
from gdp.graph import Graph
from gdp.learn.config import LearnConfig
from gdp.learn.learner import Learner, new_learner
from gdp.learn.task import Task, make_task
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Policy
from gdp.runtime.simulator import Simulator

SMALL = PolicyConfig(
    hidden=16,
    type_embedding=4,
    sage_layers=1,
    attention_layers=1,
    heads=2,
    segment=8,
    feed_forward=16,
    head_width=8,
    context=8,
    passes=2,
    finish_prior=0.0,
    decoding="sequential",
    max_devices=4,
)


def two_devices() -> Cluster:
    """Two equal devices, 1e9 operations a second, with a slow link: moving a tensor of 1 MB takes as long as 1e9 operations."""
    device = {"kind": "d", "memory_bytes": 2**30, "flops_per_s": {"float32": 1e9}, "memory_bytes_per_s": 1e15, "op_overhead_s": 0.0}
    return Cluster(
        name="two",
        devices=(Device(name="d0", **device), Device(name="d1", **device)),
        bandwidth_bytes_per_s=np.full((2, 2), 1e6),
        latency_s=np.zeros((2, 2)),
        channel=np.zeros((2, 2), np.int32),
        channel_name=("root",),
    )


def two_chains() -> Graph:
    """Two chains of two ops, one second each, joined by tensors of 1 MB, a second of transfer: best is a chain per device, 2 s; one device takes 4 s."""
    count, edges = 4, [(0, 1), (2, 3)]
    return Graph(
        op_type=("matmul",) * count,
        name=("a0", "a1", "b0", "b1"),
        module_path=("",) * count,
        flops=np.full(count, 1e9),
        accessed_bytes=np.zeros(count, np.int64),
        param_bytes=np.zeros(count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        phase=np.zeros(count, np.int8),
        colocation_group=np.full(count, -1, np.int32),
        tensor_producer=np.array([producer for producer, _ in edges], np.int32),
        tensor_bytes=np.full(len(edges), 1_000_000, np.int64),
        tensor_shape=((250_000,),) * len(edges),
        tensor_dtype=("float32",) * len(edges),
        edge_tensor=np.arange(len(edges), dtype=np.int32),
        edge_consumer=np.array([consumer for _, consumer in edges], np.int32),
        source="two chains",
    )


def task(graph: Graph, cluster: Cluster) -> Task:
    return make_task("t", graph, cluster, runtime=Simulator(), features=FeatureConfig(), max_groups=64, objective="step_time")


def learner(seed: int) -> Learner:
    policy = Policy(SMALL, FeatureConfig(), generator=torch.Generator().manual_seed(seed))
    return new_learner(policy, parameters=list(policy.parameters()), seed=seed)


def learn_config(
    *,
    updates: int,
    samples_per_update: int = 8,
    epochs: int = 2,
    learning_rate: float = 1e-2,
    elite_weight: float = 0.0,
    patience_updates: int = 0,
) -> LearnConfig:
    return LearnConfig(
        updates=updates,
        tasks_per_update=1,
        samples_per_update=samples_per_update,
        temperature=1.0,
        epochs=epochs,
        minibatches=2,
        learning_rate=learning_rate,
        final_learning_rate=learning_rate,
        clip=0.2,
        entropy_weight=0.0,
        gradient_norm=1.0,
        baseline="batch",
        normalise_advantage=True,
        advantage_clip=3.0,
        elite_weight=elite_weight,
        patience_updates=patience_updates,
    )
