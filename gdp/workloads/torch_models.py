"""PyTorch models as graphs, captured on the meta device: shapes and costs of any size, no weights.

Each function builds one model, small by default, and returns the graph of its forward step in evaluation mode. Raises `InputError` where sizes do not fit together.
"""

from collections.abc import Callable

import torch
from torch import nn

from gdp.capture.torch import capture
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.workloads.torch_modules import Transformer, TwoTowers, TwoUNets, UnrolledLSTM, residual_network


def residual_cnn(*, depths: tuple[int, ...] = (2, 2, 2, 2), width: int = 64, image_size: int = 128, batch_size: int = 8) -> Graph:
    """A convolutional network of residual blocks (He et al., CVPR 2016): `depths[i]` blocks at stage i, whose width is `width * 2**i`."""
    return _graph(lambda: residual_network(depths, width), torch.empty(batch_size, 3, image_size, image_size, device="meta"))


def transformer_encoder(
    *, num_layers: int = 6, width: int = 512, num_heads: int = 8, length: int = 128, batch_size: int = 8, vocabulary: int = 30_000
) -> Graph:
    """Token embeddings, bidirectional Transformer layers (Vaswani et al., NeurIPS 2017) and a classifier of the first token."""
    return _graph(lambda: Transformer(num_layers, width, num_heads, vocabulary, length, causal=False), _tokens(batch_size, length))


def decoder_transformer(
    *, num_layers: int = 6, width: int = 512, num_heads: int = 8, length: int = 128, batch_size: int = 8, vocabulary: int = 30_000
) -> Graph:
    """A causal Transformer whose output layer is tied to its token embedding (Radford et al., 2019)."""
    return _graph(lambda: Transformer(num_layers, width, num_heads, vocabulary, length, causal=True), _tokens(batch_size, length))


def mixture_of_experts(
    *,
    num_layers: int = 4,
    num_experts: int = 8,
    width: int = 512,
    num_heads: int = 8,
    length: int = 128,
    batch_size: int = 8,
    vocabulary: int = 30_000,
) -> Graph:
    """A causal Transformer whose feed-forward layers are experts that each choose their tokens (Zhou et al., NeurIPS 2022), one sub-graph per expert."""
    return _graph(
        lambda: Transformer(num_layers, width, num_heads, vocabulary, length, causal=True, num_experts=num_experts),
        _tokens(batch_size, length),
    )


def two_tower_recommender(
    *, num_tables: int = 8, rows: int = 100_000, width: int = 64, layers: tuple[int, ...] = (1024, 512, 256), batch_size: int = 2048
) -> Graph:
    """A user tower and an item tower, each of embedding bags and a perceptron, compared by a dot product (Covington et al., RecSys 2016)."""
    return _graph(
        lambda: TwoTowers(num_tables, rows, width, layers),
        *(torch.empty(batch_size, num_tables, 4, dtype=torch.int64, device="meta") for _ in range(2)),
    )


def u_net(*, num_levels: int = 4, width: int = 32, image_size: int = 128, batch_size: int = 4) -> Graph:
    """Two U-Nets (Ronneberger et al., MICCAI 2015) over two images of one scene, joined for the result: long skip connections and two parallel branches."""
    if image_size % 2**num_levels:
        raise InputError(
            f"image_size {image_size} cannot be halved {num_levels} times; give a multiple of {2**num_levels}, or fewer num_levels"
        )
    image = torch.empty(batch_size, 3, image_size, image_size, device="meta")
    return _graph(lambda: TwoUNets(num_levels, width), image, torch.empty_like(image))


def unrolled_lstm(*, num_layers: int = 2, width: int = 512, num_steps: int = 20, batch_size: int = 64, vocabulary: int = 10_000) -> Graph:
    """A language model of LSTM cells (Hochreiter and Schmidhuber, 1997), every step of every layer an op of its own; the cells of a layer share their weights."""
    return _graph(lambda: UnrolledLSTM(num_layers, width, vocabulary), _tokens(batch_size, num_steps))


def _graph(build: Callable[[], nn.Module], *inputs: torch.Tensor) -> Graph:
    """The graph of the module that `build` makes; on the meta device nothing is allocated or initialised."""
    with torch.device("meta"):
        module = build()
    return capture(module.eval(), inputs).graph


def _tokens(batch_size: int, length: int) -> torch.Tensor:
    return torch.empty(batch_size, length, dtype=torch.int64, device="meta")
