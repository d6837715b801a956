"""The cost of ATen ops: closed forms written out here, and the totals of `torch.utils.flop_counter` on whole modules."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from gdp.capture.aten_flops import CLOSED_FORMS
from gdp.capture.costs import NO_WORK, OpCost, op_cost
from gdp.capture.torch import capture

aten = torch.ops.aten


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def cost(op: Any, *args: Any, **kwargs: Any) -> OpCost:
    """The cost of an op, called on meta tensors."""
    outputs = [leaf for leaf in pytree.tree_leaves(op(*args, **kwargs)) if isinstance(leaf, torch.Tensor)]
    return op_cost(op, args, kwargs, outputs)


@pytest.mark.parametrize(
    ("op", "args", "flops"),
    [
        # out [2, 6, 8], in / groups 4, kernel 3
        (aten.conv1d.default, (meta(2, 4, 10), meta(6, 4, 3)), 2 * (2 * 6 * 8) * 4 * 3),
        # out [2, 8, 16, 16], groups 4: 2 channels in
        (aten.conv2d.default, (meta(2, 8, 16, 16), meta(8, 2, 3, 3), None, [1, 1], [1, 1], [1, 1], 4), 2 * (2 * 8 * 16 * 16) * 2 * 9),
        # stride 2: out [1, 5, 7, 7]
        (aten.conv2d.default, (meta(1, 3, 16, 16), meta(5, 3, 3, 3), meta(5), [2, 2]), 2 * (5 * 7 * 7) * 3 * 9),
        # dilation 3 reaches over 7: out [1, 5, 10, 10]
        (aten.conv2d.default, (meta(1, 3, 16, 16), meta(5, 3, 3, 3), None, [1, 1], [0, 0], [3, 3]), 2 * (5 * 10 * 10) * 3 * 9),
        (aten.conv2d.padding, (meta(1, 3, 16, 16), meta(5, 3, 3, 3), None, [1, 1], "same"), 2 * (5 * 16 * 16) * 3 * 9),
        # out [1, 4, 4, 6, 8]
        (aten.conv3d.default, (meta(1, 2, 6, 8, 10), meta(4, 2, 3, 3, 3)), 2 * (4 * 4 * 6 * 8) * 2 * 27),
        # every input element meets out / groups channels and the kernel, whatever the stride
        (aten.conv_transpose1d.default, (meta(2, 6, 5), meta(6, 3, 4), None, [2]), 2 * (2 * 6 * 5) * 3 * 4),
        (aten.conv_transpose2d.input, (meta(2, 6, 5, 5), meta(6, 2, 4, 4), None, [2, 2], [1, 1], [0, 0], 2), 2 * (2 * 6 * 25) * 2 * 16),
        (aten.conv_transpose3d.input, (meta(1, 2, 3, 3, 3), meta(2, 5, 2, 2, 2)), 2 * (2 * 27) * 5 * 8),
        (
            aten.convolution.default,
            (meta(1, 6, 5, 5), meta(6, 2, 4, 4), None, [2, 2], [0, 0], [1, 1], True, [0, 0], 2),
            2 * (6 * 25) * 2 * 16,
        ),
        (aten.mm.default, (meta(3, 4), meta(4, 5)), 2 * 3 * 4 * 5),
        (aten.bmm.default, (meta(7, 3, 4), meta(7, 4, 5)), 7 * 2 * 3 * 4 * 5),
        (aten.addmm.default, (meta(5), meta(3, 4), meta(4, 5)), 2 * 3 * 4 * 5),
        (aten.baddbmm.default, (meta(7, 3, 5), meta(7, 3, 4), meta(7, 4, 5)), 7 * 2 * 3 * 4 * 5),
        (aten.addbmm.default, (meta(3, 5), meta(7, 3, 4), meta(7, 4, 5)), 7 * 2 * 3 * 4 * 5),
        (aten.linear.default, (meta(2, 3, 4), meta(5, 4), meta(5)), 2 * (2 * 3) * 4 * 5),
        (aten.matmul.default, (meta(6, 1, 3, 4), meta(7, 4, 5)), 6 * 7 * 2 * 3 * 4 * 5),
        (aten.matmul.default, (meta(4), meta(4, 5)), 2 * 4 * 5),
        (aten.matmul.default, (meta(4), meta(4)), 2 * 4),
        (aten.mv.default, (meta(3, 4), meta(4)), 2 * 3 * 4),
        (aten.dot.default, (meta(4), meta(4)), 2 * 4),
        (aten.bilinear.default, (meta(9, 3), meta(9, 4), meta(5, 3, 4)), 2 * 9 * 5 * 3 * 4 + 2 * 9 * 5 * 4),
        (aten.tensordot.default, (meta(3, 4, 5), meta(4, 5, 6), [1, 2], [0, 1]), 2 * 3 * 4 * 5 * 6),
        (aten.einsum.default, ("bij,bjk->bik", [meta(7, 3, 4), meta(7, 4, 5)]), 7 * 2 * 3 * 4 * 5),
        (aten.einsum.default, ("...qd, ...kd", [meta(2, 7, 3, 4), meta(7, 5, 4)]), 2 * 7 * 2 * 3 * 4 * 5),
        # left to right: [3, 5] from [3, 4] and [4, 5], then [3, 6]
        (aten.einsum.default, ("ij,jk,kl->il", [meta(3, 4), meta(4, 5), meta(5, 6)]), 2 * 3 * 4 * 5 + 2 * 3 * 5 * 6),
        (aten.einsum.default, ("ij->j", [meta(3, 4)]), 3 * 4),
        # scores and values: query length 5, key length 6, width 8, value width 3
        (
            aten.scaled_dot_product_attention.default,
            (meta(2, 4, 5, 8), meta(2, 4, 6, 8), meta(2, 4, 6, 3)),
            2 * (2 * 4) * 5 * 6 * (8 + 3),
        ),
        # 4 gates, two layers: inputs 8 and 16, hidden 16, over 5 steps of 3 sequences
        (
            aten.lstm.input,
            (
                meta(5, 3, 8),
                [meta(2, 3, 16), meta(2, 3, 16)],
                [meta(64, 8), meta(64, 16), meta(64), meta(64), meta(64, 16), meta(64, 16), meta(64), meta(64)],
                True,
                2,
                0.0,
                False,
                False,
                False,
            ),
            2 * (5 * 3) * 4 * 16 * ((8 + 16) + (16 + 16)),
        ),
        (
            aten.lstm_cell.default,
            (meta(3, 8), [meta(3, 16), meta(3, 16)], meta(64, 8), meta(64, 16), meta(64), meta(64)),
            2 * 3 * 4 * 16 * (8 + 16),
        ),
        (aten.max_pool2d.default, (meta(1, 2, 9, 9), [3], [2]), (2 * 4 * 4) * 9),
        (aten.avg_pool2d.default, (meta(1, 2, 9, 9), [3, 1]), (2 * 3 * 9) * 3),
        (aten.add.Tensor, (meta(3, 4), meta(4)), 3 * 4),
        (aten.sum.dim_IntList, (meta(3, 4), [0]), 3 * 4),
        (aten.layer_norm.default, (meta(3, 4), [4]), 3 * 4),
        (aten.cat.default, ([meta(3, 4), meta(2, 4)],), 0),
        (aten.embedding.default, (meta(100, 4), meta(3, dtype=torch.int64)), 0),
        (aten._embedding_bag.default, (meta(100, 4), meta(6, dtype=torch.int64), meta(3, dtype=torch.int64)), 6 * 4),
        (aten.zeros_like.default, (meta(3, 4),), 0),
    ],
)
def test_flops_are_the_closed_form(op: Any, args: tuple[Any, ...], flops: int) -> None:
    assert cost(op, *args).flops == flops


def test_grouped_query_attention_counts_the_heads_of_the_query() -> None:
    op = aten.scaled_dot_product_attention.default
    grouped = cost(op, meta(1, 8, 5, 4), meta(1, 2, 6, 4), meta(1, 2, 6, 4), enable_gqa=True)
    assert grouped.flops == 2 * 8 * 5 * 6 * (4 + 4)
    assert grouped.accessed_bytes == 4 * (8 * 5 * 4 + 2 * 2 * 6 * 4 + 8 * 5 * 4)


@pytest.mark.parametrize(
    ("op", "args", "accessed_bytes"),
    [
        (aten.mm.default, (meta(3, 4), meta(4, 5)), 4 * (12 + 20 + 15)),
        (aten.add.Tensor, (meta(3, 4, dtype=torch.bfloat16), meta(4, dtype=torch.bfloat16)), 2 * (12 + 4 + 12)),
        # a broadcast input is stored once
        (aten.add.Tensor, (meta(3, 4), meta(4).expand(3, 4)), 4 * (12 + 4 + 12)),
        # rows, indices, result
        (aten.embedding.default, (meta(1000, 4), meta(3, dtype=torch.int64)), 3 * 8 + 2 * 4 * 12),
        (aten.index_select.default, (meta(1000, 4), 0, meta(3, dtype=torch.int64)), 3 * 8 + 2 * 4 * 12),
        (aten.index.Tensor, (meta(1000, 4), [meta(3, dtype=torch.int64)]), 3 * 8 + 2 * 4 * 12),
        (aten.cat.default, ([meta(3, 4), meta(2, 4)],), 2 * 4 * 20),
        (aten.zeros_like.default, (meta(3, 4),), 4 * 12),
        (aten.clone.default, (meta(3, 4),), 2 * 4 * 12),
    ],
)
def test_accessed_bytes(op: Any, args: tuple[Any, ...], accessed_bytes: int) -> None:
    assert cost(op, *args).accessed_bytes == accessed_bytes


def test_a_tensor_read_twice_counts_once() -> None:
    x = meta(3, 4)
    assert cost(aten.mul.Tensor, x, x).accessed_bytes == 2 * 4 * 12


@pytest.mark.parametrize(
    ("op", "args"),
    [
        (aten.view.default, (meta(3, 4), [12])),
        (aten.transpose.int, (meta(3, 4), 0, 1)),
        (aten.split.Tensor, (meta(3, 4), 1)),
        (aten.expand.default, (meta(1, 4), [3, 4])),
        (aten._unsafe_view.default, (meta(3, 4), [12])),
        (aten.reshape.default, (meta(3, 4), [12])),
        (aten.detach.default, (meta(3, 4),)),
        (aten.empty_like.default, (meta(3, 4),)),
        (aten.sym_size.int, (meta(3, 4), 0)),
    ],
)
def test_views_and_bookkeeping_do_no_work(op: Any, args: tuple[Any, ...]) -> None:
    assert cost(op, *args) == NO_WORK


def test_a_reshape_that_copies_works() -> None:
    assert cost(aten.reshape.default, meta(3, 4).t(), [12]).accessed_bytes == 2 * 4 * 12


class ConvTransposeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.dilated = nn.Conv2d(16, 16, 3, padding=2, dilation=2)
        self.up = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x).relu()
        x = x + self.dilated(self.depthwise(x))
        return torch.einsum("nchw,oc->nohw", self.up(x), torch.ones(5, 8, device=x.device))


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 5), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3))
        self.classify = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classify(self.features(x).mean((2, 3)))


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (Classifier, (meta(2, 3, 32, 32),)),
        (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2), (meta(2, 10, 32),)),
        (
            lambda: nn.Transformer(32, 4, 1, 1, 64, batch_first=True),
            (meta(2, 10, 32), meta(2, 7, 32)),
        ),
        (ConvTransposeNet, (meta(2, 3, 16, 16),)),
    ],
    ids=["cnn", "encoder", "encoder-decoder", "conv-transpose"],
)
def test_totals_equal_those_of_the_flop_counter(module: Any, inputs: Sequence[torch.Tensor]) -> None:
    with torch.device("meta"):
        network = module().eval()
    with FlopCounterMode(display=False) as counter:
        network(*inputs)
    graph = capture(network, tuple(inputs)).graph
    closed = [flops for flops, op in zip(graph.flops, graph.op_type, strict=True) if _has_closed_form(op) and "pool" not in op]
    assert sum(closed) == counter.get_total_flops() > 0


def _has_closed_form(op_type: str) -> bool:
    return "::".join(op_type.split(".")[:2]) in CLOSED_FORMS


def test_the_lstm_module() -> None:
    with torch.device("meta"):
        module = nn.LSTM(8, 16, 2, bidirectional=True)
    graph = capture(module, (meta(5, 3, 8),)).graph
    flops = dict(zip(graph.op_type, graph.flops, strict=True))
    per_step = 2 * 4 * 16 * ((8 + 16) + (32 + 16))
    assert flops["aten.lstm.input"] == 2 * (5 * 3) * per_step


def test_an_unknown_extent_counts_at_its_bound() -> None:
    class Chosen(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nonzero(x) * 2

    graph = capture(Chosen(), (torch.ones(30),)).graph
    index = graph.op_type.index("aten.mul.Tensor")
    assert graph.flops[index] == 30
    tensor = graph.tensor_producer.tolist().index(index)
    assert graph.tensor_shape[tensor] == (-1, 1)
    assert graph.tensor_bytes[tensor] == math.prod((30, 1)) * 8
