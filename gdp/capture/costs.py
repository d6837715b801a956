"""Floating-point operations and accessed bytes of one op of an exported PyTorch program.

The rule, first match wins:

1. An op that moves nothing costs nothing: a view (its outputs share the memory of an input), an uninitialised tensor, an op without tensor outputs (shape arithmetic, assertions).
2. An op in `CLOSED_FORMS` costs the operations written there.
3. An op that only moves or fills data (`_MOVES`, `_FILLS`, gathers) costs no operations.
4. Every other op (pointwise, reductions, normalisations, softmax, sorting) costs one operation per element of the largest tensor that it reads or writes.

Bytes are those of all distinct input tensors and of all outputs; of a broadcast input only what is stored; of a table that rows are gathered from only
the gathered rows; of an input whose shape alone matters none.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from gdp.capture.aten_flops import CLOSED_FORMS, extent, numel


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpCost:
    """What one op does, on any device."""

    flops: float
    """floating-point operations; a multiply-add counts as two."""
    accessed_bytes: int
    """bytes read and written."""


NO_WORK = OpCost(flops=0.0, accessed_bytes=0)

_MOVES = frozenset(
    "_reshape_copy _to_copy cat channel_shuffle clone concat constant_pad_nd contiguous copy diagonal_scatter expand_copy flip hstack im2col index_copy "
    "index_put lift_fresh_copy masked_scatter pad permute_copy pixel_shuffle pixel_unshuffle reflection_pad1d reflection_pad2d reflection_pad3d repeat "
    "repeat_interleave reshape replication_pad1d replication_pad2d replication_pad3d roll scatter select_scatter slice_scatter split_copy stack t_copy tile "
    "transpose_copy unbind_copy view_copy vstack".split()
)
_FILLS = frozenset(
    "arange bernoulli eye fill full full_like linspace logspace new_full new_ones new_zeros normal ones ones_like rand rand_like randint randint_like "
    "randn randn_like randperm scalar_tensor uniform zeros zeros_like".split()
)
_UNINITIALISED = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split())
_TABLE = {
    **dict.fromkeys(["embedding", "embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"], "weight"),
    **dict.fromkeys(["index", "index_select", "gather", "take", "take_along_dim"], "self"),
}
"""The argument that rows are gathered from."""


def op_cost(target: object, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Sequence[torch.Tensor]) -> OpCost:
    """The cost of calling `target`.

    Args:
        target: an ATen or custom operator; any other Python function (shape arithmetic) costs nothing.
        args: positional arguments, with (fake or meta) tensors in place of graph nodes.
        kwargs: keyword arguments, likewise.
        outputs: the tensors it returns.
    """
    if not isinstance(target, torch._ops.OpOverload) or not outputs:
        return NO_WORK
    name = target._schema.name
    short = name.removeprefix("aten::")
    inputs = list({id(leaf): leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}.values())
    if short in _UNINITIALISED or is_view(inputs, outputs):
        return NO_WORK
    written = sum(map(stored_bytes, outputs))
    if short in _FILLS:
        return OpCost(flops=0.0, accessed_bytes=written)
    given = {argument.name: value for argument, value in zip(target._schema.arguments, args, strict=False)} | dict(kwargs) | {"op": short}
    if short in _TABLE:
        return _gather(given, _TABLE[short], inputs, outputs)
    moved = written + sum(map(stored_bytes, inputs))
    if name in CLOSED_FORMS:
        return OpCost(flops=float(CLOSED_FORMS[name](given, outputs)), accessed_bytes=moved)
    if short in _MOVES:
        return OpCost(flops=0.0, accessed_bytes=moved)
    return OpCost(flops=float(max(map(numel, [*inputs, *outputs]))), accessed_bytes=moved)


def is_view(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> bool:
    """Whether all outputs lie in the memory of the inputs. Traced tensors know it, while a schema says only what may be (a reshape may copy)."""
    storages = {tensor.untyped_storage()._cdata for tensor in inputs if tensor.layout == torch.strided}
    return all(tensor.layout == torch.strided and tensor.untyped_storage()._cdata in storages for tensor in outputs)


def stored_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the distinct elements: an axis of stride zero repeats one."""
    if tensor.layout != torch.strided:
        return numel(tensor) * tensor.element_size()
    distinct = (
        extent(size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if not (isinstance(stride, int) and stride == 0)
    )
    return math.prod(distinct) * tensor.element_size()


def _gather(given: Mapping[str, Any], table: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> OpCost:
    """Indices and gathered rows are read, results written; a bag adds its rows up."""
    source = given[table]
    read = sum(stored_bytes(tensor) for tensor in inputs if tensor is not source)
    written = sum(map(stored_bytes, outputs))
    if table == "weight" and "bag" in given["op"]:
        gathered = numel(given["indices"]) * extent(source.shape[-1])
        return OpCost(flops=float(gathered), accessed_bytes=read + gathered * source.element_size() + written)
    return OpCost(flops=0.0, accessed_bytes=read + numel(outputs[0]) * source.element_size() + written)
