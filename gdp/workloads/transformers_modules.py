"""The published modules of Hugging Face transformers as plain functions of tensors.

`transformers` (extra `hf`) is needed to capture them, not to read the stored graphs. Nothing is downloaded: a configuration is code. Dropout is left out everywhere,
as a program that draws random numbers has no outputs that a measurement could check.
"""

from typing import Any

import torch
from torch import nn

UNMASKED = "gdp_unmasked"
"""Attention by `scaled_dot_product_attention` with no other mask than the causal one that the layer itself knows: sequences are full. transformers would build a mask as a tensor
while it is traced."""


def unmasked_attention() -> str:
    """The name under which transformers finds `UNMASKED` attention."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(UNMASKED, sdpa_attention_forward)
    return UNMASKED


class Logits(nn.Module):
    """A module of transformers that returns its logits alone, and where it could keep a cache (`caches`) keeps none."""

    def __init__(self, model: Any, *, names: tuple[str, ...], caches: bool) -> None:
        """`names` are the arguments that the inputs are given as, in order."""
        super().__init__()
        self.model, self.names, self.caches = model, names, caches

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        settings = {"use_cache": False} if self.caches else {}
        return self.model(**dict(zip(self.names, inputs, strict=True)), **settings).logits  # type: ignore[no-any-return]
