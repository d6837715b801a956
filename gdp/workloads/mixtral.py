"""Mixtral 8x7B (Jiang et al., arXiv 2401.04088) at its published size, by the module of transformers with the experts written anew.

Which tokens an expert gets depends on values, so the published module loops over them, or hides all experts in one grouped product. To have ops per expert, which can be placed,
every expert here has room for a fixed number of tokens, as in GShard (Lepikhin et al., ICLR 2021, section 2.2): tokens that find it full are left out, and free room holds zeros.
Where the capacity is never exceeded, results are those of the published module.

bfloat16, sequences of 2 048 tokens, capacity factor 1.25; batch size and capacity are ours, and parameters and slots are all bfloat16. The loss that balances experts is left out.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from gdp.workloads.torch_step import Example, token_loss
from gdp.workloads.transformers_modules import Logits, unmasked_attention


class Experts(nn.Module):
    """Gated perceptrons of which every token goes through those chosen for it, by the signature of transformers."""

    def __init__(self, num_experts: int, width: int, inner: int, *, capacity_factor: float) -> None:
        super().__init__()
        self.capacity_factor = capacity_factor
        self.experts = nn.ModuleList(Expert(width, inner) for _ in range(num_experts))

    def forward(self, tokens: torch.Tensor, chosen: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """`[tokens, width]` in and out; `chosen` and `weight` are `[tokens, choices]`: the experts of a token, and how much each counts."""
        num_tokens, num_choices = chosen.shape
        num_experts = len(self.experts)
        capacity = min(num_tokens, math.ceil(self.capacity_factor * num_tokens * num_choices / num_experts))
        expert = chosen.flatten()
        place = (F.one_hot(expert, num_experts).cumsum(0) - 1).gather(1, expert[:, None])[:, 0]
        slot = torch.where(place < capacity, expert * capacity + place, num_experts * capacity)
        owner = torch.arange(num_tokens, device=tokens.device).repeat_interleave(num_choices)
        token_of_slot = torch.full_like(slot, num_tokens, dtype=torch.int64).new_full((num_experts * capacity + 1,), num_tokens)
        token_of_slot = token_of_slot.index_put((slot,), owner)[:-1].view(num_experts, capacity)
        weight_of_slot = (
            weight.new_zeros(num_experts * capacity + 1).index_put((slot,), weight.flatten())[:-1].view(num_experts, capacity, 1)
        )
        padded = F.pad(tokens, (0, 0, 0, 1))
        results = [
            one(padded.index_select(0, places)) * share
            for one, places, share in zip(self.experts, token_of_slot.unbind(), weight_of_slot.unbind(), strict=True)
        ]
        return torch.zeros_like(padded).index_add(0, token_of_slot.flatten(), torch.cat(results).to(tokens.dtype))[:-1]


class Expert(nn.Module):
    """`w2(silu(w1 x) * w3 x)`."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # type: ignore[no-any-return]


def with_placeable_experts(model: nn.Module, *, capacity_factor: float) -> nn.Module:
    """A `MixtralForCausalLM` with its experts replaced by `Experts` of the same sizes; returns the model."""
    for layer in model.model.layers:  # type: ignore[union-attr]
        old = layer.mlp.experts
        layer.mlp.experts = Experts(old.num_experts, old.hidden_dim, old.intermediate_dim, capacity_factor=capacity_factor)
    return model


def mixtral(*, batch_size: int) -> Example:
    """Mixtral of 32 layers with 8 experts each, 2 of them for a token; the sizes are the defaults of the configuration."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = MixtralConfig()
    config._attn_implementation = unmasked_attention()
    model = with_placeable_experts(MixtralForCausalLM(config), capacity_factor=1.25).bfloat16()
    tokens = torch.empty(batch_size, 2048, dtype=torch.int64)
    return Example(module=Logits(model, names=("input_ids",), caches=True), inputs=(tokens,), targets=(tokens,), loss=token_loss)
