"""ViT (Dosovitskiy et al., ICLR 2021): images as sequences of 16 x 16 patches, the published base and large sizes, by the module of transformers.

224 x 224 images and 1 000 classes; batch sizes are ours.
"""

import torch
from torch.nn import functional as F

from gdp.workloads.torch_step import Example
from gdp.workloads.transformers_modules import Logits

_SIZES = {"base": (12, 768, 12, 3072), "large": (24, 1024, 16, 4096)}


def vision_transformer(size: str, *, batch_size: int) -> Example:
    """ViT-B/16 or ViT-L/16 with a linear classifier."""
    from transformers import ViTConfig, ViTForImageClassification

    num_layers, width, num_heads, inner = _SIZES[size]
    config = ViTConfig(num_hidden_layers=num_layers, hidden_size=width, num_attention_heads=num_heads, intermediate_size=inner)
    config.num_labels = 1000
    module = Logits(ViTForImageClassification(config), names=("pixel_values",), caches=False)
    return Example(
        module=module,
        inputs=(torch.empty(batch_size, 3, 224, 224),),
        targets=(torch.empty(batch_size, dtype=torch.int64),),
        loss=F.cross_entropy,
    )
