"""accelerate's automatic map, and what modules do not say, on cases worked out by hand."""

import numpy as np
import pytest
from small_graphs import machine, small_graph

from gdp.baselines.automatic_device_map import device_map
from gdp.baselines.module_rules import UNSAID, follow_data
from gdp.graph import Phase


def test_what_is_not_said_follows_the_data() -> None:
    """0 (device 1) and 1 (device 2) feed 2, the second with more bytes; 3 has no inputs and feeds 2; 4 is backward and reads 0 and the larger gradient of 2; 5 stands alone."""
    graph = small_graph(
        [(0, 3), (1, 3), (2, 3), (3, 4), (0, 4)],
        seconds=[1.0] * 6,
        tensor_bytes=[10, 20, 5, 1000, 1, 1],
        phase=[Phase.FORWARD, Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD, Phase.FORWARD],
    )
    said = np.array([1, 2, UNSAID, UNSAID, UNSAID, UNSAID], np.int32)
    assert follow_data(graph, said).tolist() == [1, 2, 2, 2, 1, 0]


def test_a_colocation_group_follows_its_parameters() -> None:
    graph = small_graph([], seconds=[1.0] * 3, param_bytes=[0, 8, 0], colocation=[0, 0, -1])
    assert follow_data(graph, np.array([0, 1, 2], np.int32)).tolist() == [1, 1, 2]


PATHS = ["emb", "layers.0.a", "layers.0.b", "layers.0", "layers.1.a", "layers.1.b", "head"]
BYTES = [100, 60, 40, 0, 60, 40, 50]


@pytest.mark.parametrize(
    ("memory_bytes", "balanced", "split_blocks", "expected"),
    [
        # Beside the layers, the head needs 50 kept free: 300 of 350 is just enough.
        ([350, 1000], False, False, [0] * 7),
        # Of 340, 290 are not; block 0 fits beside the 100 kept free for block 1, which does not fit beside the head.
        ([340, 1000], False, False, [0, 0, 0, 0, 1, 1, 1]),
        # If blocks may be split, 60 is the largest layer to come, and half of block 1 stays on the first device.
        ([340, 1000], False, True, [0, 0, 0, 0, 0, 1, 1]),
        # An equal share of 350 is 175, and 1.25 blocks are 125: 300.
        ([1000, 1000], True, False, [0, 0, 0, 0, 1, 1, 1]),
    ],
)
def test_automatic_map_by_hand(memory_bytes: list[int], balanced: bool, split_blocks: bool, expected: list[int]) -> None:
    graph = small_graph([(op, op + 1) for op in range(6)], seconds=[1.0] * 7, module_path=PATHS, param_bytes=BYTES)
    assert device_map(graph, machine(memory_bytes=memory_bytes), balanced=balanced, split_blocks=split_blocks).tolist() == expected


def test_parameters_of_a_module_that_is_split_are_placed_first() -> None:
    """`net` is too large; its own 50 bytes stay on the first device, beside 100 kept free for `net.a`; the rest goes on."""
    graph = small_graph([(0, 1), (1, 2)], seconds=[1.0] * 3, module_path=["net.a", "net", "net.b"], param_bytes=[100, 50, 80])
    assert device_map(graph, machine(memory_bytes=[150, 1000]), balanced=False, split_blocks=False).tolist() == [1, 0, 1]
