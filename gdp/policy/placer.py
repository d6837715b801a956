"""A policy as a placer: one pass, or the best of a few simulated samples."""

import dataclasses

import numpy as np
import torch
from jaxtyping import Int32, Int64

from gdp.capture.coarsening import Grouping, coarsen
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.features.featurize import featurize
from gdp.features.graph_tensors import GraphTensors
from gdp.graph import Graph
from gdp.measurement import Objective, Runtime
from gdp.placement import Origin, Placement
from gdp.policy.policy import Policy, gumbel_noise
from gdp.runtime.verdict import Dispatch

RECIPES: tuple[tuple[int | None, float], ...] = (
    (8, 0.5),
    (8, 1.0),
    (2, 2.0),
    (32, 0.5),
    (None, 0.5),
    (2, 1.0),
    (32, 1.0),
    (8, 2.0),
    (2, 0.5),
    (None, 0.25),
)
"""How samples are drawn, in turn: in how many blocks groups share their noise (`None`: each has its own), and at what temperature. Noise of its own for every group cuts a
program to pieces that pay for it in transfers; noise that a whole branch or layer shares yields placements that differ in what matters (docs/experiments.md)."""


LITTLE_TRUST = 0.25
"""Of every third sample, in what the policy learned: where no training task was alike, its priors alone, noisy list scheduling, are the better guess."""


CAUTION = 2.0
"""Of every second sample, with memory that fills: what later ops will need is not known yet. Where memory is ample it changes nothing."""


TAUGHT_GROUPS = 4096
"""The most decisions that the published policies were taught to make (`workload.max_groups` of their training); other policies are sampled alike."""
COARSE_GROUPS = 64
"""Decisions of every second sample of a graph with more: whole layers go together, which samples decided op by op cut to pieces (docs/experiments.md)."""


def candidates(
    policy: Policy, graph: Graph, grouping: Grouping, x: GraphTensors, *, num_samples: int, generator: torch.Generator
) -> Int64[torch.Tensor, "samples groups"]:
    """`num_samples` placements of the groups: the likeliest one first, then samples drawn by `RECIPES` in turn, every third with `LITTLE_TRUST`, every second
    with `CAUTION`.

    With more samples, those of fewer are among them.
    """
    seeds = torch.randint(2**62, (len(RECIPES),), generator=generator).tolist()
    noise = torch.zeros(num_samples, policy.config.passes, x.num_groups, x.num_devices)
    for number, (num_blocks, temperature) in enumerate(RECIPES):
        rows = torch.arange(num_samples)[1 + number :: len(RECIPES)]
        if len(rows):
            own = torch.Generator().manual_seed(seeds[number])
            block = torch.arange(x.num_groups) if num_blocks is None else blocks_of_groups(graph, grouping, num_blocks=num_blocks)
            shape = (len(rows), policy.config.passes, int(block.max()) + 1, x.num_devices)
            noise[rows] = temperature * gumbel_noise(shape, generator=own)[:, :, block]
    decided = torch.empty(num_samples, x.num_groups, dtype=torch.int64)
    caution = torch.where(torch.arange(num_samples) % 2 == 1, CAUTION, 1.0)
    distrusted = torch.arange(num_samples) % 3 == 2
    for rows, trust in ((~distrusted, 1.0), (distrusted, LITTLE_TRUST)):
        if rows.any():
            decided[rows] = policy.decide(x, noise[rows], trust=trust, caution=caution[rows]).device[:, -1]
    return decided


def blocks_of_groups(graph: Graph, grouping: Grouping, *, num_blocks: int) -> Int64[torch.Tensor, " groups"]:
    """The block of each group when the graph is coarsened to at most `num_blocks`: that of the group's first op."""
    _, first_op = np.unique(grouping.group_of_op, return_index=True)
    block = coarsen(graph, max_groups=num_blocks).group_of_op[first_op]
    return torch.from_numpy(np.unique(block, return_inverse=True)[1])


@dataclasses.dataclass(frozen=True, eq=False)
class PolicyPlacer:
    """Places with a policy: the likeliest placement, and, when `num_samples` is above 1, the best of `num_samples`, the likeliest among them."""

    policy: Policy
    _: dataclasses.KW_ONLY
    runtime: Runtime
    """judges the candidates in one batch; with a single one it is not called."""
    num_samples: int
    """candidates: the likeliest placement first, then samples."""
    seed: int
    """of the samples; without them nothing is random."""
    objective: Objective
    dispatch: Dispatch = "ready_order"
    """how the devices choose what to run, which the policy sees."""
    name: str
    """of the policy, for `Origin`."""
    revision: str | None
    """of the policy, for `Origin`."""

    def __post_init__(self) -> None:
        if self.num_samples < 1:
            raise InputError(
                f"num_samples of the policy is {self.num_samples}; it must be at least 1, which is the likeliest placement alone"
            )

    def __call__(self, graph: Graph, cluster: Cluster) -> Placement:
        """The best candidate; the first of equals, the likeliest one when none can run. Colocation groups stay together.

        Of a graph with more than `TAUGHT_GROUPS` groups, every second candidate decides `COARSE_GROUPS`.
        """
        grouping, best = coarsen(graph), 0
        if grouping.num_groups > TAUGHT_GROUPS and self.num_samples > 1:
            device = np.empty((self.num_samples, graph.num_ops), np.int32)
            device[::2] = self._sampled(graph, cluster, grouping, count=len(device[::2]))
            device[1::2] = self._sampled(graph, cluster, coarsen(graph, max_groups=COARSE_GROUPS), count=len(device[1::2]))
        else:
            device = self._sampled(graph, cluster, grouping, count=self.num_samples)
        if self.num_samples > 1:
            best = int(np.argmin(self.runtime.batch(graph, cluster, device).objective_s(self.objective)))
        origin = Origin(
            placer="gdp",
            policy=self.name,
            revision=self.revision,
            seed=self.seed if self.num_samples > 1 else None,
            evaluations=self.num_samples if self.num_samples > 1 else 0,
        )
        return Placement(device=device[best].copy(), origin=origin)

    def _sampled(self, graph: Graph, cluster: Cluster, grouping: Grouping, *, count: int) -> Int32[np.ndarray, "samples ops"]:
        x = featurize(graph, cluster, grouping, self.policy.features, dispatch=self.dispatch)
        generator = torch.Generator().manual_seed(self.seed)
        decided = candidates(self.policy, graph, grouping, x, num_samples=count, generator=generator)
        return grouping.expand(decided.numpy().astype(np.int32))
