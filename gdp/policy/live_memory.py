"""How full the memory of each device is while the schedule is drawn up: of parameters for good, of a tensor while any op still needs it.

As in a step (docs/simulator.md), but for this: it goes by the order in which ops are given their moments, not by the moments, so what waits for a transfer has the room for its
outputs already; a tensor and its copies go together, when the last of its consumers has run, wherever it runs; and nothing is known of what is still to come but the outputs of
the group that is decided.
"""

from typing import no_type_check

import numpy as np

from gdp.runtime.numba_options import compile_kernel


@compile_kernel
@no_type_check
def empty_memory(flow, state):
    """Nothing lies anywhere, and every tensor has all its uses before it; what only is, and never runs, uses nothing."""
    state.params[:] = 0
    state.live_bytes[:] = 0
    for tensor in range(len(flow.tensor_bytes)):
        state.uses[tensor] = 0
        for use in range(flow.use_start[tensor], flow.use_start[tensor + 1]):
            if not flow.floating[flow.use_consumer[use]]:
                state.uses[tensor] += 1


@compile_kernel
@no_type_check
def claim(flow, state, tensor, d):
    """A tensor is to be made on a device, or sent there."""
    if state.uses[tensor] > 0:
        state.live_bytes[d] += flow.tensor_bytes[tensor]


@compile_kernel
@no_type_check
def let_go(flow, state, op):
    """An op has run: what it was the last to need lies nowhere any more."""
    for edge in range(flow.in_start[op], flow.in_start[op + 1]):
        tensor = flow.in_tensor[edge]
        state.uses[tensor] -= 1
        if state.uses[tensor] == 0:
            for d in range(len(state.live_bytes)):
                if state.available[tensor, d] < np.inf:
                    state.live_bytes[d] -= flow.tensor_bytes[tensor]


@compile_kernel
@no_type_check
def fullness(flow, groups, state, group, op, d, caution):
    """The share of a device's memory that would be taken with a group there, of which `op` runs now; tensors count `caution` times."""
    size = state.live_bytes[d] + flow.temp_bytes[op]
    for edge in range(flow.in_start[op], flow.in_start[op + 1]):
        if state.available[flow.in_tensor[edge], d] == np.inf:
            size += flow.tensor_bytes[flow.in_tensor[edge]]
    tensors = size / flow.memory_bytes[d] + groups.output_share[group, d]
    return state.params[d] + groups.param_share[group, d] + caution * tensors
