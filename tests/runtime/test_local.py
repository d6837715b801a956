"""This machine as a cluster: the figures are physically possible, and nothing outside the probe changes."""

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gdp.cluster import Cluster, read_cluster, write_cluster
from gdp.errors import InputError
from gdp.runtime import local
from gdp.runtime.core_sets import cores_of
from gdp.runtime.links import Link
from gdp.runtime.local import default_core_sets, local_cluster, measured_links

LINK = Link(latency_s=1e-6, bandwidth_bytes_per_s=1e9, num_bytes=(), seconds=(), median_error=0.0)
CORES = sorted(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return local_cluster(default_core_sets())


def test_every_core_is_a_device_of_one_measured_kind(cluster: Cluster) -> None:
    cpus = [device for device in cluster.devices if device.name.startswith("cpu:")]
    assert [device.name for device in cpus] == [f"cpu:{core}" for core in CORES]
    for device in cpus:
        assert device.kind.startswith("cpu-1core")
        # From a slow embedded core to twice the fastest core on sale.
        assert 1e8 < device.flops_per_s["float32"] < 1e12
        assert 1e8 < device.memory_bytes_per_s < 1e12
        assert 1e-8 < device.op_overhead_s < 1e-3


def test_the_parts_of_the_memory_sum_to_no_more_than_the_machine_has(cluster: Cluster) -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = sum(device.memory_bytes for device in cluster.devices if device.name.startswith("cpu:"))
    assert 0 < parts <= total


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_core_sets_hand_over_by_reference(cluster: Cluster) -> None:
    assert 1e-7 < cluster.latency_s[0, 1] < 0.1
    assert 1e7 < cluster.bandwidth_bytes_per_s[0, 1] <= 1e13
    assert cluster.channel[0, 1] == Cluster.NO_CHANNEL


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_a_set_of_all_cores_is_one_device_with_all_memory(cluster: Cluster) -> None:
    whole = local_cluster([f"cpu:{','.join(map(str, CORES))}"])
    assert whole.devices[0].kind.startswith(f"cpu-{len(CORES)}core")
    assert whole.devices[0].memory_bytes >= cluster.devices[0].memory_bytes * len(CORES)


def test_pairs_of_gpus_are_measured_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def measured(source: torch.device, destination: torch.device) -> Link:
        seen.append((str(source), str(destination)))
        return Link(latency_s=len(seen) * 1e-6, bandwidth_bytes_per_s=1e9, num_bytes=(), seconds=(), median_error=0.0)

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(local, "gpu_identity", str)
    monkeypatch.setattr(local, "copy_link", measured)
    links = measured_links(["cuda:0", "cuda:1", "cuda:2"], ["gpu"] * 3)
    assert len(set(seen)) == 6 and len({link.latency_s for link in links.values()}) == 6


def test_the_probe_leaves_the_process_as_it_was() -> None:
    before = (os.sched_getaffinity(0), torch.get_num_threads(), torch.get_rng_state())
    local_cluster([f"cpu:{CORES[0]}"])
    assert before[:2] == (os.sched_getaffinity(0), torch.get_num_threads())
    assert torch.equal(before[2], torch.get_rng_state())


def test_it_is_a_file_like_any_cluster(cluster: Cluster, tmp_path: object) -> None:
    path = tmp_path / "local.yaml"  # type: ignore[operator]
    write_cluster(path, cluster)
    assert read_cluster(path).sha256 == cluster.sha256


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cpu:100000"], "cpu:100000"),
        (["gpu:0"], "gpu:0"),
        ([f"cpu:{CORES[0]}", f"cpu:{CORES[0]}"], "share a core"),
        (["cpu:"], "cpu:"),
    ],
)
def test_impossible_core_sets_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        local_cluster(names)


def test_no_device_at_all_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    with pytest.raises(InputError, match="name core sets"):
        local_cluster([])


def test_a_gpu_has_the_memory_that_is_free_when_the_probe_has_given_back_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    total, context, cached = 2**36, 2**29, [0, 0]

    def speed(device: torch.device) -> tuple[float, float, float]:
        cached[device.index] += 3 * 2**26
        return 1e12, 1e11, 1e-5

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda number: SimpleNamespace(name=f"Card {number}", total_memory=total))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda number: (total - context - cached[number], total))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: cached.__setitem__(slice(None), [0, 0]))
    monkeypatch.setattr(local, "gpu_identity", str)
    monkeypatch.setattr(local, "_speed", speed)
    monkeypatch.setattr(local, "copy_link", lambda *ends: speed(max(ends, key=str)) and LINK)
    found = local_cluster([])
    assert [(device.name, device.kind, device.memory_bytes) for device in found.devices] == [
        ("cuda:0", "card-0", total - context),
        ("cuda:1", "card-1", total - context),
    ]
    assert cached == [0, 0]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_devices_are_found_and_linked(cluster: Cluster) -> None:
    gpu = next(number for number, device in enumerate(cluster.devices) if device.name == "cuda:0")
    total = torch.cuda.get_device_properties(0).total_memory
    assert 0 < cluster.devices[gpu].memory_bytes < total
    assert torch.cuda.memory_reserved(0) < 64 * 2**20  # the workspace of the matrix product, not the probe's vectors of 192 MiB
    assert 1e11 < cluster.devices[gpu].flops_per_s["float32"] < 1e15
    assert 1e8 < cluster.bandwidth_bytes_per_s[0, gpu] < 1e12
    assert cluster.channel[0, gpu] != cluster.channel[gpu, 0]
    assert np.isfinite(cluster.latency_s).all()


@pytest.mark.parametrize(
    ("cores", "sets"),
    [
        ([0, 1], ["cpu:0", "cpu:1"]),
        ([1, 3, 5], ["cpu:1", "cpu:3", "cpu:5"]),
        (list(range(8)), [f"cpu:{core}" for core in range(8)]),
        (list(range(10)), ["cpu:0,1", "cpu:2,3", *[f"cpu:{core}" for core in range(4, 10)]]),
        (list(range(64)), [f"cpu:{first}-{first + 7}" for first in range(0, 64, 8)]),
        (
            [*range(0, 12), *range(24, 36)],
            ["cpu:0-2", "cpu:3-5", "cpu:6-8", "cpu:9-11", "cpu:24-26", "cpu:27-29", "cpu:30-32", "cpu:33-35"],
        ),
    ],
)
def test_a_large_machine_is_a_few_sets_of_neighbouring_cores(monkeypatch: pytest.MonkeyPatch, cores: list[int], sets: list[str]) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(cores))
    assert list(default_core_sets()) == sets
    assert [core for name in default_core_sets() for core in cores_of(name)] == cores
