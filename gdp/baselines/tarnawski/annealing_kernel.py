"""The inner loop of simulated annealing on max-load. Compiled."""

import typing

import numba
import numpy as np


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def anneal(
    device,
    movable,
    draws,
    neighbour_start,
    neighbour,
    first_consumer,
    consumer,
    transfer_s,
    accelerator_s,
    cpu_s,
    size_bytes,
    memory_bytes,
    num_accelerators,
    num_devices,
    start_temperature,
    end_temperature,
):
    """The best split met, as devices of groups, and its max-load (infinite when none fits the memory).

    Args:
        device: `[groups]` where to begin; changed.
        movable: `[groups]` whether an accelerator may hold the group.
        draws: `[evaluations, 4]` uniform in [0, 1): the group, whether beside a neighbour, the neighbour or device, the acceptance.
        neighbour_start: `[groups + 1]` into `neighbour`.
        neighbour: groups that share an edge with a group.
        first_consumer: `[nodes + 1]` into `consumer`.
        consumer: the groups that read a node, the node's own first.
        transfer_s: `[nodes]`
        accelerator_s: `[groups]`
        cpu_s: `[groups]`
        size_bytes: `[groups]`
        memory_bytes: of an accelerator.
        num_accelerators: devices before the CPU cores.
        num_devices: all of them.
        start_temperature: as a fraction of the score.
        end_temperature: likewise; it falls geometrically.
    """
    loads = np.zeros(num_devices)
    held = np.zeros(num_devices)
    seen = np.full(num_devices, -1, np.int64)
    best = device.copy()
    best_s, score = np.inf, np.inf
    stamp = 0
    for trial in range(len(draws)):
        group = min(int(draws[trial, 0] * len(device)), len(device) - 1)
        before = device[group]
        if trial > 0:
            count = neighbour_start[group + 1] - neighbour_start[group]
            if count and draws[trial, 1] < 0.8:
                device[group] = device[neighbour[neighbour_start[group] + int(draws[trial, 2] * count)]]
            else:
                device[group] = int(draws[trial, 2] * num_devices)
            if device[group] == before:
                continue
            if device[group] < num_accelerators and not movable[group]:
                device[group] = before
                continue
        loads[:] = 0.0
        held[:] = 0.0
        for other in range(len(device)):
            on = device[other]
            loads[on] += accelerator_s[other] if on < num_accelerators else cpu_s[other]
            held[on] += size_bytes[other]
        for node in range(len(transfer_s)):
            if transfer_s[node] == 0.0:
                continue
            stamp += 1
            home = device[consumer[first_consumer[node]]]
            seen[home] = stamp
            leaves = False
            for place in range(first_consumer[node] + 1, first_consumer[node + 1]):
                on = device[consumer[place]]
                if seen[on] != stamp:
                    seen[on] = stamp
                    leaves = True
                    if on < num_accelerators:
                        loads[on] += transfer_s[node]
            if leaves and home < num_accelerators:
                loads[home] += transfer_s[node]
        longest = loads.max()
        fits = held[:num_accelerators].max() <= memory_bytes if num_accelerators else True
        total = 0.0
        for on in range(num_devices):
            total += (loads[on] / longest) ** 16 if longest > 0 else 0.0
        new = longest * total ** (1 / 16) if fits else np.inf
        if fits and longest < best_s:
            best_s = longest
            best[:] = device
        temperature = start_temperature * (end_temperature / start_temperature) ** (trial / len(draws))
        if trial == 0 or new <= score or draws[trial, 3] < np.exp((score - new) / (temperature * score + 1e-300)):
            score = new
        else:
            device[group] = before
    return best, best_s
