"""The U-Net of latent diffusion (Rombach et al., CVPR 2022) at the size of Stable Diffusion 1, written from the paper (section 3, appendix E.2) and the released configuration.

It predicts the noise in 64 x 64 x 4 latents of 512 x 512 images, given the time and 77 text vectors of 768; batch sizes are ours. Widths 320, 640, 1 280, 1 280; two residual
blocks a level on the way down, three on the way up, all but those of the last level followed by a Transformer block of 8 heads. 859 520 964 parameters. Deviation: no dropout.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

from gdp.workloads.torch_step import Example

_TEXT_WIDTH = 768


class _Residual(nn.Module):
    def __init__(self, before: int, after: int, time_width: int) -> None:
        super().__init__()
        self.norm_in, self.conv_in = nn.GroupNorm(32, before), nn.Conv2d(before, after, 3, padding=1)
        self.time = nn.Linear(time_width, after)
        self.norm_out, self.conv_out = nn.GroupNorm(32, after), nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.conv_in(F.silu(self.norm_in(x))) + self.time(F.silu(time))[..., None, None]
        return self.skip(x) + self.conv_out(F.silu(self.norm_out(hidden)))  # type: ignore[no-any-return]


class _Attention(nn.Module):
    def __init__(self, width: int, other_width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(other_width, width, bias=False) for _ in range(2))
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        query, key, value = (
            one.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for one in (self.query(x), self.key(other), self.value(other))
        )
        return self.out(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class _Transformer(nn.Module):
    """Pixels attend to each other and to the text; then a gated perceptron."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.project_in, self.project_out = (nn.Conv2d(width, width, 1) for _ in range(2))
        self.norm_self, self.norm_cross, self.norm_perceptron = (nn.LayerNorm(width) for _ in range(3))
        self.to_self, self.to_text = _Attention(width, width, num_heads), _Attention(width, _TEXT_WIDTH, num_heads)
        self.gate, self.shrink = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)

    def forward(self, image: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        height = image.shape[-2]
        x = self.project_in(self.norm(image)).flatten(2).transpose(1, 2)
        normed = self.norm_self(x)
        x = x + self.to_self(normed, normed)
        x = x + self.to_text(self.norm_cross(x), text)
        kept, gate = self.gate(self.norm_perceptron(x)).chunk(2, dim=-1)
        x = x + self.shrink(kept * F.gelu(gate))
        return image + self.project_out(x.transpose(1, 2).unflatten(2, (height, -1)))  # type: ignore[no-any-return]


class _Block(nn.Module):
    def __init__(self, before: int, after: int, time_width: int, *, num_heads: int | None) -> None:
        super().__init__()
        self.residual = _Residual(before, after, time_width)
        self.transformer = None if num_heads is None else _Transformer(after, num_heads)

    def forward(self, x: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        x = self.residual(x, time)
        return x if self.transformer is None else self.transformer(x, text)


class DiffusionUNet(nn.Module):
    """`(latents [batch, 4, height, width], time [batch], text [batch, length, 768])` -> noise of the latents' shape."""

    def __init__(self, *, width: int = 320, factors: tuple[int, ...] = (1, 2, 4, 4), blocks_per_level: int = 2, num_heads: int = 8) -> None:
        super().__init__()
        self.width, time_width, last = width, 4 * width, len(factors) - 1
        widths = [width * factor for factor in factors]
        heads = [num_heads if level < last else None for level in range(len(factors))]
        self.time = nn.Sequential(nn.Linear(width, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.conv_in = nn.Conv2d(4, width, 3, padding=1)
        self.down, self.shrink, kept = nn.ModuleList(), nn.ModuleList(), [width]
        channels = width
        for level, out in enumerate(widths):
            for _ in range(blocks_per_level):
                self.down.append(_Block(channels, out, time_width, num_heads=heads[level]))
                channels = out
                kept.append(channels)
            if level < last:
                self.shrink.append(nn.Conv2d(channels, channels, 3, stride=2, padding=1))
                kept.append(channels)
        self.middle = nn.ModuleList(
            [_Block(channels, channels, time_width, num_heads=num_heads), _Block(channels, channels, time_width, num_heads=None)]
        )
        self.up, self.grow = nn.ModuleList(), nn.ModuleList()
        for level in reversed(range(len(factors))):
            for _ in range(blocks_per_level + 1):
                self.up.append(_Block(channels + kept.pop(), widths[level], time_width, num_heads=heads[level]))
                channels = widths[level]
            if level:
                self.grow.append(nn.Conv2d(channels, channels, 3, padding=1))
        self.norm_out, self.conv_out = nn.GroupNorm(32, channels), nn.Conv2d(channels, 4, 3, padding=1)
        self.blocks_per_level = blocks_per_level

    def forward(self, latents: torch.Tensor, time: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        embedded = self.time(self._waves(time))
        x = self.conv_in(latents)
        kept = [x]
        for number, block in enumerate(self.down, start=1):
            x = block(x, embedded, text)
            kept.append(x)
            level, ends = divmod(number, self.blocks_per_level)
            if not ends and level <= len(self.shrink):
                x = self.shrink[level - 1](x)
                kept.append(x)
        for block in self.middle:
            x = block(x, embedded, text)
        for number, block in enumerate(self.up, start=1):
            x = block(torch.cat([x, kept.pop()], dim=1), embedded, text)
            level, ends = divmod(number, self.blocks_per_level + 1)
            if not ends and level <= len(self.grow):
                x = self.grow[level - 1](F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.conv_out(F.silu(self.norm_out(x)))  # type: ignore[no-any-return]

    def _waves(self, time: torch.Tensor) -> torch.Tensor:
        """Sines and cosines of the time, as positions are encoded in a Transformer."""
        half = self.width // 2
        frequency = torch.exp(torch.arange(half, device=time.device) * (-math.log(10_000.0) / half))
        angle = time[:, None] * frequency
        return torch.cat([angle.cos(), angle.sin()], dim=-1)


def diffusion_unet(*, batch_size: int) -> Example:
    """The denoising step of Stable Diffusion 1; its loss is the mean squared error of the noise."""
    latents = torch.empty(batch_size, 4, 64, 64)
    inputs = (latents, torch.empty(batch_size), torch.empty(batch_size, 77, _TEXT_WIDTH))
    return Example(module=DiffusionUNet(), inputs=inputs, targets=(latents,), loss=F.mse_loss)
