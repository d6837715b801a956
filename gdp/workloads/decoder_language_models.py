"""GPT-2 (Radford et al., 2019) and Llama 2 (Touvron et al., arXiv 2307.09288), the published sizes, by the modules of transformers.

GPT-2 in single precision on sequences of 1 024 tokens, its context; Llama 2 in bfloat16 on 4 096, its context. Batch sizes are ours. Deviations: no dropout; Llama's parameters and
slots are all bfloat16.
"""

import torch

from gdp.workloads.torch_step import Example, token_loss
from gdp.workloads.transformers_modules import Logits, unmasked_attention


def gpt2(num_layers: int, width: int, num_heads: int, *, batch_size: int) -> Example:
    """GPT-2 of 12 x 768 (the smallest) to 48 x 1600 (XL); the output layer is the token embedding."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=num_layers, n_embd=width, n_head=num_heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    config._attn_implementation = unmasked_attention()
    return _language_model(GPT2LMHeadModel(config), batch_size, length=1024)


def llama_2_7b(*, batch_size: int) -> Example:
    """Llama 2 of 7 billion parameters, whose sizes are the defaults of the configuration."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig()
    config._attn_implementation = unmasked_attention()
    return _language_model(LlamaForCausalLM(config).bfloat16(), batch_size, length=4096)


def _language_model(model: torch.nn.Module, batch_size: int, *, length: int) -> Example:
    tokens = torch.empty(batch_size, length, dtype=torch.int64)
    return Example(module=Logits(model, names=("input_ids",), caches=True), inputs=(tokens,), targets=(tokens,), loss=token_loss)
