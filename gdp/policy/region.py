"""A region of a placement decided anew, everything else held: the policy's part in a search over large neighbourhoods (Shaw, CP 1998)."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float32, Int64

from gdp.errors import InputError
from gdp.features.graph_tensors import GraphTensors
from gdp.policy.group_flow import group_flow
from gdp.policy.policy import Policy
from gdp.policy.schedule import Decisions, walk

_COLDEST, _HOTTEST = 0.1, 0.9


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RegionDecision:
    """What a policy decided of a region."""

    device: Int64[np.ndarray, " groups"]
    free: Bool[np.ndarray, " groups"]
    log_prob: Float32[np.ndarray, " groups"]
    """under the policy at temperature 1, whatever it was drawn at; 0 for what was held."""


class RegionDecoder:
    """A policy on one graph, which it encodes once; a `gdp.baselines.region_moves.Redecide`."""

    last: RegionDecision
    """the latest decision."""

    def __init__(self, policy: Policy, x: GraphTensors) -> None:
        if not policy.can_hold:
            raise InputError("the policy cannot decide a region while the rest is held: it needs sequential decoding in one pass")
        self._x, self._groups, self._scorer = x, group_flow(x), policy.scorer(x)

    def __call__(
        self, device: Int64[np.ndarray, " groups"], free: Bool[np.ndarray, " groups"], generator: np.random.Generator
    ) -> Int64[np.ndarray, " groups"]:
        """The placement with the `free` groups drawn anew, at a temperature of its own; the generator is consumed."""
        temperature = generator.uniform(_COLDEST, _HOTTEST)
        noise = np.zeros((1, len(device), self._x.num_devices), np.float32)
        noise[0, free] = temperature * generator.gumbel(size=(int(free.sum()), self._x.num_devices))
        decided = Decisions(
            follow=False,
            caution=np.ones(1, np.float32),
            held=~free[None],
            noise=noise,
            device=device[None].copy(),
            log_prob=np.zeros((1, len(device)), np.float32),
            features=np.zeros((0, 0, 0, 0), np.float32),
            possible=np.zeros((0, 0, 0), np.bool_),
        )
        walk(self._x.ops, self._groups, self._scorer, decided, program_order=bool(self._x.program_order), num_threads=1)
        self.last = RegionDecision(device=decided.device[0], free=free, log_prob=decided.log_prob[0])
        return self.last.device
