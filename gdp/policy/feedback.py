"""What a decoding pass is shown of the placement that the pass before it decided."""

import torch
from jaxtyping import Float32, Int64
from torch import Tensor
from torch.nn.functional import one_hot

from gdp.features.graph_tensors import GraphTensors

FEEDBACK_FEATURES = ("here", "producer_share", "consumer_share", "load", "param_share", "output_share")
"""Per (group, device) under a given placement: is the group there; which share of its input and output bytes comes from and goes to the device;
how long the device's other groups run, and how full they make it."""


def feedback(x: GraphTensors, device: Int64[Tensor, "batch groups"]) -> Float32[Tensor, "batch groups devices feedback_features"]:
    """`FEEDBACK_FEATURES` of every (group, device) under each placement."""
    here = one_hot(device, x.num_devices).to(x.time.dtype)
    size = (1 + x.edge_bytes)[None, :, None]
    inputs = torch.zeros_like(here).index_add_(1, x.edge_consumer, here[:, x.edge_producer] * size)
    outputs = torch.zeros_like(here).index_add_(1, x.edge_producer, here[:, x.edge_consumer] * size)
    others = [(here * share).sum(dim=1, keepdim=True) - here * share for share in (x.time, x.param_share, x.output_share)]
    return torch.stack([here, _share(inputs), _share(outputs), *(other.clamp(0, 4) for other in others)], dim=-1)


def _share(values: Tensor) -> Tensor:
    return values / values.sum(dim=-1, keepdim=True).clamp(min=1)
