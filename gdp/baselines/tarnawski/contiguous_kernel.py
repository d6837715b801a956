"""The inner loop of the dynamic program over ideals: from one ideal, every part that may come next.

Compiled; no argument is changed but the tables.
"""

import typing

import numba
import numpy as np


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def extend(
    begin,
    end,
    limit_s,
    first_step,
    step_group,
    step_to,
    first_node,
    group_node,
    first_producer,
    node_producer,
    num_consumers,
    transfer_s,
    accelerator_s,
    cpu_s,
    size_bytes,
    memory_bytes,
    remaining_s,
    accelerators_per_cpu,
    best_s,
    came_from,
    came_by,
):
    """Enters into the tables every part that starts at an ideal from `begin` to `end`; the ideals before them are done.

    A part is the difference of two ideals. Each is met once: groups are added one by one, and once all parts with a group have been met the group is barred
    from its siblings. A part is left when its computing alone reaches `limit_s`, or its memory is over, on each kind of device. Transfers are kept up as
    groups come and go: a node in the part with a consumer outside, or outside with a consumer in it, pays once. An ideal that leaves more work than the
    devices left over can do below `limit_s` is given up.

    Args:
        begin: the first ideal.
        end: the ideal after the last.
        limit_s: splits whose max-load is not below it are of no interest.
        first_step: `[ideals + 1]` of `Ideals`, as are `step_group` and `step_to`.
        step_group: `[steps]`
        step_to: `[steps]`
        first_node: `[groups + 1]` where a group's nodes begin in `group_node`.
        group_node: `[nodes]`
        first_producer: `[nodes + 1]` where a node's producers begin in `node_producer`.
        node_producer: `[edges]`
        num_consumers: `[nodes]`
        transfer_s: `[nodes]`
        accelerator_s: `[groups]` infinite where a node runs on the CPU alone.
        cpu_s: `[groups]`
        size_bytes: `[groups]`
        memory_bytes: of an accelerator.
        remaining_s: `[ideals]` accelerator seconds of what is not in an ideal, where it may run there.
        accelerators_per_cpu: no CPU core does more of these seconds in a second.
        best_s: `[ideals, accelerators + 1, cpus + 1]` the least max-load of an ideal on that many devices.
        came_from: likewise, the ideal before the last part.
        came_by: likewise, 0 when the last part is on an accelerator, 1 on a CPU core.
    """
    num_groups, num_nodes = len(accelerator_s), len(transfer_s)
    num_accelerators, num_cpus = best_s.shape[1] - 1, best_s.shape[2] - 1
    inside = np.zeros(num_nodes, np.bool_)
    consumers_inside = np.zeros(num_nodes, np.int32)
    barred_at = np.full(num_groups, -1, np.int32)
    ideal = np.zeros(num_groups + 1, np.int32)
    cursor = np.zeros(num_groups + 1, np.int64)
    chosen = np.zeros(num_groups + 1, np.int32)
    on_accelerator_s = np.zeros(num_groups + 1)
    on_cpu_s = np.zeros(num_groups + 1)
    moved_s = np.zeros(num_groups + 1)
    held_bytes = np.zeros(num_groups + 1)
    for start in range(begin, end):
        least = np.inf
        for a in range(num_accelerators + 1):
            for c in range(num_cpus + 1):
                left = num_accelerators - a + (num_cpus - c) * accelerators_per_cpu
                if remaining_s[start] > left * limit_s + 1e-9 * remaining_s[0]:
                    best_s[start, a, c] = np.inf
                least = min(least, best_s[start, a, c])
        if least >= limit_s:
            continue
        depth = 0
        ideal[0], cursor[0] = start, first_step[start]
        while depth >= 0:
            here = ideal[depth]
            if cursor[depth] == first_step[here + 1]:
                for step in range(first_step[here], first_step[here + 1]):
                    if barred_at[step_group[step]] == depth:
                        barred_at[step_group[step]] = -1
                if depth > 0:
                    group = chosen[depth]
                    for place in range(first_node[group], first_node[group + 1]):
                        node = group_node[place]
                        inside[node] = False
                        for edge in range(first_producer[node], first_producer[node + 1]):
                            consumers_inside[node_producer[edge]] -= 1
                    barred_at[group] = depth - 1
                depth -= 1
                continue
            step = cursor[depth]
            cursor[depth] += 1
            group = step_group[step]
            if barred_at[group] >= 0:
                continue
            accelerator = on_accelerator_s[depth] + accelerator_s[group]
            cpu = on_cpu_s[depth] + cpu_s[group]
            held = held_bytes[depth] + size_bytes[group]
            fits = num_accelerators > 0 and accelerator < limit_s and held <= memory_bytes
            if not fits and (num_cpus == 0 or cpu >= limit_s):
                barred_at[group] = depth
                continue
            moved = moved_s[depth]
            for place in range(first_node[group], first_node[group + 1]):
                node = group_node[place]
                if consumers_inside[node] > 0:
                    moved -= transfer_s[node]
                if consumers_inside[node] < num_consumers[node]:
                    moved += transfer_s[node]
                inside[node] = True
                for edge in range(first_producer[node], first_producer[node + 1]):
                    producer = node_producer[edge]
                    consumers_inside[producer] += 1
                    if inside[producer]:
                        if consumers_inside[producer] == num_consumers[producer]:
                            moved -= transfer_s[producer]
                    elif consumers_inside[producer] == 1:
                        moved += transfer_s[producer]
            depth += 1
            there = step_to[step]
            ideal[depth], cursor[depth], chosen[depth] = there, first_step[there], group
            on_accelerator_s[depth], on_cpu_s[depth], moved_s[depth], held_bytes[depth] = accelerator, cpu, moved, held
            load = accelerator + moved
            for a in range(num_accelerators + 1):
                for c in range(num_cpus + 1):
                    before = best_s[start, a, c]
                    if before >= limit_s:
                        continue
                    if fits and a < num_accelerators and max(before, load) < best_s[there, a + 1, c]:
                        best_s[there, a + 1, c] = max(before, load)
                        came_from[there, a + 1, c], came_by[there, a + 1, c] = start, 0
                    if c < num_cpus and max(before, cpu) < best_s[there, a, c + 1]:
                        best_s[there, a, c + 1] = max(before, cpu)
                        came_from[there, a, c + 1], came_by[there, a, c + 1] = start, 1
