"""The GDP policy (arXiv 1910.01578) over (group, device) pairs: a graph's groups in, a device for each out, in one or more passes.

Deviations from the paper: any number of devices; several passes, each seeing the placement of the one before (GO's recurrent attention, arXiv 2010.12438,
with parameters shared between passes); within a pass, by choice, groups are placed one after another (`gdp.policy.schedule`). docs/policy.md
says what each is worth. Legend: B placements, N groups, D devices.
"""

import dataclasses

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from gdp.errors import InputError
from gdp.features.config import CONTEXT_FEATURES, FeatureConfig
from gdp.features.graph_tensors import GraphTensors
from gdp.policy.config import PolicyConfig
from gdp.policy.decoder import Decoder
from gdp.policy.encoder import Encoder
from gdp.policy.feedback import FEEDBACK_FEATURES, feedback
from gdp.policy.group_flow import as_numpy, group_flow
from gdp.policy.heads import DeviceEmbedding, PairHead
from gdp.policy.initialise import zero_dense
from gdp.policy.judge import JudgeNetwork
from gdp.policy.schedule import Decisions as WalkDecisions
from gdp.policy.schedule import Scorer, free_decisions, walk
from gdp.policy.schedule_features import SCHEDULE_FEATURES
from gdp.policy.superposition import Conditioner

_MASKED = -1e9
"""The logit of a device that is ruled out: its probability is exactly 0, its log-probability finite."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Decisions:
    """Sampled placements with every pass's decisions; the placement is the last pass."""

    device: Int64[Tensor, "samples passes groups"]
    log_prob: Float32[Tensor, "samples passes groups"]
    """of each decision, under the policy itself: at temperature 1, whatever it was sampled at."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Encoded:
    x: GraphTensors
    """where the parameters are."""
    embedded: Tensor
    context: Tensor
    device: Tensor


class Policy(nn.Module):
    """Maps a graph on a cluster to distributions over devices, one per group and pass. Deterministic on a CPU, given the generators.

    What is given and what is returned lies on the CPU, wherever the parameters are: placements are walked through and simulated there.
    """

    def __init__(self, config: PolicyConfig, features: FeatureConfig, *, generator: torch.Generator) -> None:
        super().__init__()
        self.config, self.features = config, features
        context = config.context if config.superposition else None
        self.encoder = Encoder(
            features, hidden=config.hidden, type_embedding=config.type_embedding, layers=config.sage_layers, generator=generator
        )
        self.conditioner = None if context is None else Conditioner(config.hidden, len(CONTEXT_FEATURES), context, generator=generator)
        self.decoder = Decoder(
            hidden=config.hidden,
            layers=config.attention_layers,
            heads=config.heads,
            feed_forward=config.feed_forward,
            segment=config.segment,
            context=context,
            generator=generator,
        )
        self.device = DeviceEmbedding(config.head_width, max_devices=config.max_devices, generator=generator)
        self.head = PairHead(
            hidden=config.hidden,
            width=config.head_width,
            context=context,
            finish_prior=config.finish_prior,
            transfer_prior=config.transfer_prior,
            generator=generator,
        )
        self.revise = zero_dense(config.head_width + len(FEEDBACK_FEATURES), config.hidden)
        self.judge = JudgeNetwork(config.judge_width, generator=generator) if config.judge_width else None

    @torch.no_grad()
    def sample(self, x: GraphTensors, *, num_samples: int, temperature: float, generator: torch.Generator) -> Decisions:
        """Draws `num_samples` placements; the generator lies on the CPU. A temperature above 1 flattens the distributions, below 1 sharpens them."""
        if not 0 < temperature < float("inf") or num_samples < 1:
            raise InputError(f"sampling needs a positive temperature and at least one sample, not {temperature} and {num_samples}")
        shape = (num_samples, self.config.passes, x.num_groups, x.num_devices)
        return self.decide(x, temperature * gumbel_noise(shape, generator=generator))

    @torch.no_grad()
    def greedy(self, x: GraphTensors) -> Int64[Tensor, " groups"]:
        """The likeliest device of every group, given the likeliest of those before."""
        return self.decide(x, torch.zeros(1, self.config.passes, x.num_groups, x.num_devices)).device[0, -1]

    @torch.no_grad()
    def decide(
        self,
        x: GraphTensors,
        noise: Float32[Tensor, "samples passes groups devices"],
        *,
        trust: float = 1.0,
        caution: Float32[Tensor, " samples"] | None = None,
    ) -> Decisions:
        """Placements that give each group the device of the largest logit with the noise added: standard Gumbel noise times a temperature draws at that temperature.

        The graph is encoded once, however many placements there are. With less `trust`, down to 0, less of what was learned counts beside the priors; independent
        decisions have none. Log-probabilities are of the policy so trusted. With more `caution` than 1 devices are left earlier as their memory fills (`gdp.policy.live_memory`),
        which independent decisions do not see.
        """
        encoded = self._encode(x)
        devices: list[Tensor] = []
        log_probs: list[Tensor] = []
        for number in range(self.config.passes):
            hidden = self._hidden(encoded, devices[-1] if devices else None)
            if self.config.decoding == "sequential":
                decisions = free_decisions(
                    as_numpy(noise[:, number]), caution=as_numpy(torch.ones(len(noise)) if caution is None else caution)
                )
                walk(
                    x.ops,
                    group_flow(x),
                    self._scorer(hidden, encoded, trust=trust),
                    decisions,
                    program_order=bool(x.program_order),
                    num_threads=torch.get_num_threads(),
                )
                device, log_prob = torch.from_numpy(decisions.device), torch.from_numpy(decisions.log_prob)
            else:
                logits = torch.where(x.allowed, trust * self.head.logits(hidden, None, encoded.context).cpu(), _MASKED)
                device = (logits + noise[:, number]).argmax(dim=-1)
                log_prob = log_softmax(logits, dim=-1).expand(len(device), -1, -1).gather(-1, device[..., None])[..., 0]
            devices.append(device)
            log_probs.append(log_prob)
        return Decisions(device=torch.stack(devices, dim=1), log_prob=torch.stack(log_probs, dim=1))

    def evaluate(
        self, x: GraphTensors, device: Int64[Tensor, "samples passes groups"], *, held: Bool[Tensor, "samples groups"] | None = None
    ) -> tuple[Float32[Tensor, "samples passes groups"], Float32[Tensor, "samples passes groups"]]:
        """Log-probabilities of given decisions and the entropies of the distributions they were drawn from, both differentiable.

        Groups that are `held` are no decisions, and their figures mean nothing; a policy of one sequential pass can hold some.
        """
        samples, passes, groups = device.shape
        assert passes == self.config.passes and groups == x.num_groups, (device.shape, self.config.passes, x.num_groups)
        assert 0 <= int(device.min()) and int(device.max()) < x.num_devices
        assert held is None or self.can_hold
        encoded = self._encode(x)
        log_probs = [self._log_probs(x, encoded, None, device[:, 0], held)]
        if passes > 1:
            revised = self._log_probs(x, encoded, device[:, :-1].reshape(-1, groups), device[:, 1:].reshape(-1, groups), None)
            log_probs.append(revised.reshape(samples, passes - 1, groups, -1))
            log_probs[0] = log_probs[0][:, None]
            log_prob = torch.cat(log_probs, dim=1)
        else:
            log_prob = log_probs[0][:, None]
        entropy = -(log_prob.exp() * log_prob).sum(dim=-1)
        return log_prob.gather(-1, device[..., None].to(log_prob.device))[..., 0].cpu(), entropy.cpu()

    @property
    def can_hold(self) -> bool:
        """Whether groups can be decided while others are held where they are."""
        return self.config.decoding == "sequential" and self.config.passes == 1

    @torch.no_grad()
    def scorer(self, x: GraphTensors) -> Scorer:
        """The first pass's head as the walk takes it: the graph is encoded once, however many placements are decided with it."""
        encoded = self._encode(x)
        return self._scorer(self._hidden(encoded, None), encoded, trust=1.0)

    def conditioning_and_heads(self) -> list[nn.Parameter]:
        """What fine-tuning on one graph moves: the gates with the summary behind them, and the head with its device embeddings."""
        chosen = ("conditioner.", "head.", "device.", "revise.")
        return [value for name, value in self.named_parameters() if name.startswith(chosen) or ".gate." in name]

    def _encode(self, x: GraphTensors) -> _Encoded:
        if x.num_devices > self.config.max_devices:
            raise InputError(
                f"the policy serves at most {self.config.max_devices} devices, but the cluster has {x.num_devices}; use a policy with a larger max_devices"
            )
        x = x.to(self.revise.weight.device)
        embedded = self.encoder(x)
        context = embedded.new_zeros(0) if self.conditioner is None else self.conditioner(embedded, x.context)
        return _Encoded(x=x, embedded=embedded, context=context, device=self.device(x))

    def _hidden(self, encoded: _Encoded, previous: Tensor | None) -> Float32[Tensor, "batch groups devices width"]:
        """The head's hidden layer, `[1, N, D, width]` in the first pass, which sees no placement."""
        x, tokens, seen = encoded.x, encoded.embedded[None], None
        if previous is not None:
            previous = previous.to(tokens.device)
            seen = feedback(x, previous)
            index = previous[:, :, None, None].expand(-1, -1, 1, seen.shape[-1])
            at_own = torch.cat([encoded.device[previous], seen.gather(2, index)[:, :, 0]], dim=-1)
            tokens = tokens + self.revise(at_own)
        hidden: Tensor = self.head.hidden(self.decoder(tokens, encoded.context), encoded.device, x, seen, encoded.context)
        return hidden

    def _log_probs(
        self, x: GraphTensors, encoded: _Encoded, previous: Tensor | None, device: Tensor, held: Tensor | None
    ) -> Float32[Tensor, "batch groups devices"]:
        """Of every device for every group, in the course of the given decisions."""
        hidden = self._hidden(encoded, previous)
        schedule, possible = None, encoded.x.allowed[None]
        if self.config.decoding == "sequential":
            schedule, possible = (part.to(hidden.device) for part in follow_schedule(x, device, held))
        logits = self.head.logits(hidden, schedule, encoded.context)
        out = log_softmax(torch.where(possible, logits, _MASKED), dim=-1)
        return out.expand(len(device), -1, -1)

    def _scorer(self, hidden: Tensor, encoded: _Encoded, *, trust: float) -> Scorer:
        return Scorer(as_numpy(hidden), *map(as_numpy, self.head.walk_weights(encoded.context, trust=trust)))


def gumbel_noise(shape: tuple[int, ...], *, generator: torch.Generator) -> Float32[Tensor, "*shape"]:
    """Standard Gumbel noise."""
    return -torch.log(-torch.log(torch.rand(shape, generator=generator).clamp(min=1e-20)))


def follow_schedule(
    x: GraphTensors, device: Int64[Tensor, "batch groups"], held: Bool[Tensor, "batch groups"] | None = None
) -> tuple[Float32[Tensor, "batch groups devices features"], Bool[Tensor, "batch groups devices"]]:
    """The schedule's features and the devices not ruled out, before each of the given decisions; zeros and every device for groups that are held."""
    shape = (*device.shape, x.num_devices)
    features, possible = np.zeros((*shape, len(SCHEDULE_FEATURES)), np.float32), np.ones(shape, np.bool_)
    decisions = WalkDecisions(
        follow=True,
        caution=np.ones(len(device), np.float32),
        held=np.zeros(device.shape, np.bool_) if held is None else as_numpy(held),
        noise=np.zeros((0, 0, 0), np.float32),
        device=as_numpy(device),
        log_prob=np.zeros((0, 0), np.float32),
        features=features,
        possible=possible,
    )
    nothing = np.zeros(0, np.float32)
    scorer = Scorer(hidden=np.zeros((0, 0, 0, 0), np.float32), weight=np.zeros((0, 0), np.float32), skip=nothing, out_weight=nothing)
    walk(x.ops, group_flow(x), scorer, decisions, program_order=bool(x.program_order), num_threads=torch.get_num_threads())
    return torch.from_numpy(features), torch.from_numpy(possible)
