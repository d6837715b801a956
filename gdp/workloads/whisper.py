"""Whisper (Radford et al., ICML 2023): speech recognition by an encoder-decoder Transformer, the published small size, by the module of transformers.

30 seconds of audio as 80 x 3 000 mel bins and 448 tokens of text, the longest there are; batch sizes are ours.
"""

import torch

from gdp.workloads.torch_step import Example, token_loss
from gdp.workloads.transformers_modules import Logits, unmasked_attention


def whisper_small(*, batch_size: int) -> Example:
    """Whisper of 12 + 12 layers of 768; the output layer is the token embedding."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=51_865,
        d_model=768,
        encoder_layers=12,
        decoder_layers=12,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        dropout=0.0,
    )
    config._attn_implementation = unmasked_attention()
    module = Logits(WhisperForConditionalGeneration(config), names=("input_features", "decoder_input_ids"), caches=True)
    tokens = torch.empty(batch_size, 448, dtype=torch.int64)
    return Example(module=module, inputs=(torch.empty(batch_size, 80, 3000), tokens), targets=(tokens,), loss=token_loss)
