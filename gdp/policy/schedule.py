"""Groups placed one after another, each seeing where the schedule stands: the sequential part of the head.

While groups are decided, the step is drawn up op by op, as the simulator would run it: when every device and every channel is free, where tensors are, what is still to come.
The group that is decided next is that of the op that became ready first; where devices keep the program's order, of the op of lowest number. A group that is all variables
or constants is decided with the first that needs it. The numbers of `SCHEDULE_FEATURES` per (group, device) come from that schedule. It is list scheduling's state
(Topcuoglu et al., HEFT, TPDS 2002, equations 5 to 7) with contention of links (Sinnen and Sousa, TPDS 2005), without insertion on devices. A device is as busy as it will be: with
what has run there, and with what has its place there, still waits for a transfer, and would not be later. Some groups may be *held*: their devices are given, the others are
decided around them, and see what of the held ones is still to come.

It is exact but for this: transfers are drawn up when their consumer is ready, in the earliest gap of the channel since the tensor was made, not in the order in which tensors
are made. A device whose memory has no room left for a group (`gdp.policy.live_memory`) is ruled out; where all are, the one that would be least overfull is taken.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Bool, Float32, Int64

from gdp.features.op_flow import OpFlow
from gdp.policy.channel_gaps import earliest_start, occupy
from gdp.policy.group_flow import GroupFlow
from gdp.policy.live_memory import claim, empty_memory, fullness, let_go
from gdp.policy.ready_heap import pop, push
from gdp.policy.schedule_features import SCHEDULE_FEATURES, look
from gdp.policy.walk_state import walk_state
from gdp.runtime.numba_options import compile_kernel

_COUNT = len(SCHEDULE_FEATURES)

_FULL = 1 + 1e-5
"""Of a device's memory: rounding must not rule out parameters that fit exactly."""


class Scorer(NamedTuple):
    """The head: the logit is `out_weight . relu(hidden + weight . features) + skip . features`."""

    hidden: Float32[np.ndarray, "samples_or_1 groups devices width"]
    weight: Float32[np.ndarray, "features width"]
    skip: Float32[np.ndarray, " features"]
    out_weight: Float32[np.ndarray, " width"]


class Decisions(NamedTuple):
    """What `walk` is told and what it fills, for all samples."""

    follow: bool
    """whether `device` says where everything goes; then `features` and `possible` are filled, else `device` and `log_prob`. Where something goes is always possible."""
    caution: Float32[np.ndarray, " samples"]
    """of `gdp.policy.live_memory.fullness`."""
    held: Bool[np.ndarray, "samples groups"]
    """groups whose `device` is given: they are no decisions, and nothing of them is filled."""
    noise: Float32[np.ndarray, "samples groups devices"]
    """added to the logits to choose, not to `log_prob`."""
    device: Int64[np.ndarray, "samples groups"]
    log_prob: Float32[np.ndarray, "samples groups"]
    features: Float32[np.ndarray, "samples groups devices features"]
    possible: Bool[np.ndarray, "samples groups devices"]


def free_decisions(noise: Float32[np.ndarray, "samples groups devices"], *, caution: Float32[np.ndarray, " samples"]) -> Decisions:
    """Every group to be decided, by the largest noisy logit."""
    samples, groups, _ = noise.shape
    return Decisions(
        follow=False,
        caution=caution,
        held=np.zeros((samples, groups), np.bool_),
        noise=noise,
        device=np.zeros((samples, groups), np.int64),
        log_prob=np.zeros((samples, groups), np.float32),
        features=np.zeros((0, 0, 0, 0), np.float32),
        possible=np.zeros((0, 0, 0), np.bool_),
    )


def walk(flow: OpFlow, groups: GroupFlow, scorer: Scorer, decisions: Decisions, *, program_order: bool, num_threads: int) -> None:
    """Places every group of every sample, or follows given placements. The same whatever the number of threads."""
    num_samples = len(decisions.device)
    num_parts = max(1, min(num_threads, num_samples))
    bounds = np.linspace(0, num_samples, num_parts + 1).astype(int).tolist()

    def part(first: int, stop: int) -> None:
        own_scorer = scorer._replace(hidden=scorer.hidden[first:stop]) if len(scorer.hidden) > 1 else scorer
        own_decisions = Decisions(decisions.follow, *(values[first:stop] for values in decisions[1:]))
        _walk(flow, groups, own_scorer, own_decisions, walk_state(flow, groups, num_features=_COUNT), program_order)

    if num_parts == 1:
        part(0, num_samples)
        return
    with ThreadPoolExecutor(num_parts) as pool:
        list(pool.map(part, bounds[:-1], bounds[1:]))


@compile_kernel
@no_type_check
def _walk(flow, groups, scorer, decisions, state, program_order):
    for sample in range(len(decisions.device)):
        _begin(flow, state)
        for group in range(len(groups.time)):
            if decisions.held[sample, group]:
                _put(groups, state, group, decisions.device[sample, group])
        _run(flow, groups, scorer, decisions, sample, state, program_order)
        for group in range(len(groups.time)):
            if state.where[group] < 0:
                _decide(flow, groups, scorer, decisions, sample, state, group, flow.first_op[group], 0.0)


@compile_kernel
@no_type_check
def _begin(flow, state):
    state.where[:] = -1
    state.first_waiting[:] = -1
    state.ready[:] = 0
    state.arrival[:] = -1
    state.available[:] = np.inf
    for resource in (state.free, state.load, state.coming, state.outputs):
        resource[:] = 0
    empty_memory(flow, state)
    state.channels.num_intervals[:] = 0
    state.queue.size[0] = 0
    for op in range(len(flow.time)):
        missing = 0
        for edge in range(flow.in_start[op], flow.in_start[op + 1]):
            missing += not flow.floating[flow.tensor_producer[flow.in_tensor[edge]]]
        state.missing[op] = missing
        if missing == 0 and not flow.floating[op]:
            push(state.queue, 0.0, op)


@compile_kernel
@no_type_check
def _run(flow, groups, scorer, decisions, sample, state, program_order):
    while state.queue.size[0] > 0:
        now = state.queue.moment[0]
        op = pop(state.queue)
        group = flow.group_of_op[op]
        if state.where[group] < 0:
            _decide(flow, groups, scorer, decisions, sample, state, group, op, state.ready[op])
        d = state.where[group]
        if state.arrival[op] < 0:
            state.arrival[op] = _fetch(flow, groups, scorer, decisions, sample, state, op, d)
            for place in range(flow.out_start[op], flow.out_start[op + 1]):
                claim(flow, state, flow.out_tensor[place], d)
            if state.arrival[op] > now and not program_order:
                _wait(state, op, d)
                push(state.queue, state.arrival[op], op)
                continue
        elif not program_order:
            _waited(state, op, d)
        end = max(state.arrival[op], state.free[d]) + flow.time[op, d]
        state.free[d] = end
        state.coming[d] -= flow.time[op, d]
        for place in range(flow.out_start[op], flow.out_start[op + 1]):
            tensor = flow.out_tensor[place]
            state.available[tensor, d] = end
            for use in range(flow.use_start[tensor], flow.use_start[tensor + 1]):
                consumer = flow.use_consumer[use]
                state.ready[consumer] = max(state.ready[consumer], end)
                state.missing[consumer] -= 1
                if state.missing[consumer] == 0:
                    push(state.queue, 0.0 if program_order else state.ready[consumer], consumer)
        let_go(flow, state, op)


@compile_kernel
@no_type_check
def _wait(state, op, d):
    """Notes that an op waits for a transfer."""
    following = state.first_waiting[d]
    state.next_waiting[op], state.previous_waiting[op] = following, -1
    if following >= 0:
        state.previous_waiting[following] = op
    state.first_waiting[d] = op


@compile_kernel
@no_type_check
def _waited(state, op, d):
    """Notes that an op waits no more."""
    following, before = state.next_waiting[op], state.previous_waiting[op]
    if following >= 0:
        state.previous_waiting[following] = before
    if before >= 0:
        state.next_waiting[before] = following
    else:
        state.first_waiting[d] = following


@compile_kernel
@no_type_check
def _fetch(flow, groups, scorer, decisions, sample, state, op, d):
    """When the last input of an op is on its device; transfers that are needed for it are drawn up, variables without a place are given one."""
    last = state.ready[op]
    for edge in range(flow.in_start[op], flow.in_start[op + 1]):
        tensor = flow.in_tensor[edge]
        if state.available[tensor, d] == np.inf:
            producer = flow.tensor_producer[tensor]
            home = flow.group_of_op[producer]
            if flow.floating[producer]:
                if state.where[home] < 0:
                    _decide(flow, groups, scorer, decisions, sample, state, home, producer, state.ready[op])
                if state.available[tensor, state.where[home]] == np.inf:
                    claim(flow, state, tensor, state.where[home])
                    state.available[tensor, state.where[home]] = 0.0
            source = state.where[home]
            if source != d:
                duration = flow.latency[source, d] + flow.tensor_bytes[tensor] * flow.time_per_byte[source, d]
                start = earliest_start(state.channels, flow.channel[source, d], state.available[tensor, source], duration)
                occupy(state.channels, flow.channel[source, d], start, duration, flow.latency[source, d])
                claim(flow, state, tensor, d)
                state.available[tensor, d] = start + duration
        last = max(last, state.available[tensor, d])
    return last


@compile_kernel
@no_type_check
def _put(groups, state, group, d):
    state.where[group] = d
    state.load[d] += groups.time[group, d]
    state.coming[d] += groups.time[group, d]
    state.params[d] += groups.param_share[group, d]
    state.outputs[d] += groups.output_share[group, d]


@compile_kernel
@no_type_check
def _decide(flow, groups, scorer, decisions, sample, state, group, op, now):
    """Gives a group its device when its op `op` could start at `now`."""
    devices = len(state.free)
    emptiest, least = -1, np.inf
    for d in range(devices):
        full = fullness(flow, groups, state, group, op, d, decisions.caution[sample])
        state.open[d] = groups.allowed[group, d] and full <= _FULL
        if groups.allowed[group, d] and full < least:
            emptiest, least = d, full
    state.open[emptiest] = True
    if decisions.follow:
        state.open[decisions.device[sample, group]] = True
    look(flow, groups, state, group, op, now)
    if decisions.follow:
        chosen = decisions.device[sample, group]
        for d in range(devices):
            decisions.possible[sample, group, d] = state.open[d]
            for f in range(_COUNT):
                decisions.features[sample, group, d, f] = state.row[d, f]
    else:
        chosen = _choose(scorer, decisions, sample, state, group)
        decisions.device[sample, group] = chosen
    _put(groups, state, group, chosen)


@compile_kernel
@no_type_check
def _choose(scorer, decisions, sample, state, group):
    """The device of the largest noisy logit; fills its log-probability."""
    row = sample if len(scorer.hidden) > 1 else 0
    devices, width = scorer.hidden.shape[2:]
    chosen, best, top = -1, -np.inf, -np.inf
    for d in range(devices):
        if not state.open[d]:
            continue
        total = np.float32(0)
        for f in range(_COUNT):
            total += scorer.skip[f] * state.row[d, f]
        for h in range(width):
            value = scorer.hidden[row, group, d, h]
            for f in range(_COUNT):
                value += scorer.weight[f, h] * state.row[d, f]
            if value > 0:
                total += scorer.out_weight[h] * value
        state.logit[d] = total
        top = max(top, total)
        if total + decisions.noise[sample, group, d] > best:
            best = total + decisions.noise[sample, group, d]
            chosen = d
        elif chosen < 0:
            chosen = d  # a logit that is not a number still yields a device; its log_prob tells
    normaliser = 0.0
    for d in range(devices):
        if state.open[d]:
            normaliser += np.exp(state.logit[d] - top)
    decisions.log_prob[sample, group] = state.logit[chosen] - top - np.log(normaliser)
    return chosen
