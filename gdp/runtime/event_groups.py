"""The edges that leave an op, by the device of their consumer, compiled."""

from typing import no_type_check

from gdp.runtime.numba_options import compile_kernel


@compile_kernel
@no_type_check
def group(low, high, edges, device_of, num_devices, begin, grouped):
    """Sorts the edges `low` to `high` by destination into `grouped`; those of one destination keep their order."""
    if high - low <= 8:
        for edge in range(low, high):
            destination = device_of[edges[edge].consumer]
            place = edge - low
            while place > 0 and device_of[edges[grouped[place - 1]].consumer] > destination:
                grouped[place] = grouped[place - 1]
                place -= 1
            grouped[place] = edge
        return
    begin[:] = 0
    for edge in range(low, high):
        begin[device_of[edges[edge].consumer] + 1] += 1
    for destination in range(num_devices):
        begin[destination + 1] += begin[destination]
    for edge in range(low, high):
        destination = device_of[edges[edge].consumer]
        grouped[begin[destination]] = edge
        begin[destination] += 1
