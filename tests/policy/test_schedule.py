"""The running schedule, by hand and against the simulator."""

import dataclasses

import numpy as np
import pytest
import torch
from policy_examples import FEATURES, cluster, every_op_alone, graph, layered_graph, policy, tensors

from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.features.featurize import featurize
from gdp.placement import Origin, Placement
from gdp.policy.group_flow import group_flow
from gdp.policy.policy import follow_schedule
from gdp.policy.schedule import free_decisions, walk
from gdp.policy.schedule_features import SCHEDULE_FEATURES
from gdp.runtime.simulator import Simulator


def feature(features: torch.Tensor, name: str) -> list[list[float]]:
    return features[0, :, :, SCHEDULE_FEATURES.index(name)].tolist()


def one_link(of: Cluster) -> Cluster:
    return dataclasses.replace(of, channel=np.zeros_like(of.channel), channel_name=("root",))


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
    # both devices could be used at 2 ms when ops 1 and 2 are ready: device 1, free since 0, is no better for it
    torch.testing.assert_close(torch.tensor(feature(features, "free_gap_of_step")), torch.tensor([[0.0, 0], [0, 0], [1, 0]]) / unit)
    torch.testing.assert_close(torch.tensor(feature(features, "load_gap")), torch.tensor([[0.0, 0], [2, 0], [3, 0]]) / unit)
    torch.testing.assert_close(
        torch.tensor(feature(features, "transfer_gap_of_step")), torch.tensor([[0.0, 0], [0, 1.001], [0, 1.001]]) / unit
    )
    assert feature(features, "input_share") == [[0, 0], [1, 0], [1, 0]]
    assert feature(features, "consumer_share") == [[0, 0]] * 3
    assert feature(features, "finishes_first") == [[1, 1], [1, 0], [1, 0]]


def test_held_groups_are_seen_before_they_run():
    # the fork again, its consumers held on devices 0 and 1: op 0 has a consumer on each, whose 1 and 3 ms are still to come
    x = tensors(graph([(0, 1), (0, 2)], flops=[2e9, 1e9, 3e9], tensor_bytes=1_000_000), cluster(1e12, 1e12))
    features, possible = follow_schedule(x, torch.tensor([[0, 0, 1]]), torch.tensor([[False, True, True]]))
    assert feature(features, "consumer_share")[0] == [0.5, 0.5]
    assert feature(features, "coming_gap")[0] == pytest.approx([0, 2 / 3], abs=1e-6)
    assert feature(features, "load_gap")[0] == pytest.approx([0, 2 / 3], abs=1e-6)
    assert feature(features, "transfer_gap")[0] == [0, 0]
    assert not features[0, 1:].any() and possible.all()


def test_transfers_take_turns_on_one_link():
    # ops 0 and 1 end at 1 ms on devices 0 and 1; op 2 is put on device 2, where op 0's tensor is at 2.001 ms. Op 3, decided next, needs op 1's:
    # by its own link at 2.001 ms on devices 0 and 2, where op 2 runs first; where there is one link, behind op 0's tensor, at 3.002 ms
    of = graph([(0, 2), (1, 3)], flops=[1e9, 1e9, 1e6, 1e9], tensor_bytes=1_000_000)
    unit = 3.001 / 3
    for on, expected in ((cluster(*[1e12] * 3), [1.001, 0, 1.002]), (one_link(cluster(*[1e12] * 3)), [2.002, 0, 2.002])):
        features, _ = follow_schedule(tensors(of, on), torch.tensor([[0, 1, 2, 1]]))
        assert feature(features, "finish_gap_of_step")[3] == pytest.approx([gap / unit for gap in expected], abs=1e-5)


def test_what_waits_for_a_transfer_keeps_its_device_busy():
    # op 0 ends at 1 ms on device 0; op 1 is put on device 1, where it runs from 2.001 ms on. Op 2, decided at 1 ms, would end at 2 ms on device 0, behind op 1 at 4.001 ms on
    # device 1; op 3, with op 2 on device 1, too, at 5.001 ms
    of = graph([(0, 1), (0, 2), (0, 3)], flops=[1e9] * 4, tensor_bytes=1_000_000)
    features, _ = follow_schedule(tensors(of, cluster(1e12, 1e12)), torch.tensor([[0, 1, 1, 0]]))
    unit = 4 / 2
    assert feature(features, "finish_gap_of_step")[2] == pytest.approx([0, 2.001 / unit], abs=1e-5)
    assert feature(features, "finish_gap_of_step")[3] == pytest.approx([0, 3.001 / unit], abs=1e-5)


def test_what_waits_longer_than_an_op_runs_is_not_in_its_way():
    # ops 0 and 2 end at 1 ms on devices 0 and 1; op 1 waits on device 1 for op 0's tensor until 11.001 ms. Op 3 needs op 2's: on device 1 it runs at once
    of = graph([(0, 1), (2, 3)], flops=[1e9] * 4, tensor_bytes=10_000_000)
    features, _ = follow_schedule(tensors(of, cluster(1e12, 1e12)), torch.tensor([[0, 1, 1, 1]]))
    assert feature(features, "finish_gap_of_step")[3] == [4.0, 0.0], "the transfer of 10.001 ms, shown as the most"


def test_a_transfer_takes_the_gap_that_was_there_when_its_tensor_was_made():
    # op 0 feeds op 3, which runs late, after the chain 0-1-2 on device 0; its copy can have been sent long ago, but for the link's other transfers
    of = graph([(0, 1), (1, 2), (0, 3), (2, 3)], flops=[1e9, 5e9, 1e9, 1e9], tensor_bytes=1_000_000)
    x = tensors(of, one_link(cluster(1e12, 1e12)))
    features, _ = follow_schedule(x, torch.tensor([[0, 0, 0, 1]]))
    # only op 2's tensor is waited for: 1.001 ms
    assert feature(features, "finish_gap_of_step")[3] == pytest.approx([0, 1.001 / 4], abs=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_the_step_is_drawn_up_as_the_simulator_runs_it(seed):
    """Everything held but the last op: where it would end is the simulator's step, on every device."""
    generator = np.random.default_rng(seed)
    of = layered_graph(layers=8, width=3, seed=seed)
    sinks = [op for op in range(of.num_ops) if op not in set(of.edge_producer.tolist())]
    edges = [*zip(of.edge_producer.tolist(), of.edge_consumer.tolist(), strict=True), *((op, of.num_ops) for op in sinks)]
    of = graph(edges, flops=[*of.flops.tolist(), 1e9], tensor_bytes=200_000)
    on = dataclasses.replace(cluster(1e12, 5e11, 2e12), channel=np.full((3, 3), Cluster.NO_CHANNEL, np.int32), channel_name=())
    device = generator.integers(3, size=of.num_ops)
    rows = np.stack([np.append(device[:-1], last) for last in range(3)]).astype(np.int32)
    step_s = Simulator().batch(of, on, rows).step_time_s
    x = tensors(of, on)
    held = torch.ones(1, of.num_ops, dtype=torch.bool)
    held[0, -1] = False
    features, _ = follow_schedule(x, torch.from_numpy(device)[None], held)
    unit_s = float(of.flops.sum()) / 2e12 / 3
    assert feature(features, "finish_gap_of_step")[-1] == pytest.approx(((step_s - step_s.min()) / unit_s).tolist(), abs=1e-5)


def test_time_passes_op_by_op_whatever_the_groups():
    """Two interleaved chains as two groups: neither waits for the other, though their numbers interleave."""
    edges = [(0, 2), (2, 4), (1, 3), (3, 5)]
    of = graph(edges, flops=[1e9] * 6, tensor_bytes=1_000_000)
    grouping = dataclasses.replace(every_op_alone(of), group_of_op=np.array([0, 1, 0, 1, 0, 1], np.int32), num_groups=2)
    x = featurize(of, cluster(1e12, 1e12), grouping, FEATURES)
    features, _ = follow_schedule(x, torch.tensor([[0, 1]]))
    assert feature(features, "load_gap") == [[0, 0], [1, 0]]
    # op 1 is ready at once, when op 0 has just been put on device 0
    assert feature(features, "coming_gap")[1] == pytest.approx([2 / 3, 0])
    assert feature(features, "start_gap")[1][0] > 0 == feature(features, "start_gap")[1][1]


def test_variables_are_decided_with_the_first_that_needs_them():
    """A variable that takes no time is not placed before its consumer, which sees no device full of it."""
    of = graph([(0, 1)], flops=[0.0, 2e9], tensor_bytes=1_000_000, param_bytes=[1000, 0])
    x = tensors(of, cluster(1e12, 1e12))
    features, _ = follow_schedule(x, torch.tensor([[1, 1]]))
    # the consumer first: nothing is anywhere; then the variable, whose consumer is on device 1
    assert feature(features, "input_share")[1] == [0, 0]
    assert feature(features, "consumer_share")[0] == [0, 1]


def test_threads_share_the_samples_and_change_nothing():
    of = layered_graph(layers=8, width=4, seed=0)
    x = tensors(of, cluster(1e12, 1e12, 5e11))
    gdp = policy(passes=1)
    noise = np.random.default_rng(0).gumbel(size=(5, of.num_ops, 3)).astype(np.float32)
    decided = []
    for num_threads in (1, 2, 8):
        decisions = free_decisions(noise, caution=np.ones(5, np.float32))
        walk(x.ops, group_flow(x), gdp.scorer(x), decisions, program_order=False, num_threads=num_threads)
        decided.append(decisions)
    assert len({tuple(row) for row in decided[0].device.tolist()}) == 5
    for other in decided[1:]:
        np.testing.assert_array_equal(other.device, decided[0].device)
        np.testing.assert_array_equal(other.log_prob, decided[0].log_prob)


def test_untrained_the_policy_is_a_list_scheduler():
    """Its likeliest placement beats one device by far, on graphs that no update has seen."""
    on = cluster(*[1e12] * 4)
    for seed in range(3):
        of = layered_graph(layers=15, width=6, seed=seed)
        x = featurize(of, on, coarsen(of), policy().features)
        greedy = policy(shaken=False, passes=1).greedy(x)
        rows = coarsen(of).expand(np.stack([greedy.numpy(), np.zeros_like(greedy.numpy())]).astype(np.int32))
        times = [Simulator()(of, on, Placement(device=row, origin=Origin(placer="test"))).step_time_s for row in rows]
        assert times[0] < 0.45 * times[1]
