"""The PyTorch modules behind `torch_models.py`, of any size."""

import torch
from torch import nn
from torch.nn import functional as F

from gdp.errors import InputError


def residual_network(depths: tuple[int, ...], width: int) -> nn.Module:
    """Residual blocks (He et al., CVPR 2016): `depths[i]` of them at stage i, whose width is `width * 2**i`; images to 1 000 classes."""
    stages: list[nn.Module] = [nn.Conv2d(3, width, 7, stride=2, padding=3), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            out = width * 2**stage
            stages.append(ResidualBlock(channels, out, stride=2 if stage and not block else 1))
            channels = out
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions beside a skip connection."""

    def __init__(self, channels: int, out: int, *, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
        )
        same = stride == 1 and channels == out
        self.skip = nn.Identity() if same else nn.Sequential(nn.Conv2d(channels, out, 1, stride=stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.skip(x))


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, num_heads: int, *, causal: bool) -> None:
        super().__init__()
        if width % num_heads:
            raise InputError(f"width {width} is not a multiple of num_heads {num_heads}; every head needs the same share")
        self.num_heads, self.causal = num_heads, causal
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class ChoosingExperts(nn.Module):
    """Every expert takes its share of the tokens, those that score highest with it, and adds its results to theirs."""

    def __init__(self, width: int, num_experts: int) -> None:
        super().__init__()
        self.score = nn.Linear(width, num_experts)
        self.experts = nn.ModuleList(_perceptron(width) for _ in range(num_experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        share = max(1, 2 * len(tokens) // len(self.experts))
        weight, chosen = self.score(tokens).softmax(-1).topk(min(share, len(tokens)), dim=0)
        results = [weight[:, number, None] * expert(tokens[chosen[:, number]]) for number, expert in enumerate(self.experts)]
        return torch.zeros_like(tokens).index_add(0, chosen.t().flatten(), torch.cat(results)).view_as(x)


class TransformerLayer(nn.Module):
    """Attention, then a perceptron or experts, each normalised before and added to what it took."""

    def __init__(self, width: int, num_heads: int, *, causal: bool, num_experts: int) -> None:
        super().__init__()
        self.before_attention, self.before_perceptron = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, num_heads, causal=causal)
        self.perceptron = ChoosingExperts(width, num_experts) if num_experts else _perceptron(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before_attention(x))
        return x + self.perceptron(self.before_perceptron(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """A causal language model whose output layer is its token embedding, or a bidirectional classifier of the first token."""

    def __init__(
        self, num_layers: int, width: int, num_heads: int, vocabulary: int, length: int, *, causal: bool, num_experts: int = 0
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(length, width))
        self.layers = nn.Sequential(
            *(TransformerLayer(width, num_heads, causal=causal, num_experts=num_experts) for _ in range(num_layers))
        )
        self.norm = nn.LayerNorm(width)
        self.classify = None if causal else nn.Linear(width, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.layers(self.tokens(tokens) + self.positions))
        return F.linear(x, self.tokens.weight) if self.classify is None else self.classify(x[:, 0])


class TwoTowers(nn.Module):
    """A tower of embedding bags and a perceptron for users, one for items, and the product of both."""

    def __init__(self, num_tables: int, rows: int, width: int, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.ModuleList(nn.EmbeddingBag(rows, width) for _ in range(num_tables)) for _ in ("user", "item"))
        sizes = (num_tables * width, *layers)
        self.perceptrons = nn.ModuleList(
            nn.Sequential(*(nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in zip(sizes, sizes[1:], strict=False)))
            for _ in ("user", "item")
        )

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        towers = []
        for tables, perceptron, rows in zip(self.tables, self.perceptrons, (user, item), strict=True):
            assert isinstance(tables, nn.ModuleList)
            features = [table(rows[:, number]) for number, table in enumerate(tables)]
            towers.append(perceptron(torch.cat(features, dim=1)))
        return torch.sigmoid((towers[0] * towers[1]).sum(1))


class UNet(nn.Module):
    """Convolutions down `num_levels` levels and up again, joined by skip connections."""

    def __init__(self, num_levels: int, width: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(num_levels + 1)]
        self.down = nn.ModuleList(_two_convolutions(before, after) for before, after in zip([3, *widths], widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * one, one, 2, stride=2) for one in reversed(widths[:-1]))
        self.join = nn.ModuleList(_two_convolutions(2 * one, one) for one in reversed(widths[:-1]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        for level, down in enumerate(self.down):
            x = down(F.max_pool2d(x, 2) if level else x)
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([skip, up(x)], dim=1))
        return x


class TwoUNets(nn.Module):
    """A U-Net for each of two images, and a convolution over both results."""

    def __init__(self, num_levels: int, width: int) -> None:
        super().__init__()
        self.first, self.second = UNet(num_levels, width), UNet(num_levels, width)
        self.out = nn.Conv2d(2 * width, 1, 1)

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return self.out(torch.cat([self.first(first), self.second(second)], dim=1))  # type: ignore[no-any-return]


class UnrolledLSTM(nn.Module):
    """Layers of LSTM cells over the steps of a text, written out."""

    def __init__(self, num_layers: int, width: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.cells = nn.ModuleList(nn.LSTMCell(width, width) for _ in range(num_layers))
        self.out = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.tokens(tokens)
        zeros = torch.zeros_like(embedded[:, 0])
        states = [(zeros, zeros) for _ in self.cells]
        outputs = []
        for step in range(tokens.shape[1]):
            x = embedded[:, step]
            for layer, cell in enumerate(self.cells):
                states[layer] = cell(x, states[layer])
                x = states[layer][0]
            outputs.append(x)
        return self.out(torch.stack(outputs, dim=1))  # type: ignore[no-any-return]


def _perceptron(width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def _two_convolutions(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU())
