"""Logits of (group, device) pairs, so that one checkpoint serves any number of devices, equal or not.

The hidden layer of a pair adds what is known of the group (the decoder's output), of the device (its features and a slot embedding, which tells equal devices
apart), of the two together, of the placement so far (`feedback`), and, when groups are placed one after another, of the schedule so far (`schedule`):

    logit = w . relu(A group + B device + C pair + D feedback + E schedule) + s . schedule

`A`, `E` and `w` are gated by the graph's context. The skip weights `s` start with `finish_prior` on the estimated finish and `transfer_prior` on the transfers
caused, so that an untrained policy already prefers the device on which a group can end first, and its neighbours.
"""

import torch
from jaxtyping import Float32
from torch import Tensor, nn

from gdp.features.config import DEVICE_FEATURES, PAIR_FEATURES
from gdp.features.graph_tensors import GraphTensors
from gdp.policy.feedback import FEEDBACK_FEATURES
from gdp.policy.initialise import dense, embedding
from gdp.policy.schedule_features import SCHEDULE_FEATURES
from gdp.policy.superposition import SuperposedDense


class DeviceEmbedding(nn.Module):
    """What a device is, and which slot it has."""

    def __init__(self, outputs: int, *, max_devices: int, generator: torch.Generator) -> None:
        super().__init__()
        self.describe = dense(len(DEVICE_FEATURES), outputs, generator=generator)
        self.slot = embedding(max_devices, outputs, generator=generator)

    def forward(self, x: GraphTensors) -> Float32[Tensor, "devices outputs"]:
        out: Tensor = self.describe(x.device) + self.slot(x.slot)
        return out


class PairHead(nn.Module):
    """The scorer of (group, device) pairs."""

    def __init__(
        self, *, hidden: int, width: int, context: int | None, finish_prior: float, transfer_prior: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.group = SuperposedDense(hidden, width, context=context, generator=generator)
        self.device = dense(width, width, generator=generator)
        self.pair = dense(len(PAIR_FEATURES), width, generator=generator, bias=False)
        self.feedback = dense(len(FEEDBACK_FEATURES), width, generator=generator, bias=False)
        self.schedule = SuperposedDense(len(SCHEDULE_FEATURES), width, context=context, generator=generator, bias=False)
        self.score = SuperposedDense(width, 1, context=context, generator=generator, bias=False)
        self._prior = torch.zeros(len(SCHEDULE_FEATURES))
        self._prior[SCHEDULE_FEATURES.index("finish_gap")] = -finish_prior
        self._prior[SCHEDULE_FEATURES.index("transfer_gap")] = -transfer_prior
        self.skip = nn.Parameter(self._prior.clone())
        with torch.no_grad():
            self.score.dense.weight.mul_(0.1)

    def hidden(
        self,
        decoded: Float32[Tensor, "batch groups hidden"],
        device: Float32[Tensor, "devices width"],
        x: GraphTensors,
        feedback: Float32[Tensor, "batch groups devices feedback_features"] | None,
        context: Float32[Tensor, " context"],
    ) -> Float32[Tensor, "batch groups devices width"]:
        """The hidden layer before the rectifier, without the schedule's part."""
        out: Tensor = self.group(decoded, context)[:, :, None] + self.device(device) + self.pair(x.pair)
        return out if feedback is None else out + self.feedback(feedback)

    def logits(
        self,
        hidden: Float32[Tensor, "#batch groups devices width"],
        schedule: Float32[Tensor, "#batch groups devices schedule_features"] | None,
        context: Float32[Tensor, " context"],
    ) -> Float32[Tensor, "#batch groups devices"]:
        """Scores; `schedule` is None when groups are placed independently of each other. A hidden layer of batch 1 serves a schedule of any."""
        if schedule is None:
            out: Tensor = self.score(torch.relu(hidden), context)[..., 0]
        else:
            out = self.score(torch.relu(hidden + self.schedule(schedule, context)), context)[..., 0] + schedule @ self.skip
        return out

    def walk_weights(
        self, context: Float32[Tensor, " context"], *, trust: float
    ) -> tuple[Float32[Tensor, "schedule_features width"], Float32[Tensor, " schedule_features"], Float32[Tensor, " width"]]:
        """`E`, `s` and `w` with their gates multiplied in, as `gdp.policy.schedule.walk` takes them; `trust` is the share of what was learned that counts, beside the priors."""
        weight = (self.schedule.dense.weight * self.schedule.gates(context)).T
        prior = self._prior.to(self.skip.device)
        return weight.contiguous(), torch.lerp(prior, self.skip, trust), trust * self.score.dense.weight[0] * self.score.gates(context)
