"""A list schedule whose ops fill idle gaps: the loop inside HEFT and CPoP, compiled."""

import heapq
import typing

import numba
import numpy as np
from jaxtyping import Bool, Float64, Int32

from gdp.baselines.list_schedule import Schedule
from gdp.baselines.schedule_state import begin, decide, excess_bytes, finish, first_gap, first_missing, inputs_arrive
from gdp.baselines.scheduling_problem import SchedulingProblem


def insertion_schedule(
    problem: SchedulingProblem,
    *,
    priority: Float64[np.ndarray, " ops"],
    preferred: Int32[np.ndarray, " groups"],
    allowed: Bool[np.ndarray, " devices"],
    reserve: bool,
) -> Schedule:
    """Takes the ready op of highest priority (of equals the lowest number) and puts it into the gap where it ends first.

    The device is the group's where it has one, else `preferred` where that is not -1 and has room, else of the `allowed` ones with room the one with the least
    `end + seconds of the rest of the group`, and with `reserve` also of what is to come there. Where there is room nowhere, the one that overflows least.
    """
    device, end_s, overflows = _schedule(problem, priority, preferred, allowed, reserve)
    return Schedule(device=device, end_s=float(end_s), overflows=bool(overflows))


@numba.njit(cache=True)
@typing.no_type_check
def _schedule(p, priority, preferred, allowed, reserve):
    s = begin(p, False)
    num_devices = p.op_s.shape[1]
    missing = first_missing(p)
    queue = [(0.0, np.int64(0))]
    queue.pop()
    for op in range(len(missing)):
        if missing[op] == 0 and not p.floating[op]:
            heapq.heappush(queue, (-priority[op], np.int64(op)))
    overflows = False
    while len(queue) > 0:
        _, op = heapq.heappop(queue)
        group = p.group_of_op[op]
        decided = s.group_device[group]
        best, best_key, best_start, best_excess = -1, np.inf, 0.0, np.int64(2**62)
        for d in range(num_devices):
            if decided >= 0 and d != decided or decided < 0 and not allowed[d]:
                continue
            arrival, copied = inputs_arrive(p, s, op, d)
            start, _ = first_gap(s, d, arrival, p.op_s[op, d])
            excess = excess_bytes(p, s, op, d, copied)
            key = start + s.rest_s[group, d]
            if reserve:
                key += s.reserved_s[d]
            if decided < 0 and d == preferred[group]:
                key = -1.0
            if excess < best_excess or (excess == best_excess and key < best_key):
                best, best_key, best_start, best_excess = d, key, start, excess
        overflows = overflows or best_excess > 0
        decide(p, s, op, best, best_start)
        for tensor in range(p.out_start[op], p.out_start[op + 1]):
            for use in range(p.use_start[tensor], p.use_start[tensor + 1]):
                consumer = p.use_consumer[use]
                missing[consumer] -= 1
                if missing[consumer] == 0:
                    heapq.heappush(queue, (-priority[consumer], np.int64(consumer)))
    device, last = finish(p, s, allowed)
    return device, last, overflows
