"""The inner loop of simulated annealing on max-load. Compiled; loads follow every move in the time its group's edges take."""

import typing

import numba
import numpy as np


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def anneal(moves, device, memory_bytes, num_accelerators, num_devices, evaluations, start_temperature, end_temperature, generator):
    """The best split met, as devices of groups, and its max-load.

    A trial moves one group, mostly to a device where a neighbour is; or two, of which the second mostly follows the first or goes where the first came from.

    Args:
        moves: `GroupMoves`.
        device: `[groups]` where to begin, which must fit the memory; changed.
        memory_bytes: of an accelerator.
        num_accelerators: devices before the CPU cores.
        num_devices: all of them.
        evaluations: trials.
        start_temperature: as a fraction of the score.
        end_temperature: likewise; it falls geometrically.
        generator: of numpy.
    """
    loads, held = np.zeros(num_devices), np.zeros(num_devices)
    readers = np.zeros((len(moves.transfer_s), num_devices), np.int64)
    _recount(moves, device, num_accelerators, loads, held, readers)
    best, best_s, score = device.copy(), loads.max(), _score(loads)
    moved, came_from = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for trial in range(evaluations):
        steps = 0
        wanted = 1 if generator.random() < 0.5 else 2
        while steps < wanted:
            if steps == 0:
                group = int(generator.random() * len(device))
                to = _beside(moves, device, group, num_devices, generator)
            else:
                group, to = _second(moves, device, moved[0], came_from[0], num_devices, generator)
            if to == device[group] or (to < num_accelerators and not moves.runs_on_accelerator[group]):
                break
            moved[steps], came_from[steps] = group, device[group]
            steps += 1
            _move(moves, device, group, to, num_accelerators, loads, held, readers)
        if steps == 0:
            continue
        fits = num_accelerators == 0 or held[:num_accelerators].max() <= memory_bytes
        if fits and loads.max() < best_s:
            _recount(moves, device, num_accelerators, loads, held, readers)
            fits = num_accelerators == 0 or held[:num_accelerators].max() <= memory_bytes
            if fits and loads.max() < best_s:
                best_s = loads.max()
                best[:] = device
        new = _score(loads) if fits else np.inf
        temperature = start_temperature * (end_temperature / start_temperature) ** (trial / evaluations)
        if new <= score or generator.random() < np.exp((score - new) / (temperature * score + 1e-300)):
            score = new
        else:
            for step in range(steps - 1, -1, -1):
                _move(moves, device, moved[step], came_from[step], num_accelerators, loads, held, readers)
    return best, best_s


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _beside(moves, device, group, num_devices, generator):
    """A device for a group, mostly that of a neighbour."""
    count = moves.neighbour_start[group + 1] - moves.neighbour_start[group]
    if count and generator.random() < 0.8:
        return device[moves.neighbour[moves.neighbour_start[group] + int(generator.random() * count)]]
    return int(generator.random() * num_devices)


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _second(moves, device, first, left, num_devices, generator):
    """After the group `first` has left the device `left`: the second group, and where it goes."""
    if generator.random() < 0.5:  # in exchange, if a few draws find one
        for _ in range(8):
            group = int(generator.random() * len(device))
            if device[group] == device[first] and group != first:
                return group, left
        return first, device[first]
    count = moves.neighbour_start[first + 1] - moves.neighbour_start[first]
    if count and generator.random() < 0.7:
        group = moves.neighbour[moves.neighbour_start[first] + int(generator.random() * count)]
        return group, device[first] if generator.random() < 0.7 else int(generator.random() * num_devices)
    group = int(generator.random() * len(device))
    return group, _beside(moves, device, group, num_devices, generator)


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _move(moves, device, group, to, num_accelerators, loads, held, readers):
    """Puts a group on the device `to`, and keeps the counts right."""
    home = device[group]
    own = moves.sender[moves.sender_start[group] : moves.sender_start[group + 1]]
    read = moves.source[moves.source_start[group] : moves.source_start[group + 1]]
    for node in own:
        _send(device, moves.group_of_node[node], readers[node], -moves.transfer_s[node], num_accelerators, loads)
    for node in read:
        _send(device, moves.group_of_node[node], readers[node], -moves.transfer_s[node], num_accelerators, loads)
        readers[node, home] -= 1
        readers[node, to] += 1
    loads[home] -= moves.accelerator_s[group] if home < num_accelerators else moves.cpu_s[group]
    held[home] -= moves.size_bytes[group]
    device[group] = to
    loads[to] += moves.accelerator_s[group] if to < num_accelerators else moves.cpu_s[group]
    held[to] += moves.size_bytes[group]
    for node in own:
        _send(device, moves.group_of_node[node], readers[node], moves.transfer_s[node], num_accelerators, loads)
    for node in read:
        _send(device, moves.group_of_node[node], readers[node], moves.transfer_s[node], num_accelerators, loads)


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _send(device, group, readers, seconds, num_accelerators, loads):
    """Adds the seconds of the transfers of a node of `group` to the loads: out of its accelerator once, into every other with readers."""
    home = device[group]
    leaves = False
    for on in range(len(loads)):
        if on != home and readers[on] > 0:
            leaves = True
            if on < num_accelerators:
                loads[on] += seconds
    if leaves and home < num_accelerators:
        loads[home] += seconds


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _recount(moves, device, num_accelerators, loads, held, readers):
    """Everything from the start, so that rounding does not add up."""
    loads[:] = 0.0
    held[:] = 0.0
    readers[:] = 0
    for group in range(len(device)):
        on = device[group]
        loads[on] += moves.accelerator_s[group] if on < num_accelerators else moves.cpu_s[group]
        held[on] += moves.size_bytes[group]
    for node in range(len(moves.transfer_s)):
        for place in range(moves.reader_start[node], moves.reader_start[node + 1]):
            readers[node, device[moves.reader[place]]] += 1
        _send(device, moves.group_of_node[node], readers[node], moves.transfer_s[node], num_accelerators, loads)


@typing.no_type_check
@numba.njit(cache=True, nogil=True)
def _score(loads):
    """The norm of order 16: a maximum that also sees the loads below it."""
    longest = loads.max()
    if longest <= 0.0:
        return 0.0
    total = 0.0
    for load in loads:
        power = load / longest
        for _ in range(4):
            power *= power
        total += power
    return longest * total ** (1 / 16)
