"""Ops that training graphs hold because they are traced on the host, and whose only kernel is the host's, in forms that run on any device.

Attention: the fused forward pass of the device, and the logarithm of the softmax's sum by a second product of queries and keys, which a backward pass on the host needs.
LSTM layers: the device's own. Backward passes run the forward pass once more and differentiate it, so that they need nothing that only a host's forward pass leaves behind.
"""

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.nn.functional import scaled_dot_product_attention

_LSTM_MODE = 2
"""Of `mkldnn_rnn_layer`, as torch numbers the kinds of recurrent layers."""


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `aten._scaled_dot_product_flash_attention_for_cpu`: the output, and by query the logarithm of the sum that its softmax divides by."""
    assert dropout_p == 0.0, "the host's kernel is not chosen with dropout"
    output = scaled_dot_product_attention(query, key, value, attn_mask, is_causal=is_causal, scale=scale)
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1), -math.inf)
    if attn_mask is not None:
        scores = scores.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else scores + attn_mask
    return output, scores.float().logsumexp(-1)


def attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    """As `aten._scaled_dot_product_flash_attention_for_cpu_backward`: the gradients of query, key and value."""

    def forward(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor]:
        mask = None if attn_mask is None else attn_mask.clone()
        return (scaled_dot_product_attention(query, key, value, mask, is_causal=is_causal, scale=scale),)

    return _gradients(forward, (query, key, value), (grad_out,))


def lstm_layer(
    input: torch.Tensor,
    weight0: torch.Tensor,
    weight1: torch.Tensor,
    weight2: torch.Tensor,
    weight3: torch.Tensor,
    hx_: torch.Tensor,
    cx_: torch.Tensor,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """As `aten.mkldnn_rnn_layer`: outputs, last hidden and cell state, and an empty workspace."""
    _check_layer(mode, batch_sizes)
    outputs, hidden, cell = _lstm((input, weight0, weight1, weight2, weight3, hx_, cx_), reverse=reverse, has_biases=has_biases)
    return outputs, hidden, cell, torch.empty(0, dtype=torch.uint8, device=input.device)


def lstm_layer_backward(
    input: torch.Tensor,
    weight1: torch.Tensor,
    weight2: torch.Tensor,
    weight3: torch.Tensor,
    weight4: torch.Tensor,
    hx_: torch.Tensor,
    cx_tmp: torch.Tensor,
    output: torch.Tensor,
    hy_: torch.Tensor,
    cy_: torch.Tensor,
    grad_output: torch.Tensor | None,
    grad_hy: torch.Tensor | None,
    grad_cy: torch.Tensor | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """As `aten.mkldnn_rnn_layer_backward`: the gradients of the input, the weights and biases, and the first hidden and cell state."""
    _check_layer(mode, batch_sizes)

    def forward(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return _lstm(values, reverse=reverse, has_biases=has_biases)

    values = (input, weight1, weight2, weight3, weight4, hx_, cx_tmp)
    return _gradients(forward, values, (grad_output, grad_hy, grad_cy))


def neutral(module: fx.GraphModule) -> None:
    """Replaces in `module`, in place, every op of this kind. Its results keep the strides they were traced with, which the views of them that follow rely on."""
    _replace(module, _NEUTRAL)


def trainable(module: fx.GraphModule) -> None:
    """Replaces in `module`, in place, LSTM layers that it differentiates: outside of autograd the host's kernel leaves no workspace, and its backward pass fails."""
    if any(node.target is _LSTM_BACKWARD for node in module.graph.nodes):
        _replace(module, _LSTM)


def laid_out(value: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor, or a copy where it has other strides than these."""
    return (
        value
        if value.stride() == strides
        else torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
    )


def has_host_ops(modules: Iterable[fx.GraphModule]) -> bool:
    """Whether one of the modules holds an op that `neutral` replaces."""
    return any(node.target in _NEUTRAL for module in modules for node in module.graph.nodes)


_LSTM_BACKWARD = torch.ops.aten.mkldnn_rnn_layer_backward.default

_LSTM: dict[Any, Callable[..., Any]] = {torch.ops.aten.mkldnn_rnn_layer.default: lstm_layer, _LSTM_BACKWARD: lstm_layer_backward}

_NEUTRAL: dict[Any, Callable[..., Any]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default: attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default: attention_backward,
    **_LSTM,
}


def _replace(module: fx.GraphModule, forms: Mapping[Any, Callable[..., Any]]) -> None:
    replaced = [node for node in module.graph.nodes if node.target in forms]
    for node in replaced:
        node.target = forms[node.target]
        for result in [user for user in node.users if user.target is operator.getitem and "val" in user.meta]:
            with module.graph.inserting_after(result):
                kept = module.graph.call_function(laid_out, (result, tuple(result.meta["val"].stride())))
            result.replace_all_uses_with(kept, delete_user_cb=lambda user, kept=kept: user is not kept)
    if replaced:
        module.recompile()


def _lstm(values: Sequence[torch.Tensor], *, reverse: bool, has_biases: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One direction of one layer over whole sequences, time first; from the last step to the first with `reverse`."""
    steps, of_input, of_hidden, input_bias, hidden_bias, hidden, cell = values
    weights = [of_input, of_hidden, input_bias, hidden_bias] if has_biases else [of_input, of_hidden]
    state = [each.reshape(1, *each.shape[-2:]) for each in (hidden, cell)]
    outputs, last_hidden, last_cell = torch._VF.lstm(
        steps.flip(0) if reverse else steps, state, weights, has_biases, 1, 0.0, torch.is_grad_enabled(), False, False
    )
    return outputs.flip(0) if reverse else outputs, last_hidden.reshape(hidden.shape), last_cell.reshape(cell.shape)


def _gradients(
    forward: Callable[..., tuple[torch.Tensor, ...]], values: Sequence[torch.Tensor], grads: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor, ...]:
    """The gradients of `values`, zeros where `forward` does not use one, given those of its results."""
    with torch.inference_mode(False), torch.enable_grad():
        inputs = [value.clone().requires_grad_() for value in values]
        known = [(result, grad.clone()) for result, grad in zip(forward(*inputs), grads, strict=True) if grad is not None]
        results, given = zip(*known, strict=True)
        found = torch.autograd.grad(results, inputs, given, allow_unused=True)
        return tuple(torch.zeros_like(value) if grad is None else grad for value, grad in zip(inputs, found, strict=True))


def _check_layer(mode: int, batch_sizes: Sequence[int]) -> None:
    assert mode == _LSTM_MODE and not batch_sizes, "the host's kernel is chosen for LSTM layers over whole sequences alone"
