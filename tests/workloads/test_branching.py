"""The branching network: two devices can share it evenly, and its weights are the generator's."""

from itertools import combinations

import numpy as np
import torch

from gdp.capture.coarsening import coarsen
from gdp.capture.torch import capture
from gdp.workloads.branching import BATCH_SIZE, IMAGE_SIZE, branching_network, example_inputs


def built(seed: int, *, width: int = 24) -> torch.nn.Module:
    return branching_network(torch.Generator().manual_seed(seed), num_blocks=2, width=width)


def test_the_best_split_of_every_block_is_balanced() -> None:
    network = branching_network(torch.Generator().manual_seed(0))
    graph = capture(network.to("meta"), (torch.empty(BATCH_SIZE, 3, IMAGE_SIZE, IMAGE_SIZE, device="meta"),)).graph
    path = np.array([".".join(path.split(".")[:3]) for path in graph.module_path])
    total = graph.flops.sum()
    best_half = 0.0
    for block in range(4):
        branches = [graph.flops[path == f"blocks.{block}.{branch}"].sum() for branch in ("plain", "separated", "deep", "pooled")]
        assert max(branches) < 1.4 * min(branches)
        halves = min(max(sum(pair), sum(branches) - sum(pair)) for pair in combinations(branches, 2))
        assert halves < 1.08 * sum(branches) / 2
        best_half += sum(branches) - halves
    assert total / (total - best_half) > 1.8


def test_coarsening_keeps_the_branches_of_a_block_apart() -> None:
    graph = capture(built(0), example_inputs(torch.Generator().manual_seed(0), batch_size=1)).graph
    grouping = coarsen(graph)
    assert grouping.num_groups >= 1 + 2 * (
        4 + 1
    )  # the stem; four branches and their join per block, the head with the last join; or parts of these
    for group in range(grouping.num_groups):
        branches = {path.split(".")[2] for path in np.array(graph.module_path)[grouping.group_of_op == group] if path.count(".") > 1}
        assert len(branches) <= 1


def test_weights_are_those_of_the_generator_and_keep_signals_at_their_size() -> None:
    inputs = example_inputs(torch.Generator().manual_seed(1), batch_size=1)
    state = torch.get_rng_state()
    with torch.no_grad():
        outputs = [built(seed)(*inputs) for seed in (0, 0, 1)]
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0)
    assert not torch.equal(outputs[0], outputs[2])
    assert torch.equal(torch.get_rng_state(), state)
    assert outputs[0].shape == (1, 10)
    assert 0.05 < outputs[0].std() < 20
