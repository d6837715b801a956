"""A list schedule that starts, time and again, the op that can start first: the loop inside m-ETF and m-SCT, compiled."""

import heapq
import typing

import numba
import numpy as np
from jaxtyping import Bool, Float64, Int32

from gdp.baselines.list_schedule import Schedule
from gdp.baselines.schedule_state import begin, decide, excess_bytes, finish, first_missing, inputs_arrive
from gdp.baselines.scheduling_problem import SchedulingProblem


def earliest_start_schedule(
    problem: SchedulingProblem,
    *,
    rank: Float64[np.ndarray, " ops"],
    favourite_child: Int32[np.ndarray, " groups"],
    allowed: Bool[np.ndarray, " devices"],
    reserve: bool,
    keeps_tensors: bool,
) -> Schedule:
    """Of all ready ops on all devices with room, takes the pair that can start first; of equals the op of highest `rank`, then the lowest numbers.

    - A device that is slow for an op counts as starting later by what it loses on the op's group against the fastest; with `reserve`, also by the work
      still to come of its groups.
    - After an op whose group has a favourite child that is not decided (-1 for none), its device waits for that child as long as a transfer would take it elsewhere,
      at most as long as the op took (communication times are small in Hanen and Munier's sense); meanwhile only the two groups may start there, and ops whose inputs
      could be anywhere by then.
    - An op without room on any device goes where it overflows least. `keeps_tensors` counts every tensor until the end of the step.

    What a pair loses is brought up to date when it is looked at; one that lost more when it was last looked at may be taken late.
    """
    device, end_s, overflows = _schedule(problem, rank, favourite_child, allowed, reserve, keeps_tensors)
    return Schedule(device=device, end_s=float(end_s), overflows=bool(overflows))


@numba.njit(cache=True)
@typing.no_type_check
def _schedule(p, rank, favourite_child, allowed, reserve, keeps_tensors):
    s = begin(p, keeps_tensors)
    num_ops, num_devices = p.op_s.shape
    least_s = np.full(len(p.group_s), np.inf)
    for d in range(num_devices):
        if allowed[d]:
            least_s = np.minimum(least_s, p.group_s[:, d])
    missing = first_missing(p)
    choices = np.zeros(num_ops, np.int64)  # devices left that an op may start on
    free_s = np.zeros(num_devices)
    last_group = np.full(num_devices, -1, np.int64)
    waits_until_s = np.zeros(num_devices)
    # Per device, heaps of (arrival + loss, -rank, op), of (loss, -rank, op) for inputs that have arrived, and of (0, -rank, op) for what it may be waiting for.
    coming = [_heap() for _ in range(num_devices)]
    arrived = [_heap() for _ in range(num_devices)]
    awaited = [_heap() for _ in range(num_devices)]
    undecided = 0
    for op in range(num_ops):
        if missing[op] == 0 and not p.floating[op]:
            undecided += 1
            choices[op] = num_devices
            for d in range(num_devices):
                heapq.heappush(coming[d], (0.0, -rank[op], np.int64(op)))
    overflows = False
    while undecided > 0:
        best_key, best_rank, best_op, best_d, best_heap = np.inf, np.inf, np.int64(-1), -1, 0
        for d in range(num_devices):
            child = favourite_child[last_group[d]] if last_group[d] >= 0 else -1
            waits = child >= 0 and waits_until_s[d] > free_s[d] and s.group_device[child] < 0
            for which in range(3 if waits else 2):
                heap = coming[d] if which == 0 else arrived[d] if which == 1 else awaited[d]
                while len(heap) > 0 and s.op_device[heap[0][2]] >= 0:
                    heapq.heappop(heap)
                if len(heap) == 0:
                    continue
                key, its_rank, op = heap[0]
                if which > 0:
                    key += free_s[d]
                group = p.group_of_op[op]
                if waits and which < 2 and group != child and group != last_group[d] and anywhere_s(p, s, op) > key:
                    key = max(key, waits_until_s[d])
                if reserve and s.group_device[group] < 0:
                    key += s.reserved_s[d]
                if key < best_key or (key == best_key and (its_rank < best_rank or (its_rank == best_rank and op < best_op))):
                    best_key, best_rank, best_op, best_d, best_heap = key, its_rank, op, d, which
        op, d = best_op, best_d
        heap = coming[d] if best_heap == 0 else arrived[d] if best_heap == 1 else awaited[d]
        old_key, its_rank, _ = heapq.heappop(heap)
        group = p.group_of_op[op]
        decided = s.group_device[group]
        possible = d == decided if decided >= 0 else allowed[d]
        start = 0.0
        if possible:
            arrival, copied = inputs_arrive(p, s, op, d)
            possible = excess_bytes(p, s, op, d, copied) == 0
            start = max(arrival, free_s[d])
        if possible:
            loss = p.group_s[group, d] - least_s[group] if decided < 0 else 0.0
            if best_heap == 0 and arrival <= free_s[d]:
                heapq.heappush(arrived[d], (loss, its_rank, op))
                continue
            if best_heap == 1 and arrival > free_s[d] or best_heap == 0 and arrival + loss > old_key:
                heapq.heappush(coming[d], (arrival + loss, its_rank, op))
                continue
            child = favourite_child[last_group[d]] if last_group[d] >= 0 else -1
            if child >= 0 and s.group_device[child] < 0 and group != child and group != last_group[d] and anywhere_s(p, s, op) > start:
                start = max(start, waits_until_s[d])
        else:
            if best_heap == 2:
                continue
            choices[op] -= 1
            if choices[op] > 0:
                continue
            overflows = True
            d = least_excess(p, s, op, allowed)
            arrival, copied = inputs_arrive(p, s, op, d)
            start = max(arrival, free_s[d])
        decide(p, s, op, d, start)
        undecided -= 1
        free_s[d] = start + p.op_s[op, d]
        last_group[d] = group
        waits_until_s[d] = 0.0
        if favourite_child[group] >= 0:
            longest = 0.0
            for tensor in range(p.out_start[op], p.out_start[op + 1]):
                for use in range(p.use_start[tensor], p.use_start[tensor + 1]):
                    if p.group_of_op[p.use_consumer[use]] == favourite_child[group]:
                        longest = max(longest, p.mean_transfer_s[tensor])
            waits_until_s[d] = free_s[d] + min(longest, p.op_s[op, d])
        for tensor in range(p.out_start[op], p.out_start[op + 1]):
            for use in range(p.use_start[tensor], p.use_start[tensor + 1]):
                consumer = p.use_consumer[use]
                missing[consumer] -= 1
                if missing[consumer] == 0:
                    undecided += 1
                    choices[consumer] = num_devices
                    for at in range(num_devices):
                        heapq.heappush(coming[at], (0.0, -rank[consumer], np.int64(consumer)))
                    its_group = p.group_of_op[consumer]
                    for edge in range(p.in_start[consumer], p.in_start[consumer + 1]):
                        producer = p.tensor_producer[p.in_tensor[edge]]
                        its_parent = p.group_of_op[producer]
                        if s.op_device[producer] >= 0 and (favourite_child[its_parent] == its_group or its_parent == its_group):
                            heapq.heappush(awaited[s.op_device[producer]], (0.0, -rank[consumer], np.int64(consumer)))
    device, last = finish(p, s, allowed)
    return device, last, overflows


@numba.njit(cache=True)
@typing.no_type_check
def _heap():
    """An empty heap, whose items have a type."""
    heap = [(0.0, 0.0, np.int64(0))]
    heap.pop()
    return heap


@numba.njit(cache=True)
@typing.no_type_check
def anywhere_s(p, s, op):
    """When the inputs of an op could be on any device."""
    latest = 0.0
    for edge in range(p.in_start[op], p.in_start[op + 1]):
        tensor = p.in_tensor[edge]
        producer = p.tensor_producer[tensor]
        if not p.floating[producer]:
            latest = max(latest, s.available_s[tensor, s.op_device[producer]] + p.mean_transfer_s[tensor])
    return latest


@numba.njit(cache=True)
@typing.no_type_check
def least_excess(p, s, op, allowed):
    decided = s.group_device[p.group_of_op[op]]
    if decided >= 0:
        return decided
    best, least = -1, np.int64(2**62)
    for d in range(len(allowed)):
        if allowed[d]:
            _, copied = inputs_arrive(p, s, op, d)
            excess = excess_bytes(p, s, op, d, copied)
            if excess < least:
                best, least = d, excess
    return best
