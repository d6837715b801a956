"""Feature conditioning: `x' = g(c(x0) * x)` for every dense layer `g` after the encoder (GDP, arXiv 1910.01578, section 3.4).

Deviation: the paper builds `c` from one more transformer layer. Here the graph is summarised once, by pooling its group embeddings, and each dense
layer has its own gate `c = 2 sigmoid(W context + b)`, which starts at exactly 1: an untrained gate changes nothing.
"""

import torch
from jaxtyping import Float32
from torch import Tensor, nn

from gdp.policy.initialise import dense, zero_dense


class Conditioner(nn.Module):
    """Summarises a graph on a cluster: mean and maximum of its group embeddings, and the features of the whole -> context."""

    def __init__(self, hidden: int, context_features: int, outputs: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.summarise = dense(2 * hidden + context_features, outputs, generator=generator)

    def forward(self, embedded: Float32[Tensor, "groups hidden"], context: Float32[Tensor, " features"]) -> Float32[Tensor, " context"]:
        pooled = torch.cat([embedded.mean(dim=0), embedded.amax(dim=0), context])
        return torch.tanh(self.summarise(pooled))


class SuperposedDense(nn.Module):
    """A dense layer whose inputs are gated by the graph's context; a plain one when it has no gate."""

    def __init__(self, inputs: int, outputs: int, *, context: int | None, generator: torch.Generator | None, bias: bool = True) -> None:
        """Without a generator the layer starts as zero."""
        super().__init__()
        assert generator is not None or bias
        self.dense = zero_dense(inputs, outputs) if generator is None else dense(inputs, outputs, generator=generator, bias=bias)
        self.gate = None if context is None else zero_dense(context, inputs)

    def forward(self, x: Float32[Tensor, "*batch inputs"], context: Float32[Tensor, " context"]) -> Float32[Tensor, "*batch outputs"]:
        out: Tensor = self.dense(x if self.gate is None else x * self.gates(context))
        return out

    def gates(self, context: Float32[Tensor, " context"]) -> Float32[Tensor, " inputs"]:
        """`c(x0)`: 1 leaves an input as it is."""
        if self.gate is None:
            return torch.ones(self.dense.in_features, device=context.device)
        return 2 * torch.sigmoid(self.gate(context))
