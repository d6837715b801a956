"""Dense layers and embeddings whose first values come from an explicit generator; on the meta device they have shapes and no values."""

import math

import torch
from torch import nn


def dense(inputs: int, outputs: int, *, generator: torch.Generator, bias: bool = True) -> nn.Linear:
    """A linear layer, uniform within `sqrt(3 / inputs)` (variance kept: LeCun et al., Efficient BackProp, 1998), bias zero."""
    layer = nn.Linear(inputs, outputs, bias=bias, device="meta")
    if _shapes_alone():
        return layer
    layer = layer.to_empty(device="cpu")
    bound = math.sqrt(3 / inputs)
    nn.init.uniform_(layer.weight, -bound, bound, generator=generator)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def zero_dense(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer that starts as zero."""
    layer = nn.Linear(inputs, outputs, device="meta")
    if _shapes_alone():
        return layer
    layer = layer.to_empty(device="cpu")
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def embedding(count: int, size: int, *, generator: torch.Generator) -> nn.Embedding:
    """An embedding table with entries of standard deviation 1."""
    table = nn.Embedding(count, size, device="meta")
    if _shapes_alone():
        return table
    table = table.to_empty(device="cpu")
    nn.init.normal_(table.weight, generator=generator)
    return table


def _shapes_alone() -> bool:
    return bool(torch.get_default_device().type == "meta")
