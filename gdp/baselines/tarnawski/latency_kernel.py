"""The latency of one sample as searches over splits compute it, and the inner loop of simulated annealing on it. Compiled."""

import typing

import numba
import numpy as np


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def anneal_latency(
    moves,
    node_cpu_s,
    consumer_start,
    consumer,
    subgraph,
    memory_bytes,
    num_subgraphs,
    per_accelerator,
    has_cpu,
    evaluations,
    start_temperature,
    end_temperature,
    generator,
):
    """The best split met, as subgraphs of groups, and its latency; subgraph `num_subgraphs` is the CPU. A trial moves one group or two.

    Args:
        moves: `GroupMoves`.
        node_cpu_s: `[nodes]`
        consumer_start: `[nodes + 1]` into `consumer`.
        consumer: the nodes that read a node.
        subgraph: `[groups]` where to begin, a split that can run; changed.
        memory_bytes: of an accelerator.
        num_subgraphs: of all accelerators.
        per_accelerator: subgraphs of one.
        has_cpu: whether there are CPU cores.
        evaluations: trials.
        start_temperature: as a fraction of the latency.
        end_temperature: likewise; it falls geometrically.
        generator: of numpy.
    """
    places = num_subgraphs + has_cpu
    held = np.zeros(num_subgraphs // per_accelerator + 1)
    for group in range(len(subgraph)):
        held[_accelerator(subgraph[group], num_subgraphs, per_accelerator)] += moves.size_bytes[group]
    latest = np.zeros(len(node_cpu_s))
    waits = np.zeros(len(node_cpu_s), np.int64)
    ready = np.zeros(len(node_cpu_s) + num_subgraphs, np.int64)
    first_member = np.zeros(num_subgraphs + 2, np.int64)
    member = np.zeros(len(node_cpu_s), np.int64)
    work = (latest, waits, ready, first_member, member)
    score = latency_of(moves, node_cpu_s, consumer_start, consumer, subgraph, num_subgraphs, per_accelerator, work)
    best, best_s = subgraph.copy(), score
    moved, came_from = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for trial in range(evaluations):
        steps = 0
        wanted = 1 if generator.random() < 0.5 else 2
        group = int(generator.random() * len(subgraph))
        while steps < wanted:
            first, count = moves.neighbour_start[group], moves.neighbour_start[group + 1] - moves.neighbour_start[group]
            if steps:
                if count and generator.random() < 0.5:  # a neighbour follows
                    to = subgraph[group]
                    group = moves.neighbour[first + int(generator.random() * count)]
                else:  # another takes its place
                    to = came_from[0]
                    group = int(generator.random() * len(subgraph))
            elif count and generator.random() < 0.7:
                to = subgraph[moves.neighbour[first + int(generator.random() * count)]]
            else:
                to = int(generator.random() * places)
            if to == subgraph[group] or (to < num_subgraphs and not moves.runs_on_accelerator[group]):
                break
            moved[steps], came_from[steps] = group, subgraph[group]
            steps += 1
            held[_accelerator(subgraph[group], num_subgraphs, per_accelerator)] -= moves.size_bytes[group]
            held[_accelerator(to, num_subgraphs, per_accelerator)] += moves.size_bytes[group]
            subgraph[group] = to
        if steps == 0:
            continue
        new = np.inf
        if num_subgraphs == 0 or held[:-1].max() <= memory_bytes:
            new = latency_of(moves, node_cpu_s, consumer_start, consumer, subgraph, num_subgraphs, per_accelerator, work)
        if new < best_s:
            best_s = new
            best[:] = subgraph
        temperature = start_temperature * (end_temperature / start_temperature) ** (trial / evaluations)
        if new <= score or generator.random() < np.exp((score - new) / (temperature * score + 1e-300)):
            score = new
            continue
        for step in range(steps - 1, -1, -1):
            held[_accelerator(subgraph[moved[step]], num_subgraphs, per_accelerator)] -= moves.size_bytes[moved[step]]
            held[_accelerator(came_from[step], num_subgraphs, per_accelerator)] += moves.size_bytes[moved[step]]
            subgraph[moved[step]] = came_from[step]
    return best, best_s


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _accelerator(subgraph, num_subgraphs, per_accelerator):
    """Of a subgraph; the number after the last one stands for the CPU."""
    return min(subgraph, num_subgraphs) // per_accelerator


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def latency_of(moves, node_cpu_s, consumer_start, consumer, subgraph, num_subgraphs, per_accelerator, work):
    """The latency (`cost.py`), infinite when subgraphs wait for each other; memory is not looked at. `work` is what the caller keeps for it."""
    latest, waits, ready, first_member, member = work
    group_of_node, reader_start, reader, transfer_s = moves.group_of_node, moves.reader_start, moves.reader, moves.transfer_s
    num_nodes = len(node_cpu_s)
    load = np.zeros(num_subgraphs)
    begins = np.zeros(num_subgraphs)
    waiting = np.zeros(num_subgraphs, np.int64)
    reached = np.full(num_subgraphs, -1, np.int64)
    latest[:] = 0.0
    waits[:] = 0
    first_member[:] = 0
    for group in range(len(subgraph)):
        if subgraph[group] < num_subgraphs:
            load[subgraph[group]] += moves.accelerator_s[group]
    for node in range(num_nodes):
        home = subgraph[group_of_node[node]]
        first_member[home + 1] += 1
        _transfers(reader_start, reader, transfer_s, subgraph, node, home, num_subgraphs, load, reached)
        for place in range(consumer_start[node], consumer_start[node + 1]):
            there = subgraph[group_of_node[consumer[place]]]
            if there == num_subgraphs:
                waits[consumer[place]] += 1
            elif there != home:
                waiting[there] += 1
    for home in range(num_subgraphs + 1):
        first_member[home + 1] += first_member[home]
    for node in range(num_nodes - 1, -1, -1):
        home = subgraph[group_of_node[node]]
        first_member[home + 1] -= 1
        member[first_member[home + 1]] = node
    # Tasks: nodes on the CPU, and after the nodes' numbers the subgraphs. The members of subgraph `s` stand from `first_member[s + 1]` on.
    last, count = 0.0, 0
    for task in range(num_nodes):
        if subgraph[group_of_node[task]] == num_subgraphs and waits[task] == 0:
            ready[count] = task
            count += 1
    for task in range(num_subgraphs):
        waiting[task] += task % per_accelerator != 0
        if waiting[task] == 0:
            ready[count] = num_nodes + task
            count += 1
    done = 0
    while done < count:
        task = ready[done]
        done += 1
        if task < num_nodes:
            end = latest[task] + node_cpu_s[task]
            last = max(last, end)
            count = _finish(
                group_of_node, consumer_start, consumer, subgraph, num_subgraphs, task, end, latest, waits, begins, waiting, ready, count
            )
            continue
        home = task - num_nodes
        end = begins[home] + load[home]
        last = max(last, end)
        upto = first_member[home + 2]
        for place in range(first_member[home + 1], upto):
            node = member[place]
            count = _finish(
                group_of_node, consumer_start, consumer, subgraph, num_subgraphs, node, end, latest, waits, begins, waiting, ready, count
            )
        if (home + 1) % per_accelerator:
            begins[home + 1] = max(begins[home + 1], end)
            waiting[home + 1] -= 1
            if waiting[home + 1] == 0:
                ready[count] = num_nodes + home + 1
                count += 1
    num_cpu_nodes = num_nodes - first_member[num_subgraphs + 1]
    return last if done == num_subgraphs + num_cpu_nodes else np.inf


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _transfers(reader_start, reader, transfer_s, subgraph, node, home, num_subgraphs, load, reached):
    """Adds the seconds of a node's transfers to the loads: out of its subgraph once, into every other that reads it; `reached` says which node a subgraph received last."""
    leaves = False
    for place in range(reader_start[node], reader_start[node + 1]):
        there = subgraph[reader[place]]
        if there == home:
            continue
        leaves = True
        if there < num_subgraphs and reached[there] != node:
            reached[there] = node
            load[there] += transfer_s[node]
    if leaves and home < num_subgraphs:
        load[home] += transfer_s[node]


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _finish(group_of_node, consumer_start, consumer, subgraph, num_subgraphs, node, end, latest, waits, begins, waiting, ready, count):
    """Tells the readers of a node that it is done, and adds those that are ready to the list; its new length."""
    home = subgraph[group_of_node[node]]
    for place in range(consumer_start[node], consumer_start[node + 1]):
        reader = consumer[place]
        there = subgraph[group_of_node[reader]]
        if there == num_subgraphs:
            latest[reader] = max(latest[reader], end)
            waits[reader] -= 1
            if waits[reader] == 0:
                ready[count] = reader
                count += 1
        elif there != home:
            begins[there] = max(begins[there], end)
            waiting[there] -= 1
            if waiting[there] == 0:
                ready[count] = len(latest) + there
                count += 1
    return count
