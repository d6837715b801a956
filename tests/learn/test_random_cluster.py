"""Random clusters: what a configuration asks for is what is drawn, over the whole range and nothing beyond."""

import dataclasses

import numpy as np

from gdp.cluster import Cluster
from gdp.learn.random_cluster import RandomClusterConfig, random_cluster

PLAIN = RandomClusterConfig(
    min_devices=2,
    max_devices=16,
    unequal_fraction=0.0,
    host_fraction=0.0,
    machines_fraction=0.0,
    min_bandwidth_bytes_per_s=1e9,
    max_bandwidth_bytes_per_s=1e11,
    min_latency_s=1e-6,
    max_latency_s=1e-5,
    tight_memory_fraction=0.0,
)
NEEDED_BYTES = 10 * 2**30


def drawn(config: RandomClusterConfig, *, count: int = 200) -> list[Cluster]:
    return [
        random_cluster(np.random.default_rng((3, number)), config, name=f"c{number}", needed_bytes=NEEDED_BYTES) for number in range(count)
    ]


def flops_per_s(cluster: Cluster) -> list[float]:
    return [device.flops_per_s["float32"] for device in cluster.devices]


def links(matrix: np.ndarray) -> np.ndarray:
    return matrix[~np.eye(len(matrix), dtype=bool)]


def test_plain_clusters_have_equal_devices_equal_links_and_ample_memory() -> None:
    clusters = drawn(PLAIN)
    assert {cluster.num_devices for cluster in clusters} == set(range(2, 17))
    assert sum(cluster.num_devices <= 5 for cluster in clusters) > 80, "small ones are as many as large ones"
    for cluster in clusters:
        assert len(cluster.kinds) == 1
        assert len(np.unique(links(cluster.bandwidth_bytes_per_s))) == len(np.unique(links(cluster.latency_s))) == 1
        assert 1e9 <= cluster.bandwidth_bytes_per_s[0, 1] <= 1e11
        assert cluster.memory_bytes.min() >= 4 * NEEDED_BYTES
        assert cluster.num_channels in (1, cluster.num_devices * (cluster.num_devices - 1))
    assert 60 < sum(cluster.num_channels == 1 for cluster in clusters) < 140


def test_a_host_is_one_slow_device_that_memory_is_never_tight_on() -> None:
    for cluster in drawn(dataclasses.replace(PLAIN, host_fraction=1.0, tight_memory_fraction=1.0)):
        (host,) = [number for number, device in enumerate(cluster.devices) if device.name == "cpu"]
        others = np.delete(np.array(flops_per_s(cluster)), host)
        assert 4 <= others.min() / flops_per_s(cluster)[host] <= 30
        assert np.delete(cluster.memory_bytes, host).max() < cluster.memory_bytes[host] == 4 * NEEDED_BYTES + 2**30


def test_two_machines_have_slower_links_between_them_and_one_channel_each_way() -> None:
    for cluster in drawn(dataclasses.replace(PLAIN, machines_fraction=1.0)):
        fast = cluster.bandwidth_bytes_per_s == links(cluster.bandwidth_bytes_per_s).max()
        first = next(
            size
            for size in range(1, cluster.num_devices + 1)
            if size == cluster.num_devices or cluster.channel_name[cluster.channel[0, size]].startswith("machine")
        )
        assert first < cluster.num_devices, "no machine is empty"
        apart = cluster.bandwidth_bytes_per_s[0, -1]
        assert cluster.latency_s[0, -1] > 0
        assert set(cluster.channel[:first, first:].ravel().tolist()) == {cluster.channel_name.index("machine0-machine1")}
        assert set(cluster.channel[first:, :first].ravel().tolist()) == {cluster.channel_name.index("machine1-machine0")}
        if cluster.num_devices > 2:
            assert 2 <= links(cluster.bandwidth_bytes_per_s).max() / apart <= 20.001
            assert fast[:first, :first][~np.eye(first, dtype=bool)].all()


def test_unequal_devices_differ_by_less_than_a_host_does() -> None:
    ratios = [max(flops_per_s(cluster)) / min(flops_per_s(cluster)) for cluster in drawn(dataclasses.replace(PLAIN, unequal_fraction=1.0))]
    assert 1 < min(ratios)
    assert 6 < max(ratios) <= 8


def test_tight_memory_together_holds_what_one_device_would_need() -> None:
    for cluster in drawn(dataclasses.replace(PLAIN, tight_memory_fraction=1.0)):
        assert 1.2 * 0.7 * 0.999 <= cluster.memory_bytes.sum() / NEEDED_BYTES <= 3.0 * 1.3
