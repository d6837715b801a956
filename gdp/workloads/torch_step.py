"""A PyTorch model with example inputs on the meta device -> the graphs of its forward pass and of its training step."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from gdp.capture.torch import capture
from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.graph import Graph


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """A model, what it is run on, and how its results are judged."""

    module: nn.Module
    inputs: tuple[Any, ...]
    targets: tuple[Any, ...]
    loss: Callable[..., torch.Tensor]
    """of the module's results and the targets."""


def inference_graph(build: Callable[[], Example]) -> Graph:
    """The forward pass of what `build` makes, in evaluation mode. On the meta device nothing is allocated or initialised."""
    example = _on_meta(build)
    return capture(example.module.eval(), example.inputs).graph


def training_graph(build: Callable[[], Example]) -> Graph:
    """A step of AdamW for what `build` makes, in training mode."""
    example = _on_meta(build)
    step = TrainingStep(
        module=example.module.train(),
        inputs=example.inputs,
        targets=example.targets,
        loss=example.loss,
        optimizer=torch.optim.AdamW(example.module.parameters()),
    )
    return capture_training(step).graph


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean cross-entropy of `[..., length, vocabulary]` logits with `[..., length]` tokens."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten())


def _on_meta(build: Callable[[], Example]) -> Example:
    with torch.device("meta"):
        return build()
