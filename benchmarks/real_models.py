"""The PyTorch models that the benchmarks of real timing run: steps of some tens of milliseconds on one core."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gdp.capture.torch import Captured, capture
from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.workloads.branching import branching_network, example_inputs
from gdp.workloads.torch_modules import Transformer, TwoUNets, UnrolledLSTM, residual_network


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class RealModel:
    """A module with its inputs, captured, and the same step as PyTorch users write it."""

    name: str
    branches: bool
    """whether parts of it can run side by side; a chain is best off on one device."""
    captured: Captured
    inputs: tuple[Any, ...]
    """what the captured program takes."""
    plain_step: Callable[[], object]


def inference(name: str, module: nn.Module, inputs: tuple[torch.Tensor, ...], *, branches: bool) -> RealModel:
    """A forward step in evaluation mode."""
    module.eval()
    return RealModel(
        name=name,
        branches=branches,
        captured=capture(module, inputs),
        inputs=inputs,
        plain_step=torch.inference_mode()(lambda: module(*inputs)),
    )


def training(
    name: str,
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    targets: tuple[torch.Tensor, ...],
    loss: Callable[..., torch.Tensor],
    *,
    branches: bool,
) -> RealModel:
    """Forward, backward and an update by SGD with momentum."""
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-6, momentum=0.9)
    step = TrainingStep(module=module.train(), inputs=inputs, targets=targets, loss=loss, optimizer=optimizer)

    def plain_step() -> None:
        optimizer.zero_grad()
        loss(module(*inputs), *targets).backward()
        optimizer.step()

    return RealModel(name=name, branches=branches, captured=capture_training(step), inputs=(inputs, targets), plain_step=plain_step)


def real_models() -> dict[str, Callable[[], RealModel]]:
    """Builders by name, the same weights and inputs every time."""

    def images(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=torch.Generator().manual_seed(1))

    def tokens(*shape: int) -> torch.Tensor:
        return torch.randint(0, 1000, shape, generator=torch.Generator().manual_seed(1))

    return {
        "branching network": lambda: inference(
            "branching network",
            branching_network(torch.Generator().manual_seed(0), num_blocks=2),
            example_inputs(torch.Generator().manual_seed(1)),
            branches=True,
        ),
        "two U-Nets": lambda: inference(
            "two U-Nets", initialised(TwoUNets(3, 16)), (images(4, 3, 96, 96), images(4, 3, 96, 96)), branches=True
        ),
        "mixture of experts": lambda: inference(
            "mixture of experts",
            initialised(Transformer(2, 256, 4, 1000, 64, causal=True, num_experts=8)),
            (tokens(8, 64),),
            branches=True,
        ),
        "LSTM, training": lambda: training(
            "LSTM, training",
            initialised(UnrolledLSTM(2, 256, 1000)),
            (tokens(32, 8),),
            (tokens(32 * 8),),
            lambda output, target: nn.functional.cross_entropy(output.flatten(0, 1), target),
            branches=True,
        ),
        "residual network": lambda: inference(
            "residual network", initialised(residual_network((2, 2, 2, 2), 48)), (images(4, 3, 112, 112),), branches=False
        ),
        "transformer, training": lambda: training(
            "transformer, training",
            initialised(Transformer(2, 128, 4, 1000, 48, causal=False)),
            (tokens(8, 48),),
            (tokens(8) % 2,),
            nn.functional.cross_entropy,
            branches=False,
        ),
    }


def initialised(module: nn.Module) -> nn.Module:
    """Matrices scaled so that signals keep their size, biases 0, factors of normalisations 1."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, math.sqrt(1 / parameter[0].numel()), generator=generator)
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)
    return module
