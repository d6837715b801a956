"""A network that judges changes of a placement before they are tried, from what they would do to the present step (`gdp.features.move_features`).

It tells how likely a change makes the step shorter, and by how much when it does; of several, search tries the one with the highest product. A change is judged among its
rivals: beside its own features the network sees their mean. Placeto (arXiv 1906.08879) also improves a placement move by move with a learned policy, but visits the groups in a
fixed order and looks at the graph; here moves come from a search, and what is looked at is the schedule.
"""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int32
from torch import Tensor, nn

from gdp.capture.coarsening import Grouping
from gdp.cluster import Cluster
from gdp.features.move_features import MOVE_FEATURES, move_features
from gdp.features.op_flow import op_flow
from gdp.features.step_slack import Step, step_of
from gdp.graph import Graph
from gdp.measurement import Timeline
from gdp.policy.initialise import dense
from gdp.runtime.roofline import op_time_s

_MOST = 5.0
"""Standard deviations: what lies further from the mean of the training data is taken to lie there."""


class JudgeNetwork(nn.Module):
    """Two hidden layers over standardised features."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, *, generator: torch.Generator) -> None:
        super().__init__()
        inputs = 2 * len(MOVE_FEATURES)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))
        self.first = dense(inputs, width, generator=generator)
        self.second = dense(width, width, generator=generator)
        self.out = dense(width, 2, generator=generator)

    def forward(self, x: Float32[Tensor, "moves inputs"]) -> tuple[Float32[Tensor, " moves"], Float32[Tensor, " moves"]]:
        """The logit of getting better, and the logarithm of the relative gain where a change does."""
        x = ((x - self.mean) / self.deviation).clamp(-_MOST, _MOST)
        x = nn.functional.silu(self.second(nn.functional.silu(self.first(x))))
        better, log_gain = self.out(x).unbind(dim=-1)
        return better, log_gain

    @torch.no_grad()
    def log_promise(self, x: Float32[Tensor, "moves inputs"]) -> Float32[Tensor, " moves"]:
        """Logarithm of the probability of getting better times the gain to be expected then."""
        better, log_gain = self(x)
        promise: Tensor = nn.functional.logsigmoid(better) + log_gain
        return promise


def among_rivals(features: Float32[np.ndarray, "moves features"]) -> Float32[np.ndarray, "moves inputs"]:
    """The network's inputs for moves of which one is to be chosen."""
    return np.concatenate([features, np.broadcast_to(features.mean(axis=0), features.shape)], axis=1)


class StepView:
    """What is seen of changes on one graph and cluster."""

    def __init__(self, graph: Graph, cluster: Cluster) -> None:
        alone = Grouping(group_of_op=np.arange(graph.num_ops, dtype=np.int32), num_groups=graph.num_ops)
        self._flow = op_flow(graph, cluster, alone, op_s=op_time_s(graph, cluster), unit_s=1.0)
        self._step: Step | None = None

    def see(self, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> None:
        """Takes a placement as the present one."""
        self._step = step_of(self._flow, device, timeline)

    @property
    def step_s(self) -> float:
        """Time of the present step."""
        assert self._step is not None
        return self._step.step_s

    def features(
        self, candidates: Int32[np.ndarray, "candidates ops"], removes_wait: Bool[np.ndarray, " candidates"]
    ) -> Float32[np.ndarray, "candidates features"]:
        """`move_features` of changes of the present placement."""
        assert self._step is not None
        return move_features(self._flow, self._step, candidates, removes_wait)


class GraphJudge:
    """A network as the `gdp.baselines.move_judge.MoveJudge` of one graph on one cluster."""

    def __init__(self, network: JudgeNetwork, graph: Graph, cluster: Cluster) -> None:
        self._network, self._view = network, StepView(graph, cluster)

    def see(self, device: Int32[np.ndarray, " ops"], timeline: Timeline) -> None:
        """Takes a placement as the present one."""
        self._view.see(device, timeline)

    def choose(self, candidates: Int32[np.ndarray, "candidates ops"], removes_wait: Bool[np.ndarray, " candidates"]) -> int:
        """The candidate of the highest promise, the first of equals."""
        inputs = torch.from_numpy(among_rivals(self._view.features(candidates, removes_wait)))
        return int(self._network.log_promise(inputs.to(self._network.mean.device)).argmax())


def judge_maker(network: JudgeNetwork | None) -> Callable[[Graph, Cluster], GraphJudge] | None:
    """What a search makes its judge with; `None` for a policy without one."""
    return None if network is None else lambda graph, cluster: GraphJudge(network, graph, cluster)
