"""Models that `benchmarks/gpu.py` places, each as (module, example inputs); the small ones are for machines without a GPU."""

import torch
from real_models import initialised
from torch import nn

from gdp.workloads.torch_modules import Transformer, residual_network


def mixture_of_experts() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """6 layers of width 1 024 with 8 experts each, 1.8 GB of parameters; 8 texts of 128 tokens."""
    return _language(num_layers=6, width=1024, num_experts=8, vocabulary=32_000, length=128)


def vision() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A residual network of 34 layers four times as wide as usual, 1.4 GB of parameters; 8 images of 224 x 224."""
    return _images((3, 4, 6, 3), width=256, size=224)


def small_mixture_of_experts() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """2 layers of width 256 with 8 experts each."""
    return _language(num_layers=2, width=256, num_experts=8, vocabulary=1000, length=64)


def small_vision() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A residual network of 18 layers."""
    return _images((2, 2, 2, 2), width=48, size=112)


def _language(*, num_layers: int, width: int, num_experts: int, vocabulary: int, length: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    module = Transformer(num_layers, width, width // 64, vocabulary, length, causal=True, num_experts=num_experts)
    tokens = torch.randint(0, vocabulary, (8, length), generator=torch.Generator().manual_seed(1))
    return initialised(module).eval(), (tokens,)


def _images(depths: tuple[int, ...], *, width: int, size: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    images = torch.randn((8, 3, size, size), generator=torch.Generator().manual_seed(1))
    return initialised(residual_network(depths, width)).eval(), (images,)
