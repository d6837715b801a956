"""What the event kernel writes down of one step, and the timeline made of it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.measurement import Timeline
from gdp.runtime.plan import Plan


class EventLog(NamedTuple):
    """Transfers are numbered as in the kernel; where there was none of a number, its tensor is -1. Memory changes stand in the order of time."""

    op_start_s: Float64[np.ndarray, " ops"]
    op_end_s: Float64[np.ndarray, " ops"]
    transfer_tensor: Int32[np.ndarray, " edges"]
    transfer_source: Int32[np.ndarray, " edges"]
    transfer_destination: Int32[np.ndarray, " edges"]
    transfer_start_s: Float64[np.ndarray, " edges"]
    transfer_end_s: Float64[np.ndarray, " edges"]
    memory_device: Int32[np.ndarray, " changes"]
    """-1 after the last change."""
    memory_time_s: Float64[np.ndarray, " changes"]
    memory_bytes: Int64[np.ndarray, " changes"]


def event_log(num_ops: int, num_edges: int, num_devices: int) -> EventLog:
    """An empty log of one step."""
    changes = 2 * (num_ops + num_edges) + num_devices  # the start or the end of anything changes one device's memory
    return EventLog(
        op_start_s=np.zeros(num_ops),
        op_end_s=np.zeros(num_ops),
        transfer_tensor=np.full(num_edges, -1, np.int32),
        transfer_source=np.zeros(num_edges, np.int32),
        transfer_destination=np.zeros(num_edges, np.int32),
        transfer_start_s=np.zeros(num_edges),
        transfer_end_s=np.zeros(num_edges),
        memory_device=np.full(changes, -1, np.int32),
        memory_time_s=np.zeros(changes),
        memory_bytes=np.zeros(changes, np.int64),
    )


def timeline_of_log(log: EventLog, plan: Plan) -> Timeline:
    """The timeline of the step in a log."""
    sent = np.flatnonzero(log.transfer_tensor >= 0)
    sent = sent[np.lexsort((log.transfer_destination[sent], log.transfer_tensor[sent]))]
    changes = [np.flatnonzero(log.memory_device == device) for device in range(plan.op_s.shape[1])]
    return Timeline(
        op_start_s=log.op_start_s,
        op_end_s=log.op_end_s,
        transfer_tensor=log.transfer_tensor[sent],
        transfer_source=log.transfer_source[sent],
        transfer_destination=log.transfer_destination[sent],
        transfer_start_s=log.transfer_start_s[sent],
        transfer_end_s=log.transfer_end_s[sent],
        memory_time_s=tuple(log.memory_time_s[change] for change in changes),
        memory_bytes=tuple(log.memory_bytes[change] for change in changes),
    )
