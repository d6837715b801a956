"""Random small instances of Tarnawski et al., and all their splits."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from gdp.capture.tarnawski_instance import TarnawskiInstance

PUBLISHED = Path(__file__).resolve().parents[4] / "shared" / "instances"


@st.composite
def instances(draw: st.DrawFn, *, max_nodes: int = 6, max_devices: int = 3, training: bool = True) -> TarnawskiInstance:
    """Few nodes with round costs, many of them zero; some colours, some nodes for the CPU alone, memory that may be short."""
    count = draw(st.integers(1, max_nodes))
    num_cpus = draw(st.integers(0, 1))
    num_accelerators = draw(st.integers(1 - num_cpus, max_devices - num_cpus))

    def some(values: list[float]) -> np.ndarray:
        return np.array(draw(st.lists(st.sampled_from(values), min_size=count, max_size=count)), np.float64)

    pairs = [(one, other) for other in range(count) for one in range(other)]
    edges = sorted(draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * count))) if pairs else []
    num_forward = draw(st.integers(0, count)) if training else count
    transfer_s = some([0.0, 0.0, 0.25, 0.5, 1.0])
    transfer_s[np.setdiff1d(np.arange(count), [one for one, _ in edges])] = 0.0
    return TarnawskiInstance(
        source="a random instance",
        num_accelerators=num_accelerators,
        num_cpus=num_cpus,
        accelerator_memory_bytes=draw(st.sampled_from([2.0, 4.0, 100.0])),
        node_id=np.arange(10, 10 + count),
        cpu_time_s=some([0.0, 0.0, 1.0, 4.0, 8.0]),
        accelerator_time_s=some([0.0, 0.0, 1.0, 2.0, 2.5]),
        runs_on_accelerator=some([1.0, 1.0, 1.0, 1.0 - num_cpus]) > 0,
        backward=np.arange(count) >= num_forward,
        colour=some([-1.0, -1.0, -1.0, 0.0, 1.0]).astype(np.int32),
        size_bytes=some([0.0, 1.0, 1.0, 2.0]),
        transfer_s=transfer_s,
        edge_from=np.array([one for one, _ in edges], np.int32),
        edge_to=np.array([other for _, other in edges], np.int32),
    )


def all_splits(instance: TarnawskiInstance) -> Iterator[np.ndarray]:
    """Every device for every node."""
    for device in itertools.product(range(instance.num_devices), repeat=instance.num_nodes):
        yield np.array(device, np.int32)


def is_contiguous(instance: TarnawskiInstance, device: np.ndarray) -> bool:
    """Whether the devices can be put in an order in which no forward edge goes back."""
    forward = ~instance.backward[instance.edge_from] & ~instance.backward[instance.edge_to]
    arcs = {
        (int(one), int(other))
        for one, other in zip(device[instance.edge_from[forward]], device[instance.edge_to[forward]], strict=True)
        if one != other
    }
    return any(
        all(order.index(one) < order.index(other) for one, other in arcs) for order in itertools.permutations(range(instance.num_devices))
    )
