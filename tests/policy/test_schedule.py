"""The running schedule, against an event-by-event simulation and by hand."""

import torch
from policy_examples import cluster, graph, layered_graph, policy, tensors

from gdp.placement import Origin, Placement
from gdp.policy.policy import follow_schedule
from gdp.policy.schedule import SCHEDULE_FEATURES
from gdp.runtime.simulator import Simulator


def feature(features: torch.Tensor, name: str) -> list[list[float]]:
    return features[0, :, :, SCHEDULE_FEATURES.index(name)].tolist()


def test_a_fork_by_hand():
    # 0 (2 ms) -> 1 (1 ms), 0 -> 2 (3 ms); 1 MB tensors at 1 GB/s: 1.001 ms with latency. Unit: 6 ms of work on two devices = 3 ms.
    x = tensors(graph([(0, 1), (0, 2)], flops=[2e9, 1e9, 3e9], tensor_bytes=1_000_000), cluster(1e12, 1e12))
    features, possible = follow_schedule(x, torch.tensor([[0, 0, 1]]))
    assert possible.all()
    unit = 3.0
    # op 0 may start anywhere at once; ops 1 and 2 have their input on device 0 at 2 ms, on device 1 at 3.001 ms
    expected = torch.tensor([[0, 0], [0, 1.001], [0, 0.001]]) / unit
    # when op 2 is placed, device 0 is free at 3 ms, device 1 has waited for nothing: starts at 3 and 3.001 ms
    torch.testing.assert_close(torch.tensor(feature(features, "finish_gap_of_step")), expected, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(torch.tensor(feature(features, "free_gap_of_step")), torch.tensor([[0.0, 0], [2, 0], [3, 0]]) / unit)
    torch.testing.assert_close(torch.tensor(feature(features, "load_gap")), torch.tensor([[0.0, 0], [2, 0], [3, 0]]) / unit)
    assert feature(features, "input_share") == [[0, 0], [1, 0], [1, 0]]
    assert feature(features, "finishes_first") == [[1, 1], [1, 0], [1, 0]]


def test_untrained_the_policy_is_a_list_scheduler():
    """Its likeliest placement beats one device by far, on graphs that no update has seen."""
    on = cluster(*[1e12] * 4)
    for seed in range(3):
        of = layered_graph(layers=15, width=6, seed=seed)
        x = tensors(of, on)
        greedy = policy(shaken=False, passes=1).greedy(x)
        times = [
            Simulator()(of, on, Placement(device=device.int().numpy(), origin=Origin(placer="test"))).step_time_s
            for device in (greedy, torch.zeros_like(greedy))
        ]
        assert times[0] < 0.45 * times[1]
