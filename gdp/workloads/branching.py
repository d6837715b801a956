"""A branching convolutional network in PyTorch, held out from all training families.

Every block sends its input through four branches of nearly equal cost and joins them along the channels, so that two devices can share each block evenly: the shape of
GoogLeNet's blocks (Szegedy et al., CVPR 2015), with convolutions large enough that handing tensors over costs little beside them.
"""

import math
from collections.abc import Sequence

import torch
from torch import nn

IMAGE_SIZE = 112
BATCH_SIZE = 4


class BranchingBlock(nn.Module):
    """Four branches over the same input, joined: `[N, in, H, W]` to `[N, 4 * width, H, W]`."""

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__()
        self.plain = _convolutions(in_channels, [(width, (1, 1)), (width, (3, 3))])
        self.separated = _convolutions(in_channels, [(width * 5 // 6, (1, 1)), (width, (1, 5)), (width, (5, 1))])
        self.deep = _convolutions(in_channels, [(width * 7 // 12, (1, 1)), (width * 2 // 3, (3, 3)), (width, (3, 3))])
        self.pooled = nn.Sequential(
            _convolutions(in_channels, [(width * 3 // 4, (1, 1))]),
            nn.AvgPool2d(3, stride=1, padding=1),
            _convolutions(width * 3 // 4, [(width, (3, 3))]),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.plain(x), self.separated(x), self.deep(x), self.pooled(x)], dim=1)


class BranchingNetwork(nn.Module):
    """A strided stem, `num_blocks` branching blocks, and a linear classifier of their mean: `[N, 3, H, W]` to `[N, 10]`."""

    def __init__(self, *, num_blocks: int, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, stride=4, padding=3), nn.ReLU())
        self.blocks = nn.Sequential(*(BranchingBlock(4 * width if number else width, width) for number in range(num_blocks)))
        self.classify = nn.Linear(4 * width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classify(self.blocks(self.stem(images)).mean(dim=(2, 3)))
        return logits


def branching_network(generator: torch.Generator, *, num_blocks: int = 4, width: int = 96) -> nn.Module:
    """The network in evaluation mode, with weights drawn from `generator` (He et al., ICCV 2015, so that signals keep their size)."""
    with torch.device("meta"):
        network = BranchingNetwork(num_blocks=num_blocks, width=width)
    network.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0.0, math.sqrt(2 / parameter[0].numel()), generator=generator)
            else:
                parameter.zero_()
    return network.eval()


def example_inputs(generator: torch.Generator, *, batch_size: int = BATCH_SIZE) -> tuple[torch.Tensor]:
    """A batch of random images, `[batch_size, 3, IMAGE_SIZE, IMAGE_SIZE]`: the arguments of the network's `forward`."""
    return (torch.randn(batch_size, 3, IMAGE_SIZE, IMAGE_SIZE, generator=generator),)


def _convolutions(in_channels: int, layers: Sequence[tuple[int, tuple[int, int]]]) -> nn.Sequential:
    """Convolutions that keep height and width, each followed by a ReLU; a layer is `(channels, kernel)`."""
    modules: list[nn.Module] = []
    for channels, kernel in layers:
        modules += [nn.Conv2d(in_channels, channels, kernel, padding=(kernel[0] // 2, kernel[1] // 2)), nn.ReLU()]
        in_channels = channels
    return nn.Sequential(*modules)
