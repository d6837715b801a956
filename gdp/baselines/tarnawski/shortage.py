"""Why no split of an instance fits into its accelerators' memory: by how much, and where. A CPU core holds anything, so only instances without one can be short."""

import numpy as np

from gdp.baselines.tarnawski.groups import colour_groups
from gdp.baselines.tarnawski.mixed_integer import MixedIntegerProgram
from gdp.capture.tarnawski_instance import TarnawskiInstance


def why_nothing_fits(instance: TarnawskiInstance, *, time_limit_s: float) -> str | None:
    """The proof as a sentence without its end; None when a split fits, or when none is known to and the time for packing is over."""
    if instance.num_cpus:
        return None
    group = colour_groups(instance).group_of_node
    held = np.bincount(group, instance.size_bytes)
    memory, where = instance.accelerator_memory_bytes, f"the instance {instance.source!r}"
    largest = int(held.argmax())
    if held[largest] > memory:
        nodes = instance.node_id[group == largest].tolist()
        what = f"node {nodes[0]}" if len(nodes) == 1 else f"the {len(nodes)} nodes of one colour with node {nodes[0]}"
        verb = "takes" if len(nodes) == 1 else "take"
        return f"{what} of {where} {verb} {held[largest]:.0f} bytes, but an accelerator holds {memory:.0f}: {held[largest] - memory:.0f} bytes too much"
    room = memory * instance.num_accelerators
    if held.sum() > room:
        return (
            f"the nodes of {where} take {held.sum():.0f} bytes, but its {instance.num_accelerators} accelerators hold {room:.0f} together "
            f"({memory:.0f} each): {held.sum() - room:.0f} bytes too much"
        )
    least = _least_of_the_fullest(held, instance.num_accelerators, time_limit_s)
    if least <= memory * (1 + 1e-9):
        return None
    return (
        f"however the nodes of {where} are packed into {instance.num_accelerators} accelerators, one takes {least:.0f} bytes or more, "
        f"but it holds {memory:.0f}: {least - memory:.0f} bytes too much"
    )


def _least_of_the_fullest(held: np.ndarray, count: int, time_limit_s: float) -> float:
    """A lower bound of what the fullest of `count` accelerators takes, over all packings; the least itself when the time suffices."""
    unit = float(held.max()) or 1.0
    program = MixedIntegerProgram()
    fullest = program.add_variable(max(1.0, float(held.sum()) / unit / count), np.inf, cost=1.0)
    place = [[program.add_variable(0.0, 1.0, integer=True) for _ in range(count)] for _ in held]
    for row in place:
        program.add_row([(variable, 1.0) for variable in row], lower=1.0, upper=1.0)
    for slot in range(count):
        load = [(row[slot], -float(size) / unit) for row, size in zip(place, held, strict=True)]
        program.add_row([(fullest, 1.0), *load], lower=0.0)
    return program.solve(time_limit_s=time_limit_s).bound * unit
