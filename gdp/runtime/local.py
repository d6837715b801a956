"""This machine as a cluster: sets of CPU cores and CUDA devices, with measured speeds.

A set of cores is measured by threads pinned to it, as the PyTorch runtime runs it: the rate of a float32 matrix product, the memory bandwidth of a large
sum of two vectors, and the time of an operator on one number. Of several tries the best counts: another program's load slows a try, nothing speeds it up.

Core sets of one size and one top frequency are one device kind and are measured once. They share the machine's memory: each is
given the part of it that its cores are of all cores named. A GPU has the memory that is free on it after its measurement, which leaves out CUDA's own for this process (the
context and the workspace of the matrix product) and what other processes hold.

Links are measured by transfers of many sizes (links.py), once for every pair of kinds of core sets and once for every pair with a GPU; transfers between sets of cores
do not contend, copies of a GPU in one direction do.
"""

import functools
import itertools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import psutil
import torch

from gdp.cluster import Cluster, Device
from gdp.errors import InputError
from gdp.runtime.core_sets import cores_of
from gdp.runtime.exclusive import exclusively
from gdp.runtime.gpu_identity import gpu_identity
from gdp.runtime.links import Link, copy_link, core_link

_COPY_BYTES = 64 * 2**20

MAX_CORE_SETS = 8
"""`default_core_sets` cuts a machine of more cores into this many devices: a placement over dozens of small devices is hard to find, and rarely a fast one."""


def default_core_sets() -> tuple[str, ...]:
    """The cores that this process may use as CPU devices: `cpu:0`, `cpu:1`, ..., or on larger machines `MAX_CORE_SETS` sets of neighbouring cores, `cpu:0-3`, `cpu:4-7`, ..."""
    cores = sorted(os.sched_getaffinity(0))
    return tuple(_set_name(own.tolist()) for own in np.array_split(cores, min(len(cores), MAX_CORE_SETS)))


def _set_name(cores: list[int]) -> str:
    whole = len(cores) > 2 and cores[-1] - cores[0] == len(cores) - 1
    return f"cpu:{cores[0]}-{cores[-1]}" if whole else f"cpu:{','.join(map(str, cores))}"


def local_cluster(core_sets: Sequence[str]) -> Cluster:
    """Measures the core sets (`cpu:0`, `cpu:0-3`, `cpu:0,2`) and every CUDA device of this machine; takes a few seconds.

    Raises `InputError` when a name is none of a core set, a core is not there or is in two sets, there is no device at all, or another process keeps measuring on one.
    """
    cores = [_cores_of_set(name) for name in core_sets]
    everything = [core for own in cores for core in own]
    if len(set(everything)) != len(everything):
        raise InputError(f"the core sets {', '.join(core_sets)} share a core; give every core to one device")
    with exclusively(everything, map(gpu_identity, range(torch.cuda.device_count()))):
        devices = [*_core_devices(core_sets, cores), *_cuda_devices()]
    if not devices:
        raise InputError("no core set is named and this machine has no CUDA device; name core sets, for example cpu:0 and cpu:1")
    names, kinds = [device.name for device in devices], [device.kind for device in devices]
    return linked(devices, measured_links(names, kinds))


def _core_devices(core_sets: Sequence[str], cores: Sequence[tuple[int, ...]]) -> list[Device]:
    num_cores = sum(map(len, cores))
    memory_bytes = _memory_bytes()
    devices: list[Device] = []
    measured: dict[str, tuple[float, float, float]] = {}
    for name, own in zip(core_sets, cores, strict=True):
        kind = _kind(own)
        if kind not in measured:
            measured[kind] = _on_cores(own, functools.partial(_speed, torch.device("cpu")))
        flops_per_s, memory_bytes_per_s, op_overhead_s = measured[kind]
        devices.append(
            Device(
                name=name,
                kind=kind,
                memory_bytes=memory_bytes * len(own) // num_cores,
                flops_per_s={"float32": flops_per_s},
                memory_bytes_per_s=memory_bytes_per_s,
                op_overhead_s=op_overhead_s,
            )
        )
    return devices


def _cores_of_set(name: str) -> tuple[int, ...]:
    cores = cores_of(name)
    if not cores:
        raise InputError(f"{name!r} is no set of cores; CUDA devices are found by themselves, name sets like cpu:0 or cpu:0-3")
    return cores


def measured_links(names: Sequence[str], kinds: Sequence[str]) -> dict[tuple[int, int], Link]:
    """The link of every ordered pair of these devices of this machine; core sets of one kind share what was measured between two of them. GPUs do not: two may be joined more
    closely than two others, or be nearer to some cores.

    Raises `InputError` when a name is no device of this machine, or another process keeps measuring on one.
    """
    cores = [cores_of(name) for name in names]
    gpus = [gpu_identity(torch.device(name).index) for name, own in zip(names, cores, strict=True) if not own]
    measured: dict[tuple[str, str], Link] = {}
    links: dict[tuple[int, int], Link] = {}
    with exclusively(itertools.chain(*cores), gpus):
        for i, j in itertools.permutations(range(len(names)), 2):
            pair = (kinds[i], kinds[j]) if cores[i] and cores[j] else (names[i], names[j])
            if pair not in measured:
                if cores[i] and cores[j]:
                    measured[pair] = core_link(cores[i], cores[j])
                else:
                    ends = (
                        torch.device("cpu") if own else torch.device(name) for own, name in ((cores[i], names[i]), (cores[j], names[j]))
                    )
                    measured[pair] = copy_link(*ends)
            links[i, j] = measured[pair]
        if gpus:
            torch.cuda.empty_cache()
    return links


def linked(devices: Sequence[Device], links: Mapping[tuple[int, int], Link]) -> Cluster:
    """The cluster of these devices of this machine; whatever a GPU sends shares a channel, and so does whatever cores send to a GPU."""
    count = len(devices)
    bandwidth, latency = np.ones((count, count)), np.zeros((count, count))
    channel = np.full((count, count), Cluster.NO_CHANNEL, np.int32)
    channel_names: dict[str, int] = {}
    for (i, j), link in links.items():
        latency[i, j], bandwidth[i, j] = link.latency_s, link.bandwidth_bytes_per_s
        ends = devices[i].name, devices[j].name
        if any(end.startswith("cuda:") for end in ends):
            name = f"from {ends[0]}" if ends[0].startswith("cuda:") else f"to {ends[1]}"
            channel[i, j] = channel_names.setdefault(name, len(channel_names))
    return Cluster(
        name="local",
        devices=tuple(devices),
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency,
        channel=channel,
        channel_name=tuple(channel_names),
    )


def _kind(cores: Sequence[int]) -> str:
    """`cpu-2core`, with the top frequency where this machine's cores differ in it."""
    top = [_top_frequency_khz(core) for core in sorted(os.sched_getaffinity(0))]
    frequency = "" if len(set(top)) == 1 else f"-{max(_top_frequency_khz(core) for core in cores) // 1000}mhz"
    return f"cpu-{len(cores)}core{frequency}"


def _top_frequency_khz(core: int) -> int:
    path = Path(f"/sys/devices/system/cpu/cpu{core}/cpufreq/cpuinfo_max_freq")
    return int(path.read_text()) if path.exists() else 0


def _memory_bytes() -> int:
    """The machine's memory, or this container's limit when that is less."""
    total = int(psutil.virtual_memory().total)
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text().strip() if limit.exists() else "max"
    return min(total, int(text)) if text.isdecimal() else total


def _on_cores(cores: Sequence[int], measure: Callable[[], tuple[float, float, float]]) -> tuple[float, float, float]:
    """Calls `measure` in a thread that is pinned to `cores` and uses as many threads."""
    answers: list[tuple[float, float, float] | BaseException] = []
    threads_before = torch.get_num_threads()

    def run() -> None:
        try:
            os.sched_setaffinity(0, cores)
            torch.set_num_threads(len(cores))
            answers.append(measure())
        except BaseException as error:  # an error in a thread is the caller's to see
            answers.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    torch.set_num_threads(threads_before)
    if isinstance(answers[0], BaseException):
        raise answers[0]
    return answers[0]


@torch.inference_mode()
def _speed(device: torch.device) -> tuple[float, float, float]:
    """`flops_per_s` of float32 products, `memory_bytes_per_s`, `op_overhead_s`."""
    cuda = device.type == "cuda"
    size = 4096 if cuda else 512
    a, b, product = (torch.ones(size, size, device=device) for _ in range(3))
    product_s = _least_s(lambda: torch.mm(a, b, out=product), device)
    x, y, total = (torch.ones(_COPY_BYTES // 4, device=device) for _ in range(3))
    sum_s = _least_s(lambda: torch.add(x, y, out=total), device)
    number = torch.ones(1, device=device)

    def many_small() -> None:
        for _ in range(100):
            torch.relu(number)

    return 2.0 * size**3 / product_s, 3.0 * _COPY_BYTES / sum_s, _least_s(many_small, device) / 100


def _least_s(run: Callable[[], object], device: torch.device) -> float:
    """The least seconds of a call over about a fifth of a second of calls, the device synchronised; the first two are warm-up."""
    least, until, calls = np.inf, np.inf, 0
    while calls < 5 or perf_counter() < until:
        if calls == 2:
            until, least = perf_counter() + 0.2, np.inf
        begin = perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        least = min(least, perf_counter() - begin)
        calls += 1
    return float(least)


def _cuda_devices() -> list[Device]:
    """Every GPU that this process is shown; its memory is what is free while nothing is measured there."""
    devices: list[Device] = []
    measured: dict[str, tuple[float, float, float]] = {}
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        kind = re.sub(r"[^a-z0-9]+", "-", properties.name.lower()).strip("-")
        if kind not in measured:
            measured[kind] = _speed(torch.device("cuda", number))
            torch.cuda.empty_cache()  # or workers would find that much less
        flops_per_s, memory_bytes_per_s, op_overhead_s = measured[kind]
        devices.append(
            Device(
                name=f"cuda:{number}",
                kind=kind,
                memory_bytes=torch.cuda.mem_get_info(number)[0],
                flops_per_s={"float32": flops_per_s},
                memory_bytes_per_s=memory_bytes_per_s,
                op_overhead_s=op_overhead_s,
            )
        )
    return devices
