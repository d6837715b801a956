"""T5 (Raffel et al., JMLR 2020): an encoder-decoder Transformer with relative position biases, the published base and large sizes, by the module of transformers.

512 tokens in, 114 out, the paper's lengths of its denoising objective (section 3.1.4, as released); batch sizes are ours. Deviation: no dropout.
"""

import torch

from gdp.workloads.torch_step import Example, token_loss
from gdp.workloads.transformers_modules import Logits

_SIZES = {"base": (12, 768, 12, 3072), "large": (24, 1024, 16, 4096)}


def t5(size: str, *, batch_size: int) -> Example:
    """T5 `base` or `large`; the output layer is the token embedding."""
    from transformers import T5Config, T5ForConditionalGeneration

    num_layers, width, num_heads, inner = _SIZES[size]
    config = T5Config(num_layers=num_layers, d_model=width, num_heads=num_heads, d_ff=inner, dropout_rate=0.0)
    source, target = (torch.empty(batch_size, length, dtype=torch.int64) for length in (512, 114))
    module = Logits(T5ForConditionalGeneration(config), names=("input_ids", "decoder_input_ids"), caches=True)
    return Example(module=module, inputs=(source, target), targets=(target,), loss=token_loss)
