"""Random clusters for pretraining: so that a policy meets few and many devices, equal and unequal ones, slow and fast links, ample and tight memory."""

import dataclasses
import itertools

import numpy as np
from jaxtyping import Int32, Int64

from gdp.cluster import Cluster, Device
from gdp.errors import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class RandomClusterConfig:
    """The ranges that clusters are drawn from; the logarithms of every rate and of the number of devices are uniform."""

    min_devices: int
    max_devices: int
    unequal_fraction: float
    """share of clusters whose devices have two or three kinds."""
    host_fraction: float
    """share of clusters one of whose devices is a host processor: much slower than the others, with ample memory."""
    machines_fraction: float
    """share of clusters whose devices stand in two machines, with one link each way between them, slower than those within."""
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
        for name, low, high, least, most in (
            ("bandwidth_bytes_per_s", self.min_bandwidth_bytes_per_s, self.max_bandwidth_bytes_per_s, 1.0, 1e15),
            ("latency_s", self.min_latency_s, self.max_latency_s, 1e-12, 10.0),
        ):
            if not least <= low <= high <= most:
                raise InputError(
                    f"random clusters have {name} from {low} to {high}; the bounds must ascend and lie between {least:g} and {most:g}"
                )
        for name, share in (
            ("unequal_fraction", self.unequal_fraction),
            ("host_fraction", self.host_fraction),
            ("machines_fraction", self.machines_fraction),
            ("tight_memory_fraction", self.tight_memory_fraction),
        ):
            if not 0 <= share <= 1:
                raise InputError(f"{name} of random clusters is {share}; it must lie between 0 and 1")


_HOST_SLOWDOWN = (4.0, 30.0)
"""How many times slower a host processor computes than the slowest other device; its memory, half to twice that. A Xeon of 14 cores beside a P100: 10 and 10."""
_LINK_SLOWDOWN = (2.0, 20.0)
"""How many times less a link between machines carries than one within."""


def random_cluster(generator: np.random.Generator, config: RandomClusterConfig, *, name: str, needed_bytes: int) -> Cluster:
    """A cluster drawn from the ranges of `config`; `needed_bytes` is the peak memory of the graph on one device. The generator is consumed.

    Half of the clusters have one shared channel in each machine (a PCIe root), half a channel per ordered pair (a switch).
    """
    count = int(_log_uniform(generator, float(config.min_devices), config.max_devices + 1.0))
    ample_bytes = 4.0 * needed_bytes + 2**30
    tight = generator.random() < config.tight_memory_fraction
    tight_bytes = needed_bytes * float(generator.uniform(1.2, 3.0)) / count if tight else None
    kinds = _kinds(generator, config, min(3, count), name=name, tight_bytes=tight_bytes, ample_bytes=ample_bytes)
    kind = np.concatenate([np.arange(len(kinds)), generator.integers(len(kinds), size=count - len(kinds))])
    devices = [dataclasses.replace(kinds[which], name=f"gpu{number}") for number, which in enumerate(kind.tolist())]
    if generator.random() < config.host_fraction:
        devices[int(generator.integers(count))] = _host(generator, kinds, name=name, memory_bytes=ample_bytes)
    machine = np.zeros(count, np.int64)
    if generator.random() < config.machines_fraction:
        machine[int(generator.integers(1, count)) :] = 1
    apart = machine[:, None] != machine[None, :]
    bandwidth = float(_log_uniform(generator, config.min_bandwidth_bytes_per_s, config.max_bandwidth_bytes_per_s))
    latency_s = float(_log_uniform(generator, config.min_latency_s, config.max_latency_s))
    slowdown = float(_log_uniform(generator, *_LINK_SLOWDOWN))
    channel, channel_name = _channels(machine, shared=bool(generator.random() < 0.5))
    return Cluster(
        name=name,
        devices=tuple(devices),
        bandwidth_bytes_per_s=np.where(apart, bandwidth / slowdown, bandwidth),
        latency_s=np.where(apart, 2.0 * latency_s, latency_s),
        channel=channel,
        channel_name=channel_name,
    )


def _kinds(
    generator: np.random.Generator, config: RandomClusterConfig, most: int, *, name: str, tight_bytes: float | None, ample_bytes: float
) -> list[Device]:
    """One kind of accelerator, or two to `most` that differ by up to eight times in arithmetic, four in memory traffic and four in overhead."""
    num_kinds = int(generator.integers(2, most + 1)) if generator.random() < config.unequal_fraction else 1
    spread = float(num_kinds > 1)
    flops_per_s, memory_bytes_per_s = 10e12 * np.exp(generator.normal(0.0, 0.5)), 700e9 * np.exp(generator.normal(0.0, 0.3))
    op_overhead_s = float(_log_uniform(generator, 1e-6, 1e-5))
    return [
        Device(
            name=f"gpu{which}",
            kind=f"{name}-kind{which}",
            memory_bytes=int(ample_bytes if tight_bytes is None else tight_bytes * generator.uniform(0.7, 1.3)),
            flops_per_s={"float32": float(flops_per_s * np.exp2(spread * generator.uniform(-1.5, 1.5)))},
            memory_bytes_per_s=float(memory_bytes_per_s * np.exp2(spread * generator.uniform(-1.0, 1.0))),
            op_overhead_s=float(op_overhead_s * np.exp2(spread * generator.uniform(-1.0, 1.0))),
        )
        for which in range(num_kinds)
    ]


def _host(generator: np.random.Generator, kinds: list[Device], *, name: str, memory_bytes: float) -> Device:
    slowest = min(kinds, key=lambda device: device.flops_per_s["float32"])
    slowdown = float(_log_uniform(generator, *_HOST_SLOWDOWN))
    return Device(
        name="cpu",
        kind=f"{name}-host",
        memory_bytes=int(memory_bytes),
        flops_per_s={"float32": slowest.flops_per_s["float32"] / slowdown},
        memory_bytes_per_s=slowest.memory_bytes_per_s / slowdown * float(generator.uniform(0.5, 2.0)),
        op_overhead_s=float(_log_uniform(generator, 5e-7, 5e-6)),
    )


def _channels(machine: Int64[np.ndarray, " devices"], *, shared: bool) -> tuple[Int32[np.ndarray, "devices devices"], tuple[str, ...]]:
    """One channel each way between machines; within them one each, when `shared`, or one per ordered pair of devices."""
    names: list[str] = []
    channel = np.full((len(machine), len(machine)), Cluster.NO_CHANNEL, np.int32)
    for source, destination in itertools.permutations(range(len(machine)), 2):
        one, other = machine[source], machine[destination]
        name = f"machine{one}-machine{other}" if one != other else f"root{one}" if shared else f"{source}-{destination}"
        if name not in names:
            names.append(name)
        channel[source, destination] = names.index(name)
    return channel, tuple(names)


def _log_uniform(generator: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))
