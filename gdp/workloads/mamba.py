"""Mamba (Gu and Dao, arXiv 2312.00752) of 130 million parameters at its published size, by the module of transformers with the mixer written anew.

The published module scans the sequence in a kernel of its own, or token by token. Here the scan is the parallel one that the paper names (section 3.3.2; Blelloch, 1990), in
plain ops: linear work, and a logarithmic number of ops. Results are those of the published module. Unlike the paper's kernel it keeps the states for the backward pass.

Sequences of 512 tokens (the paper trains on 2 048) and batch size are ours.
"""

import torch
from torch import nn
from torch.nn import functional as F

from gdp.errors import InputError
from gdp.workloads.torch_step import Example, token_loss
from gdp.workloads.transformers_modules import Logits


def linear_scan(decay: torch.Tensor, update: torch.Tensor) -> torch.Tensor:
    """`h[t] = decay[t] * h[t - 1] + update[t]` from zero, along dimension 1 of `[batch, length, width, state]` tensors; the length is a power of two.

    Pairs of steps are joined to one, the half as long sequence is scanned, and the steps between are filled in.
    """
    if update.shape[1] == 1:
        return update
    decay_even, decay_odd = decay.unflatten(1, (-1, 2)).unbind(2)  # type: ignore[no-untyped-call]
    update_even, update_odd = update.unflatten(1, (-1, 2)).unbind(2)  # type: ignore[no-untyped-call]
    odd = linear_scan(decay_odd * decay_even, torch.addcmul(update_odd, decay_odd, update_even))
    before_even = F.pad(odd, (0, 0, 0, 0, 1, -1))
    even = torch.addcmul(update_even, decay_even, before_even)
    return torch.stack([even, odd], dim=2).flatten(1, 2)


class Mixer(nn.Module):
    """The selective state space layer (sections 3.2 to 3.4, algorithm 2); parameters have the names that transformers gives them."""

    def __init__(self, width: int, inner: int, state: int, rank: int, kernel: int) -> None:
        super().__init__()
        self.rank, self.state = rank, state
        self.in_proj = nn.Linear(width, 2 * inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, kernel, groups=inner, padding=kernel - 1)
        self.x_proj = nn.Linear(inner, rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, state))
        self.D = nn.Parameter(torch.empty(inner))
        self.out_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: torch.Tensor, cache_params: object = None, attention_mask: None = None) -> torch.Tensor:
        """`[batch, length, width]` in and out; of whole sequences: a cache is neither read nor filled."""
        length = x.shape[1]
        if length & (length - 1):
            raise InputError(f"a sequence of {length} tokens cannot be scanned in pairs; give it a length that is a power of two")
        hidden, gate = self.in_proj(x).chunk(2, dim=-1)
        hidden = F.silu(self.conv1d(hidden.transpose(1, 2))[..., :length]).transpose(1, 2)
        low, into, out_of = self.x_proj(hidden).split([self.rank, self.state, self.state], dim=-1)
        step = F.softplus(self.dt_proj(low))
        decay = torch.exp(step[..., None] * -torch.exp(self.A_log))
        update = (step * hidden)[..., None] * into[:, :, None]
        states = linear_scan(decay, update)
        seen = (states @ out_of[..., None])[..., 0] + self.D * hidden
        return self.out_proj(seen * F.silu(gate))  # type: ignore[no-any-return]


def with_parallel_scan(model: nn.Module) -> nn.Module:
    """A `MambaForCausalLM` with its mixers replaced by `Mixer`s of the same sizes; returns the model."""
    for layer in model.backbone.layers:  # type: ignore[union-attr]
        old = layer.mixer
        sizes = (old.hidden_size, old.intermediate_size, old.ssm_state_size, old.time_step_rank, old.conv_kernel_size)
        layer.mixer = Mixer(*sizes)
    return model


def mamba_130m(*, batch_size: int) -> Example:
    """Mamba of 24 layers of 768; the output layer is the token embedding."""
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(hidden_size=768, num_hidden_layers=24, vocab_size=50_280)
    model = with_parallel_scan(MambaForCausalLM(config))
    tokens = torch.empty(batch_size, 512, dtype=torch.int64)
    return Example(module=Logits(model, names=("input_ids",), caches=True), inputs=(tokens,), targets=(tokens,), loss=token_loss)
