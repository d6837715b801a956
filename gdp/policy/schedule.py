"""Groups placed one after another, each seeing where the schedule stands: the sequential part of the head.

While groups are decided, a running estimate of the step is kept: when every device is free, when a group's inputs can have arrived on it, how full it is. The
next group is, among those whose producers are all placed, the one whose inputs can be somewhere first, as in execution; where devices keep the program's
order, the one of lowest number. The numbers of `SCHEDULE_FEATURES` per (group, device) come from that estimate. It is list scheduling's state (Topcuoglu et al., HEFT, TPDS 2002,
equations 5 to 7) without insertion and without contention of links; where the graph of the groups is cyclic, edges against the numbering of groups are not waited for.

A device whose memory the parameters placed so far leave no room for is ruled out, unless every allowed one is.
"""

import heapq
import typing

import numba
import numpy as np

SCHEDULE_FEATURES = (
    "start_gap",
    "finish_gap",
    "finish_gap_of_step",
    "free_gap_of_step",
    "load_gap",
    "input_share",
    "wait_over_time",
    "param_share",
    "output_share",
    "finishes_first",
)
"""Per (group, device). Gaps are to the best device; the first two as `gap / (gap + the group's own time)`, the others in units of an ideal step."""

_COUNT = len(SCHEDULE_FEATURES)

_FULL = 1 + 1e-5
"""Of a device's memory: rounding must not rule out parameters that fit exactly."""


@numba.njit(cache=True, nogil=True)
@typing.no_type_check
def walk(
    time,
    latency,
    time_per_byte,
    param_share,
    output_share,
    allowed,
    first_edge,
    edge_producer,
    edge_bytes,
    edge_messages,
    first_consumer,
    consumers,
    program_order,
    hidden,
    weight,
    skip,
    out_weight,
    noise,
    follow,
    device,
    log_prob,
    features,
    possible,
):
    """Places every group of every sample: by the largest noisy logit, or as `device` says where `follow` is set.

    `hidden` `[samples or 1, groups, devices, width]` is the head's hidden layer before the schedule's features (through `weight` `[features, width]`) and the
    rectifier; the logit is `out_weight . rectified + skip . features`. `noise` `[samples, groups, devices]` is added to the logits to choose, not to
    `log_prob`. Fills `device` and `log_prob` `[samples, groups]`; when following, `features` and `possible` instead of `log_prob`.
    """
    samples, groups = device.shape
    devices = time.shape[1]
    width = weight.shape[1]
    finish = np.empty(groups)
    missing = np.empty(groups, np.int64)
    free = np.empty(devices)
    load = np.empty(devices)
    params = np.empty(devices)
    outputs = np.empty(devices)
    ready = np.empty(devices)
    here = np.empty(devices)
    start = np.empty(devices)
    end = np.empty(devices)
    row = np.empty((devices, _COUNT), np.float32)
    logit = np.empty(devices, np.float32)
    open_ = np.empty(devices, np.bool_)
    for sample in range(samples):
        free[:] = 0
        load[:] = 0
        params[:] = 0
        outputs[:] = 0
        base = hidden[sample if hidden.shape[0] > 1 else 0]
        waiting = [(0.0, 0)]
        waiting.pop()
        for group in range(groups):
            missing[group] = 0
            for edge in range(first_edge[group], first_edge[group + 1]):
                missing[group] += edge_producer[edge] < group
            if missing[group] == 0:
                heapq.heappush(waiting, (0.0, group))
        while len(waiting) > 0:
            _, group = heapq.heappop(waiting)
            any_open = False
            for d in range(devices):
                open_[d] = allowed[group, d] and params[d] + param_share[group, d] <= _FULL
                any_open = any_open or open_[d]
            if not any_open:
                open_[:] = allowed[group]

            ready[:] = 0
            here[:] = 0
            incoming = 0.0
            for edge in range(first_edge[group], first_edge[group + 1]):
                producer = edge_producer[edge]
                if producer >= group:
                    continue
                at = device[sample, producer]
                size = 1.0 + edge_bytes[edge]
                incoming += size
                here[at] += size
                for d in range(devices):
                    arrival = finish[producer]
                    if at != d:
                        arrival += edge_messages[edge] * latency[at, d] + edge_bytes[edge] * time_per_byte[at, d]
                    ready[d] = max(ready[d], arrival)

            first_start, first_end, first_free, least = np.inf, np.inf, np.inf, np.inf
            own = 0.0
            for d in range(devices):
                start[d] = max(ready[d], free[d])
                end[d] = start[d] + time[group, d]
                own += time[group, d] / devices
                if open_[d]:
                    first_start = min(first_start, start[d])
                    first_end = min(first_end, end[d])
                    first_free = min(first_free, free[d])
                    least = min(least, load[d])
            own += 1e-6
            for d in range(devices):
                start_gap = max(start[d] - first_start, 0.0)
                end_gap = max(end[d] - first_end, 0.0)
                row[d, 0] = start_gap / (start_gap + own)
                row[d, 1] = end_gap / (end_gap + own)
                row[d, 2] = min(end_gap, 4.0)
                row[d, 3] = min(max(free[d] - first_free, 0.0), 4.0)
                row[d, 4] = min(max(load[d] - least, 0.0), 4.0)
                row[d, 5] = here[d] / incoming if incoming > 0 else 0.0
                wait = max(ready[d] - free[d], 0.0)
                row[d, 6] = wait / (wait + own)
                row[d, 7] = min(params[d] + param_share[group, d], 2.0)
                row[d, 8] = min(outputs[d] + output_share[group, d], 2.0)
                row[d, 9] = 1.0 if end_gap <= 0 else 0.0

            if follow:
                chosen = device[sample, group]
                for d in range(devices):
                    possible[sample, group, d] = open_[d]
                    for f in range(_COUNT):
                        features[sample, group, d, f] = row[d, f]
            else:
                chosen = -1
                best = -np.inf
                top = -np.inf
                for d in range(devices):
                    if not open_[d]:
                        continue
                    total = np.float32(0)
                    for f in range(_COUNT):
                        total += skip[f] * row[d, f]
                    for h in range(width):
                        value = base[group, d, h]
                        for f in range(_COUNT):
                            value += weight[f, h] * row[d, f]
                        if value > 0:
                            total += out_weight[h] * value
                    logit[d] = total
                    top = max(top, total)
                    if total + noise[sample, group, d] > best:
                        best = total + noise[sample, group, d]
                        chosen = d
                    elif chosen < 0:
                        chosen = d  # a logit that is not a number still yields a device; its log_prob tells
                normaliser = 0.0
                for d in range(devices):
                    if open_[d]:
                        normaliser += np.exp(logit[d] - top)
                log_prob[sample, group] = logit[chosen] - top - np.log(normaliser)
                device[sample, group] = chosen

            free[chosen] = end[chosen]
            finish[group] = end[chosen]
            load[chosen] += time[group, chosen]
            params[chosen] += param_share[group, chosen]
            outputs[chosen] += output_share[group, chosen]
            for place in range(first_consumer[group], first_consumer[group + 1]):
                consumer = consumers[place]
                if consumer <= group:
                    continue
                missing[consumer] -= 1
                if missing[consumer] == 0:
                    for d in range(devices):
                        ready[d] = 0.0
                        for edge in range(first_edge[consumer], first_edge[consumer + 1]):
                            producer = edge_producer[edge]
                            if producer < consumer:
                                at = device[sample, producer]
                                arrival = finish[producer]
                                if at != d:
                                    arrival += edge_messages[edge] * latency[at, d] + edge_bytes[edge] * time_per_byte[at, d]
                                ready[d] = max(ready[d], arrival)
                    heapq.heappush(waiting, (0.0 if program_order else ready.min(), consumer))
