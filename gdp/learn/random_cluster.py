"""Random clusters for pretraining: so that a policy meets few and many devices, equal and unequal ones, slow and fast links, ample and tight memory."""

import dataclasses

import numpy as np

from gdp.cluster import Cluster, Device
from gdp.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomClusterConfig:
    """The ranges that clusters are drawn from; the logarithm of every rate is uniform."""

    min_devices: int
    max_devices: int
    unequal_fraction: float
    """share of clusters whose devices have two or three kinds."""
    min_bandwidth_bytes_per_s: float
    max_bandwidth_bytes_per_s: float
    min_latency_s: float
    max_latency_s: float
    tight_memory_fraction: float
    """share of clusters whose memory together is 1.2 to 3 times what a graph needs at once on one device, times 0.7 to 1.3 by kind; the others have ample memory."""

    def __post_init__(self) -> None:
        if not 2 <= self.min_devices <= self.max_devices <= 16:
            raise InputError(
                f"random clusters have from {self.min_devices} to {self.max_devices} devices; the bounds must ascend and lie between 2 and 16"
            )
        for name, low, high in (
            ("bandwidth_bytes_per_s", self.min_bandwidth_bytes_per_s, self.max_bandwidth_bytes_per_s),
            ("latency_s", self.min_latency_s, self.max_latency_s),
        ):
            if not 0 < low <= high < np.inf:
                raise InputError(f"random clusters have {name} from {low} to {high}; the bounds must be positive and ascend")
        for name, share in (("unequal_fraction", self.unequal_fraction), ("tight_memory_fraction", self.tight_memory_fraction)):
            if not 0 <= share <= 1:
                raise InputError(f"{name} of random clusters is {share}; it must lie between 0 and 1")


def random_cluster(generator: np.random.Generator, config: RandomClusterConfig, *, name: str, needed_bytes: int) -> Cluster:
    """A cluster drawn from the ranges of `config`; `needed_bytes` is the peak memory of the graph on one device. The generator is consumed.

    Half of the clusters have one shared channel (a PCIe root), half a channel per ordered pair (a switch).
    """
    count = int(generator.integers(config.min_devices, config.max_devices + 1))
    num_kinds = int(generator.integers(2, 4)) if generator.random() < config.unequal_fraction else 1
    kind = np.concatenate([np.arange(min(num_kinds, count)), generator.integers(num_kinds, size=max(count - num_kinds, 0))])
    flops_per_s = 10e12 * np.exp(generator.normal(0.0, 0.5)) * np.exp2(generator.uniform(-1.5, 1.5, size=num_kinds) * (num_kinds > 1))
    memory_bytes_per_s = (
        700e9 * np.exp(generator.normal(0.0, 0.3)) * np.exp2(generator.uniform(-1.0, 1.0, size=num_kinds) * (num_kinds > 1))
    )
    op_overhead_s = float(_log_uniform(generator, 1e-6, 1e-5))
    if generator.random() < config.tight_memory_fraction:
        memory = needed_bytes * float(generator.uniform(1.2, 3.0)) / count * generator.uniform(0.7, 1.3, size=num_kinds)
    else:
        memory = np.full(num_kinds, 4.0 * needed_bytes + 2**30)
    devices = tuple(
        Device(
            name=f"gpu{number}",
            kind=f"{name}-kind{which}",
            memory_bytes=int(memory[which]),
            flops_per_s={"float32": float(flops_per_s[which])},
            memory_bytes_per_s=float(memory_bytes_per_s[which]),
            op_overhead_s=op_overhead_s,
        )
        for number, which in enumerate(kind.tolist())
    )
    shared = generator.random() < 0.5
    bandwidth = float(_log_uniform(generator, config.min_bandwidth_bytes_per_s, config.max_bandwidth_bytes_per_s))
    latency_s = float(_log_uniform(generator, config.min_latency_s, config.max_latency_s))
    channel = np.zeros((count, count), np.int32) if shared else np.arange(count * count, dtype=np.int32).reshape(count, count)
    return Cluster(
        name=name,
        devices=devices,
        bandwidth_bytes_per_s=np.full((count, count), bandwidth),
        latency_s=np.full((count, count), latency_s),
        channel=channel,
        channel_name=("root",) if shared else tuple(f"{source}-{destination}" for source in range(count) for destination in range(count)),
    )


def _log_uniform(generator: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))
