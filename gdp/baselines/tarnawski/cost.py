"""What a split costs in the model of Tarnawski et al. (NeurIPS 2020, section 3): the busiest device's load, and the latency of one sample.

A part of the graph on an accelerator takes the sum of its nodes' times, of the transfers of outside nodes whose output it reads (each once), and of
those of its own nodes whose output is read outside (each once); communication does not overlap with computation. CPU cores compute and pay for no transfer.
"""

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.errors import InputError

ON_CPU = -1
"""The subgraph of a node on the CPU, where latency is concerned."""


def why_infeasible(instance: TarnawskiInstance, device: Int32[np.ndarray, " nodes"]) -> str | None:
    """What is wrong with a split (`device` numbers accelerators from 0, then CPU cores), by how much and where; None when it can run."""
    if device.min() < 0 or device.max() >= instance.num_devices:
        return f"it uses a device outside 0..{instance.num_devices - 1}"
    accelerator = device < instance.num_accelerators
    wrong = np.flatnonzero(accelerator & ~instance.runs_on_accelerator)
    if len(wrong):
        return f"node {instance.node_id[wrong[0]]} is on an accelerator, but it runs on the CPU alone"
    order = np.argsort(instance.colour, kind="stable")
    same = (instance.colour[order][1:] == instance.colour[order][:-1]) & (instance.colour[order][1:] >= 0)
    split = np.flatnonzero(same & (device[order][1:] != device[order][:-1]))
    if len(split):
        one, other = instance.node_id[order[split[0]]], instance.node_id[order[split[0] + 1]]
        return f"nodes {one} and {other} have one colour but are on two devices"
    bytes_held = np.bincount(device[accelerator], instance.size_bytes[accelerator], minlength=instance.num_accelerators)
    if (bytes_held > instance.accelerator_memory_bytes).any():
        worst = int(bytes_held.argmax())
        excess = bytes_held[worst] - instance.accelerator_memory_bytes
        return f"accelerator {worst} holds {bytes_held[worst]:.0f} bytes, {excess:.0f} more than it can"
    return None


def loads_s(instance: TarnawskiInstance, device: Int32[np.ndarray, " nodes"]) -> Float64[np.ndarray, " devices"]:
    """Seconds per sample that each device is busy, forward and backward together."""
    accelerator = device < instance.num_accelerators
    seconds = np.where(accelerator, instance.accelerator_time_s, instance.cpu_time_s)
    transfers = _transfers_s(instance, device.astype(np.int64), instance.num_devices)
    return np.bincount(device, seconds, minlength=instance.num_devices) + np.where(
        np.arange(instance.num_devices) < instance.num_accelerators, transfers, 0.0
    )


def max_load_s(instance: TarnawskiInstance, device: Int32[np.ndarray, " nodes"]) -> float:
    """The load of the busiest device: seconds per sample when samples are pipelined. Infinite when the split cannot run."""
    return float(loads_s(instance, device).max()) if why_infeasible(instance, device) is None else float("inf")


def latency_s(instance: TarnawskiInstance, subgraph: Int32[np.ndarray, " nodes"], *, subgraphs_per_accelerator: int = 1) -> float:
    """Seconds from the start to the end of one sample.

    Accelerator `a` runs the subgraphs `a * subgraphs_per_accelerator, ...` in this order, each when all it reads from outside is done, and nothing of it
    is done before the whole is. A node on the CPU (`ON_CPU`) starts when its inputs are done; cores are never short. Infinite when subgraphs wait for each
    other or the split cannot run.
    """
    if subgraphs_per_accelerator < 1:
        raise InputError(f"an accelerator is given {subgraphs_per_accelerator} subgraphs; it needs at least 1")
    num_subgraphs = instance.num_accelerators * subgraphs_per_accelerator
    on_cpu = subgraph == ON_CPU
    if on_cpu.any() and instance.num_cpus == 0:
        return float("inf")
    device = np.where(on_cpu, instance.num_accelerators, subgraph // subgraphs_per_accelerator).astype(np.int32)
    if why_infeasible(instance, device) is not None:
        return float("inf")
    # One task per subgraph and one per node on the CPU; a task is done when the longest chain to its end is.
    task = np.where(on_cpu, num_subgraphs + np.cumsum(on_cpu) - 1, subgraph).astype(np.int64)
    num_tasks = num_subgraphs + int(on_cpu.sum())
    seconds = np.bincount(task, np.where(on_cpu, instance.cpu_time_s, instance.accelerator_time_s), minlength=num_tasks)
    seconds[:num_subgraphs] += _transfers_s(instance, task, num_tasks)[:num_subgraphs]
    follows: list[set[int]] = [set() for _ in range(num_tasks)]
    for one, other in zip(task[instance.edge_from].tolist(), task[instance.edge_to].tolist(), strict=True):
        if one != other:
            follows[one].add(other)
    for one in range(num_subgraphs - 1):
        if (one + 1) % subgraphs_per_accelerator:
            follows[one].add(one + 1)
    waits = [0] * num_tasks
    for later in follows:
        for other in later:
            waits[other] += 1
    ready = [one for one in range(num_tasks) if waits[one] == 0]
    start, done, last = [0.0] * num_tasks, 0, 0.0
    while ready:
        one = ready.pop()
        done += 1
        end = start[one] + float(seconds[one])
        last = max(last, end)
        for other in follows[one]:
            start[other] = max(start[other], end)
            waits[other] -= 1
            if waits[other] == 0:
                ready.append(other)
    return last if done == num_tasks else float("inf")


def _transfers_s(instance: TarnawskiInstance, part: Int64[np.ndarray, " nodes"], num_parts: int) -> Float64[np.ndarray, " {num_parts}"]:
    """Seconds of transfers in and out of each part, as if every part were on an accelerator."""
    source, sink = part[instance.edge_from], part[instance.edge_to]
    cut = source != sink
    out = np.unique(instance.edge_from[cut])
    node, reader = np.divmod(np.unique(instance.edge_from[cut].astype(np.int64) * num_parts + sink[cut]), num_parts)
    sent = np.bincount(part[out], instance.transfer_s[out], minlength=num_parts)
    received = np.bincount(reader, instance.transfer_s[node], minlength=num_parts)
    return (sent + received).astype(np.float64)  # whole numbers where nothing is cut
