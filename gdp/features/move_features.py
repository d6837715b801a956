"""What is seen of a change to a placement before it is tried, from the present step alone: no step of the changed placement is simulated.

The ops that move are taken in the program's order, each as soon as its inputs are there and its new device is free, everything else staying when it was. Against the slack of
the present step (`step_slack`) that says how much too late the moved ops would end and their tensors arrive, how far they would push others back on their device and on channels,
and what the ops and transfers that go away leave free on a critical path. It is the estimate by heads and tails that job shop searches make of a move (Taillard, EJOR 47, 1990;
Balas and Vazacopoulos, Management Science 44, 1998), for devices and channels, but handed to a network as it is instead of being added up.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Bool, Float32, Int32

from gdp.features.move_kernel import look_at_moves
from gdp.features.move_tally import MOVE_TALLY, move_scratch
from gdp.features.op_flow import OpFlow
from gdp.features.step_slack import NO_SLACK, Step

STEP_FEATURES = (
    "busiest",
    "mean_busy",
    "channels_busy",
    "critical_work",
    "log_critical_ops",
    "critical_transfers",
    "longest_transfer",
    "log_transfers",
    "log_devices",
)
"""Of the present step: shares of its time, or logarithms of counts."""

MOVE_FEATURES = (*MOVE_TALLY, "removes_wait", *STEP_FEATURES)
"""Of one change; `removes_wait` is 1 when it was made to remove something that the step waits for."""


def move_features(
    flow: OpFlow, step: Step, candidates: Int32[np.ndarray, "candidates ops"], removes_wait: Bool[np.ndarray, " candidates"]
) -> Float32[np.ndarray, "candidates features"]:
    """One row for each changed copy of the step's placement; `flow` is in seconds. Numbers of seconds are shares of the step on a logarithmic scale with a sign."""
    out = np.zeros((len(candidates), len(MOVE_FEATURES)), np.float32)
    if step.step_s <= 0:
        return out
    scratch = move_scratch(len(step.device), len(step.busy_s), num_tensors=len(flow.tensor_bytes), num_transfers=len(step.sent_start_s))
    look_at_moves(flow, step, np.ascontiguousarray(candidates), scratch, out)
    out[:, len(MOVE_TALLY)] = removes_wait
    out[:, len(MOVE_TALLY) + 1 :] = _of_the_step(step)
    return out


@no_type_check
def _of_the_step(step: Step) -> np.ndarray:
    tight_s = NO_SLACK * step.step_s
    critical = step.latest_s - step.end_s <= tight_s
    sent_s = step.sent_end_s - step.sent_start_s
    waits = step.sent_channel >= 0
    channels = max(1, len(step.first_on_channel) - 1)
    return np.array(
        [
            step.busy_s.max() / step.step_s,
            step.busy_s.mean() / step.step_s,
            sent_s[waits].sum() / step.step_s / channels,
            (step.end_s - step.start_s)[critical].sum() / step.step_s,
            np.log1p(critical.sum()) / 10,
            sent_s[step.sent_latest_s - step.sent_end_s <= tight_s].sum() / step.step_s,
            sent_s.max(initial=0.0) / step.step_s,
            np.log1p(len(sent_s)) / 8,
            np.log(len(step.busy_s)) / 3,
        ]
    )
