import dataclasses

import numpy as np
import pytest
import torch
from policy_examples import cluster, layered_graph, policy

from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.features.featurize import featurize
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch
from gdp.placement import Placement
from gdp.policy.placer import LITTLE_TRUST, RECIPES, PolicyPlacer, blocks_of_groups, candidates
from gdp.policy.policy import Policy, gumbel_noise
from gdp.runtime.simulator import Simulator

GRAPH = layered_graph(layers=8, width=4, seed=0)
CLUSTER = cluster(1e12, 1e12, 5e11)


@dataclasses.dataclass
class Counting:
    """The simulator, and how many placements it was asked for."""

    asked: int = 0

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        self.asked += 1
        return Simulator()(graph, cluster, placement)

    def batch(self, graph: Graph, cluster: Cluster, device: np.ndarray) -> MeasurementBatch:
        self.asked += len(device)
        return Simulator().batch(graph, cluster, device)


def placer(of: Policy, *, num_samples: int, seed: int = 0, runtime: Counting | None = None) -> PolicyPlacer:
    return PolicyPlacer(
        of, runtime=runtime or Counting(), num_samples=num_samples, seed=seed, objective="step_time", name="small", revision="0123abc"
    )


def test_one_candidate_is_the_likeliest_and_nothing_is_simulated():
    runtime, gdp = Counting(), policy()
    placement = placer(gdp, num_samples=1, runtime=runtime)(GRAPH, CLUSTER)
    grouping = coarsen(GRAPH, max_groups=None)
    greedy = gdp.greedy(featurize(GRAPH, CLUSTER, grouping, gdp.features)).numpy().astype(np.int32)
    assert np.array_equal(placement.device, grouping.expand(greedy))
    assert runtime.asked == 0
    origin = placement.origin
    assert (origin.placer, origin.policy, origin.revision, origin.seed, origin.evaluations) == ("gdp", "small", "0123abc", None, 0)


def test_more_candidates_are_never_worse():
    gdp = policy()
    times = [Simulator()(GRAPH, CLUSTER, placer(gdp, num_samples=count)(GRAPH, CLUSTER)).step_time_s for count in (1, 2, 8, 64)]
    assert times == sorted(times, reverse=True) and times[-1] < times[0]


def test_a_graph_of_more_groups_than_were_taught_is_decided_coarsely_by_every_second_candidate(monkeypatch):
    gdp, tried = policy(), []

    class Seen(Counting):
        def batch(self, graph: Graph, cluster: Cluster, device: np.ndarray) -> MeasurementBatch:
            tried.append(device.copy())
            return super().batch(graph, cluster, device)

    placer(gdp, num_samples=9, seed=3, runtime=Seen())(GRAPH, CLUSTER)
    monkeypatch.setattr("gdp.policy.placer.TAUGHT_GROUPS", coarsen(GRAPH).num_groups - 1)
    monkeypatch.setattr("gdp.policy.placer.COARSE_GROUPS", 5)
    placer(gdp, num_samples=9, seed=3, runtime=Seen())(GRAPH, CLUSTER)
    every, mixed = tried
    assert np.array_equal(mixed[::2], every[:5])
    grouping = coarsen(GRAPH, max_groups=5)
    x = featurize(GRAPH, CLUSTER, grouping, gdp.features)
    coarse = candidates(gdp, GRAPH, grouping, x, num_samples=4, generator=torch.Generator().manual_seed(3))
    assert np.array_equal(mixed[1::2], grouping.expand(coarse.numpy().astype(np.int32)))
    tried.clear()
    placer(gdp, num_samples=4, seed=3, runtime=Seen())(GRAPH, CLUSTER)
    assert np.array_equal(tried[0], mixed[:4]), "those of fewer are among those of more"
    assert np.array_equal(placer(gdp, num_samples=1)(GRAPH, CLUSTER).device, every[0])


def test_candidates_are_counted_and_seeded():
    runtime, gdp = Counting(), policy()
    placement = placer(gdp, num_samples=8, seed=3, runtime=runtime)(GRAPH, CLUSTER)
    assert runtime.asked == 8 and placement.origin.evaluations == 8 and placement.origin.seed == 3
    assert np.array_equal(placement.device, placer(gdp, num_samples=8, seed=3)(GRAPH, CLUSTER).device)


def test_candidates_begin_with_the_likeliest_and_take_the_recipes_in_turn():
    gdp, grouping = policy(), coarsen(GRAPH)
    x = featurize(GRAPH, CLUSTER, grouping, gdp.features)
    for count in (1, 2, len(RECIPES) + 1, 64):
        found = candidates(gdp, GRAPH, grouping, x, num_samples=count, generator=torch.Generator().manual_seed(0))
        assert found.shape == (count, grouping.num_groups)
        assert torch.equal(found[0], gdp.greedy(x))
    first = candidates(gdp, GRAPH, grouping, x, num_samples=2, generator=torch.Generator().manual_seed(0))[1]
    num_blocks, temperature = RECIPES[0]
    block = blocks_of_groups(GRAPH, grouping, num_blocks=num_blocks)
    seed = int(torch.randint(2**62, (len(RECIPES),), generator=torch.Generator().manual_seed(0))[0])
    noise = gumbel_noise((1, 1, num_blocks, CLUSTER.num_devices), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(first, gdp.decide(x, temperature * noise[:, :, block]).device[0, -1])
    second = candidates(gdp, GRAPH, grouping, x, num_samples=3, generator=torch.Generator().manual_seed(0))[2]
    num_blocks, temperature = RECIPES[1]
    block = blocks_of_groups(GRAPH, grouping, num_blocks=num_blocks)
    seed = int(torch.randint(2**62, (len(RECIPES),), generator=torch.Generator().manual_seed(0))[1])
    noise = gumbel_noise((1, 1, num_blocks, CLUSTER.num_devices), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(second, gdp.decide(x, temperature * noise[:, :, block], trust=LITTLE_TRUST).device[0, -1])


def test_with_more_candidates_those_of_fewer_are_among_them():
    gdp, grouping = policy(), coarsen(GRAPH)
    x = featurize(GRAPH, CLUSTER, grouping, gdp.features)
    few, many = (
        {tuple(row) for row in candidates(gdp, GRAPH, grouping, x, num_samples=count, generator=torch.Generator().manual_seed(5)).tolist()}
        for count in (14, 64)
    )
    assert few < many


@pytest.mark.parametrize("max_groups", [None, 12])
@pytest.mark.parametrize("num_blocks", [2, 5, 1000])
def test_blocks_are_the_graphs_own_coarser_groups(num_blocks, max_groups):
    grouping = coarsen(GRAPH, max_groups=max_groups)
    block = blocks_of_groups(GRAPH, grouping, num_blocks=num_blocks).numpy()
    assert len(block) == grouping.num_groups
    assert sorted(set(block.tolist())) == list(range(min(num_blocks, grouping.num_groups)))
    if max_groups is None:
        of_op = coarsen(GRAPH, max_groups=num_blocks).group_of_op
        assert len(set(zip(block[grouping.group_of_op].tolist(), of_op.tolist(), strict=True))) == len(set(of_op.tolist()))


def test_colocation_groups_stay_together():
    group = np.full(GRAPH.num_ops, Graph.NO_GROUP, np.int32)
    group[[0, 13, 31]], group[[5, 6]] = 0, 1
    together = dataclasses.replace(GRAPH, colocation_group=group)
    device = placer(policy(), num_samples=16)(together, CLUSTER).device
    assert len(set(device[[0, 13, 31]])) == len(set(device[[5, 6]])) == 1


def test_nothing_that_can_run_is_no_exception():
    placement = placer(policy(), num_samples=4)(dataclasses.replace(GRAPH, param_bytes=np.full(GRAPH.num_ops, 2**40)), CLUSTER)
    assert len(placement.device) == GRAPH.num_ops


def test_no_candidates_are_refused():
    with pytest.raises(InputError, match="at least 1"):
        placer(policy(), num_samples=0)
