"""Closed forms for the floating-point operations of ATen ops.

A multiply-add counts as two. The addition of a bias and the activation inside a recurrent cell are not counted, nor is anything saved by a causal mask,
as in `torch.utils.flop_counter`, with whose totals the tests compare. Every form takes the op's arguments by their schema names, and its outputs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Arguments = Mapping[str, Any]
Form = Callable[[Arguments, Sequence[torch.Tensor]], int]


def extent(size: int | torch.SymInt) -> int:
    """One extent of a shape. One that is known only while running counts at its upper bound, and as one where it has no bound."""
    if isinstance(size, int):
        return size
    upper = size.node.shape_env.bound_sympy(size.node.expr).upper
    return int(upper) if upper < 2**31 else 1


def numel(tensor: torch.Tensor) -> int:
    return math.prod(extent(size) for size in tensor.shape)


def _matrix_product(left: str) -> Form:
    """Every output element is a dot product along the last axis of the argument `left`."""
    return lambda given, outputs: 2 * numel(outputs[0]) * extent(given[left].shape[-1]) if given[left].dim() else 0


def _whole_matrix(matrix: str) -> Form:
    """Each element of the argument `matrix` is multiplied and added once."""
    return lambda given, outputs: 2 * numel(given[matrix])


def _summed_batch(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    return 2 * numel(given["batch1"]) * extent(given["batch2"].shape[-1])


def _grouped_product(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """Rows of a matrix times the matrix of their group, as mixtures of experts do it."""
    rows = next(value for value in given.values() if isinstance(value, torch.Tensor))
    return 2 * numel(outputs[0]) * extent(rows.shape[-1])


def _convolution(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """Weights are `[out, in / groups, *kernel]`: each output element is a dot product over the last axes."""
    if given.get("transposed"):
        return _transposed_convolution(given, outputs)
    return 2 * numel(outputs[0]) * math.prod(extent(size) for size in given["weight"].shape[1:])


def _transposed_convolution(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """Weights are `[in, out / groups, *kernel]`: each input element is spread over the last axes."""
    return 2 * numel(given["input"]) * math.prod(extent(size) for size in given["weight"].shape[1:])


def _convolution_gradients(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """The gradients of input and weight cost as much as the convolution each; that of the bias is a sum."""
    source = given["input"] if given["transposed"] else given["grad_output"]
    each = 2 * numel(source) * math.prod(extent(size) for size in given["weight"].shape[1:])
    summed = numel(given["grad_output"]) if given["output_mask"][2] else 0
    return int(each * sum(given["output_mask"][:2])) + summed


def _attention_gradients(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """Five matrix products over the scores: these again, their gradient, and those of query, key and value."""
    query, key, value = given["query"], given["key"], given["value"]
    scores = math.prod(map(extent, query.shape[:-1])) * extent(key.shape[-2])
    return 2 * scores * (3 * extent(query.shape[-1]) + 2 * extent(value.shape[-1]))


def _attention(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """`[..., heads, length, width]`: scores are query times key, the result is scores times value; heads of the query decide."""
    query, key, value = given["query"], given["key"], given["value"]
    return 2 * numel(query) * extent(key.shape[-2]) + 2 * math.prod(map(extent, query.shape[:-1])) * math.prod(
        map(extent, value.shape[-2:])
    )


def _einsum(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """Operands are joined from left to right; each join costs two per point of the space of all its indices."""
    text = given["equation"].replace(" ", "")
    left, arrow, result = text.partition("->")
    operands = [_subscripts(term, tensor.dim()) for term, tensor in zip(left.split(","), given["tensors"], strict=True)]
    size = {index: 1 for operand in operands for index in operand}
    for operand, tensor in zip(operands, given["tensors"], strict=True):
        size |= {index: max(size[index], extent(one)) for index, one in zip(operand, tensor.shape, strict=True)}
    if arrow:
        kept = set(_subscripts(result, outputs[0].dim()))
    else:
        written = [index for operand in operands for index in operand]
        kept = {index for index in written if index.startswith(".") or written.count(index) == 1}
    if len(operands) == 1:
        return math.prod(size.values())
    flops, joined = 0, set(operands[0])
    for number, operand in enumerate(operands[1:], start=1):
        joined |= set(operand)
        flops += 2 * math.prod(size[index] for index in joined)
        joined &= kept.union(*operands[number + 1 :])
    return flops


def _subscripts(term: str, dim: int) -> list[str]:
    """One name per axis; an ellipsis stands for as many axes as are left, counted from the right."""
    before, ellipsis, after = term.partition("...")
    hidden = dim - len(before) - len(after) if ellipsis else 0
    return [*before, *(f".{number}" for number in range(hidden, 0, -1)), *after]


def _tensordot(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    return 2 * numel(outputs[0]) * math.prod(extent(given["self"].shape[axis]) for axis in given["dims_self"])


def _bilinear(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    rows = numel(outputs[0]) // max(1, extent(given["weight"].shape[0]))
    return 2 * rows * numel(given["weight"]) + 2 * numel(outputs[0]) * extent(given["weight"].shape[-1])


def _distances(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    return 3 * numel(outputs[0]) * extent(given["x1"].shape[-1])


def _recurrent(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """Every weight matrix of every layer and direction meets each step of each sequence once."""
    if "data" in given:
        steps = extent(given["data"].shape[0])
    else:
        steps = numel(given["input"]) // max(1, extent(given["input"].shape[-1]))
    return 2 * steps * sum(numel(weight) for weight in given["params"] if weight.dim() == 2)


def _recurrent_cell(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    rows = numel(given["input"]) // max(1, extent(given["input"].shape[-1]))
    return 2 * rows * (numel(given["w_ih"]) + numel(given["w_hh"]))


def _windows(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """One per element of every pooling window; a single extent stands for all axes."""
    axes = 1 if "1d" in given["op"] else 3 if "3d" in given["op"] else 2
    kernel = given["kernel_size"]
    kernel = [kernel] if isinstance(kernel, int) else list(kernel)
    return numel(outputs[0]) * int(math.prod(kernel * axes if len(kernel) == 1 else kernel))


def _adam(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """Kingma and Ba, arXiv 1412.6980, algorithm 1: for each element three operations for the mean, four for the square, three for the denominator and three for the step;
    two for the decay of the weight."""
    return (13 + 2 * bool(given["weight_decay"])) * sum(map(numel, given["self"]))


def _sgd(given: Arguments, outputs: Sequence[torch.Tensor]) -> int:
    """For each element two operations for the step, and two each for momentum, Nesterov's look ahead and the decay of the weight."""
    extras = sum(bool(given[setting]) for setting in ("momentum", "nesterov", "weight_decay"))
    return 2 * (1 + extras) * sum(map(numel, given["self"]))


_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d", "convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution")
_ATTENTIONS = (
    "scaled_dot_product_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
_ATTENTION_GRADIENTS = (
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
)
_POOLS = tuple(f"{kind}_pool{axes}d{end}" for kind in ("max", "avg") for axes in (1, 2, 3) for end in ("", "_with_indices"))

CLOSED_FORMS: Mapping[str, Form] = {
    **{f"aten::{name}": _matrix_product("self") for name in ("mm", "bmm", "matmul", "_int_mm", "_scaled_mm")},
    **{f"aten::{name}": _matrix_product("input") for name in ("linear", "mkldnn_linear")},
    "aten::addmm": _matrix_product("mat1"),
    "aten::_addmm_activation": _matrix_product("mat1"),
    "aten::baddbmm": _matrix_product("batch1"),
    "aten::addbmm": _summed_batch,
    "aten::mv": _whole_matrix("self"),
    "aten::addmv": _whole_matrix("mat"),
    "aten::dot": _whole_matrix("self"),
    "aten::vdot": _whole_matrix("self"),
    "aten::_grouped_mm": _grouped_product,
    "transformers::grouped_mm_fallback": _grouped_product,
    "aten::einsum": _einsum,
    "aten::tensordot": _tensordot,
    "aten::bilinear": _bilinear,
    "aten::cdist": _distances,
    "aten::_cdist_forward": _distances,
    **{f"aten::{name}": _convolution for name in _CONVOLUTIONS},
    **{f"aten::conv_transpose{axes}d": _transposed_convolution for axes in (1, 2, 3)},
    "aten::convolution_backward": _convolution_gradients,
    **{f"aten::{name}": _attention for name in _ATTENTIONS},
    **{f"aten::{name}": _attention_gradients for name in _ATTENTION_GRADIENTS},
    **{f"aten::{name}": _adam for name in ("_fused_adam", "_fused_adamw")},
    "aten::_fused_sgd": _sgd,
    **{f"aten::{name}": _recurrent for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"aten::{name}_cell": _recurrent_cell for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **{f"aten::{name}": _windows for name in _POOLS},
}
"""By schema name."""
