"""The simulator's rule in plain Python: the specification, and the oracle of the fast simulator's tests.

A step is a sequence of *rounds*, the first at moment 0, each later one at the earliest end of what is running. In a round
1. all ops and transfers end that were running before it and end at this moment: memory is given back, tensors arrive, ops become ready, and the
   transfers of the ended ops' tensors are requested, one per tensor and destination device;
2. every free device takes an op and every free channel a transfer, where there is one: memory is claimed; the end is `now + seconds`, in doubles.
What takes no time thus ends in a later round of the same moment. By `dispatch`, a device takes
- `ready_order`: the op that became ready at the earliest moment, of those of one moment the lowest number;
- `program_order`: the lowest number not yet run, waiting until that op is ready;
- `priority`: the ready op of highest rank, of equal ranks the lowest number.
A channel takes the transfer requested at the earliest moment, of those of one moment the one with the lowest producer, then destination, then
tensor. Pairs without a channel start their transfers in the round that requests them. A transfer takes `latency_s + bytes / bandwidth_bytes_per_s`.
A device holds its ops' parameters always; an op's scratch while it runs; a tensor from the start of its op until that op, its last consumer there
and its last transfer out have ended; a copy from the start of its transfer until its last consumer there has ended. Memory is looked at after each
round: what is given back makes room for what is claimed. A step that does not fit is simulated to its end as if it did.
"""

from collections import defaultdict
from heapq import heappop, heappush

import numpy as np
from jaxtyping import Float64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Measurement
from gdp.placement import Placement
from gdp.runtime.roofline import op_time_s
from gdp.runtime.simulated import invalid_measurement, measurement_of, timeline_of
from gdp.runtime.verdict import Dispatch, check_finite, check_rank, invalid_detail


def simulate(
    graph: Graph, cluster: Cluster, placement: Placement, *, dispatch: Dispatch, rank: Float64[np.ndarray, " ranked"] | None
) -> Measurement:
    """One simulated step with its timeline, by the rule at the top of this file. `rank` is for `priority` alone; errors as of `Simulator`."""
    check_rank(graph, dispatch, rank)
    check_finite(graph, cluster)
    if invalid := invalid_detail(graph, cluster, placement.device):
        return invalid_measurement(cluster, invalid)

    ops, devices, device = range(graph.num_ops), range(cluster.num_devices), placement.device.tolist()
    seconds = op_time_s(graph, cluster)[ops, device].tolist()
    producer, size, temp = graph.tensor_producer.tolist(), graph.tensor_bytes.tolist(), graph.temp_bytes.tolist()
    latency_s, bandwidth, channel = cluster.latency_s.tolist(), cluster.bandwidth_bytes_per_s.tolist(), cluster.channel.tolist()
    inputs: list[list[int]] = [[] for _ in ops]
    outputs: list[list[int]] = [[] for _ in ops]
    consumers: list[dict[int, list[int]]] = [defaultdict(list) for _ in size]  # of each tensor, by device
    for tensor, op in enumerate(producer):
        outputs[op].append(tensor)
    for tensor, op in zip(graph.edge_tensor.tolist(), graph.edge_consumer.tolist(), strict=True):
        inputs[op].append(tensor)
        consumers[tensor][device[op]].append(op)
    missing = [len(tensors) for tensors in inputs]
    program = [[op for op in reversed(ops) if device[op] == at] for at in devices]
    ready: list[list[tuple[float, int]]] = [[] for _ in devices]  # heaps of (key, op)
    requested: list[list[tuple[float, int, int, int]]] = [[] for _ in cluster.channel_name]  # of (moment, producer, destination, tensor)
    running: list[tuple[float, int, int, int]] = []  # a heap of (end, op, tensor, destination); tensor -1 for the op itself
    now, device_is_free, channel_is_free = 0.0, [True] * cluster.num_devices, [True] * cluster.num_channels
    busy_s, occupied_s = [0.0] * cluster.num_devices, [0.0] * cluster.num_channels
    op_start, op_end = [0.0] * graph.num_ops, [0.0] * graph.num_ops
    transfers: list[tuple[int, int, int, float, float]] = []  # tensor, source, destination, start, end
    holds: dict[tuple[int, int], int] = {}  # what still keeps a (tensor, device) in memory
    memory = [int(graph.param_bytes[placement.device == at].sum()) for at in devices]
    memory_log: list[list[tuple[float, int]]] = [[] for _ in devices]

    def become_ready(op: int) -> None:
        key = now if dispatch == "ready_order" else 0.0 if rank is None else -float(rank[op])
        heappush(ready[device[op]], (key, op))

    def arrive(tensor: int, at: int) -> None:
        for op in consumers[tensor][at]:
            missing[op] -= 1
            if missing[op] == 0:
                become_ready(op)

    def hold(tensor: int, at: int, times: int) -> None:
        holds[tensor, at] = times
        memory[at] += size[tensor]

    def release(tensor: int, at: int) -> None:
        holds[tensor, at] -= 1
        if holds[tensor, at] == 0:
            memory[at] -= size[tensor]

    def start_op(op: int, at: int) -> None:
        device_is_free[at] = False
        busy_s[at] += seconds[op]
        op_start[op], op_end[op] = now, now + seconds[op]
        memory[at] += temp[op]
        for tensor in outputs[op]:
            hold(tensor, at, 1 + sum(len(there) if destination == at else 1 for destination, there in consumers[tensor].items()))
        heappush(running, (op_end[op], op, -1, -1))

    def end_op(op: int, at: int) -> None:
        device_is_free[at] = True
        memory[at] -= temp[op]
        for tensor in outputs[op]:
            for destination in sorted(consumers[tensor]):
                if destination == at:
                    arrive(tensor, at)
                elif channel[at][destination] == Cluster.NO_CHANNEL:
                    start_transfer(tensor, at, destination)
                else:
                    heappush(requested[channel[at][destination]], (now, op, destination, tensor))
        for tensor in inputs[op] + outputs[op]:
            release(tensor, at)

    def start_transfer(tensor: int, source: int, destination: int) -> None:
        transfer_s = latency_s[source][destination] + size[tensor] / bandwidth[source][destination]
        if (over := channel[source][destination]) != Cluster.NO_CHANNEL:
            channel_is_free[over] = False
            occupied_s[over] += transfer_s
        transfers.append((tensor, source, destination, now, now + transfer_s))
        hold(tensor, destination, len(consumers[tensor][destination]))
        heappush(running, (now + transfer_s, producer[tensor], tensor, destination))

    def end_transfer(tensor: int, source: int, destination: int) -> None:
        if (over := channel[source][destination]) != Cluster.NO_CHANNEL:
            channel_is_free[over] = True
        release(tensor, source)
        arrive(tensor, destination)

    for op in (op for op in ops if not missing[op]):
        become_ready(op)
    while True:
        for at in devices:
            if device_is_free[at] and ready[at] and (dispatch != "program_order" or ready[at][0][1] == program[at][-1]):
                program[at].pop()
                start_op(heappop(ready[at])[1], at)
        for over, queue in enumerate(requested):
            if channel_is_free[over] and queue:
                _, op, destination, tensor = heappop(queue)
                start_transfer(tensor, device[op], destination)
        for log, held in zip(memory_log, memory, strict=True):
            if not log or log[-1][1] != held:
                log.append((now, held))
        if not running:
            break
        now = running[0][0]
        ended = []
        while running and running[0][0] == now:
            ended.append(heappop(running))
        for _, op, tensor, destination in ended:
            if tensor < 0:
                end_op(op, device[op])
            else:
                end_transfer(tensor, device[op], destination)
    timeline = timeline_of(op_start, op_end, transfers, memory_log)
    return measurement_of(graph, cluster, step_time_s=now, busy_s=busy_s, occupied_s=occupied_s, timeline=timeline)
