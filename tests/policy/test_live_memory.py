"""What the walk knows of memory, by hand and against the simulator."""

import numpy as np
import torch
from policy_examples import cluster, every_op_alone, graph, policy, tensors

from gdp.graph import Graph
from gdp.policy.placer import candidates
from gdp.policy.policy import follow_schedule
from gdp.runtime.simulator import Simulator

ON = cluster(1e12, 1e12, memory_bytes=1500)


def possible(of: Graph, device: list[int]) -> list[list[bool]]:
    _, out = follow_schedule(tensors(of, ON), torch.tensor([device]))
    rows: list[list[bool]] = out[0].tolist()
    return rows


def there_and_back(steps: int) -> Graph:
    """A chain whose op `i` makes what op `2 steps - 1 - i` needs, as a training step does: at its middle everything lies in memory."""
    edges = [(op, op + 1) for op in range(2 * steps - 1)] + [(op, 2 * steps - 1 - op) for op in range(steps - 1)]
    return graph(edges, flops=[1e9] * (2 * steps), tensor_bytes=100)


def test_what_nothing_needs_any_more_makes_room():
    # a chain of tensors of 600 bytes: two of them lie on the device at once, all five would not fit
    of = graph([(op, op + 1) for op in range(5)], flops=[1e9] * 6, tensor_bytes=600)
    assert np.array(possible(of, [0] * 6)).all()


def test_a_device_is_ruled_out_when_a_group_has_no_room():
    # ops 0 to 3 make 600 bytes each, all for op 4: the third has no room beside two; on the other device it has. Op 4 needs 2 400 bytes at once: it fits nowhere
    of = graph([(op, 4) for op in range(4)], flops=[1e9] * 5, tensor_bytes=600)
    assert possible(of, [0, 0, 1, 1, 0])[:4] == [[True, True], [True, True], [False, True], [False, True]]


def test_where_something_goes_is_possible():
    of = graph([(op, 4) for op in range(4)], flops=[1e9] * 5, tensor_bytes=600)
    assert possible(of, [0, 0, 0, 0, 0])[2:4] == [[True, True]] * 2


def test_copies_take_room_until_the_tensor_is_needed_no_more():
    # op 0 is read on device 1 by ops 1 and 2; its copy, 1's and 2's outputs are 1 800 bytes there
    of = graph([(0, 1), (0, 2), (1, 3), (2, 3)], flops=[1e9] * 4, tensor_bytes=600)
    assert possible(of, [0, 1, 0, 0])[2] == [True, False]


def test_parameters_and_scratch_count():
    of = graph([(0, 1), (2, 3)], flops=[1e9] * 4, tensor_bytes=600, param_bytes=[0, 0, 1000, 0])
    assert possible(of, [0, 0, 1, 1])[2] == [False, True]


def test_a_variable_takes_room_once_however_many_devices_read_it():
    # op 0 is a variable of 500 bytes on device 0, read on two others; op 3 would need it there, and copies of 1's and 2's outputs: 1 500 bytes
    of = graph([(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)], flops=[0.0, 1e9, 1e9, 1e9], tensor_bytes=500)
    x = tensors(of, cluster(1e12, 1e12, 1e12, memory_bytes=1700))
    _, out = follow_schedule(x, torch.tensor([[0, 1, 2, 1]]))
    assert out[0, 3].tolist() == [True, True, True]


def test_what_never_runs_keeps_nothing_in_memory():
    # op 0 is a variable of 600 bytes, op 1 a view of it that nothing needs; once op 2 has run, op 3's input and output are 1 200 bytes
    of = graph([(0, 1), (0, 2), (2, 3), (3, 4)], flops=[0.0, 0.0, 1e9, 1e9, 1e9], tensor_bytes=600)
    assert possible(of, [0, 0, 0, 1, 0])[3] == [True, True]


def test_the_policy_leaves_a_device_before_its_memory_is_full():
    """A chain gains nothing from a second device, but does not fit on one."""
    of, gdp = there_and_back(10), policy(shaken=False, passes=1)
    grouping = every_op_alone(of)
    x = tensors(of, cluster(1e12, 1e12, memory_bytes=850))
    for on, fits in ((cluster(1e12, 1e12, memory_bytes=1300), True), (cluster(1e12, 1e12, memory_bytes=850), False)):
        one_device = Simulator().batch(of, on, np.zeros((1, of.num_ops), np.int32)).step_time_s
        assert np.isfinite(one_device[0]) == fits
        x = tensors(of, on)
        decided = candidates(gdp, of, grouping, x, num_samples=8, generator=torch.Generator().manual_seed(0))
        step_s = Simulator().batch(of, on, decided.numpy().astype(np.int32)).step_time_s
        assert np.isfinite(step_s).sum() >= 4
        assert fits or np.isfinite(step_s[1]), "the second is cautious"
