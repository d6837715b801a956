"""Every size of a policy. It travels inside every checkpoint."""

import dataclasses
from typing import Literal

from gdp.errors import InputError

Decoding = Literal["sequential", "independent"]
"""Within a pass, groups are placed one after another, each seeing the schedule so far; or all at once, as GDP does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """The architecture. GDP as published is `decoding="independent"`, `passes=1`. JSON holds it without loss."""

    hidden: int = 64
    """width of group embeddings and attention; a multiple of `heads`."""
    type_embedding: int = 16
    """width of an op type's embedding."""
    sage_layers: int = 2
    """rounds of message passing in the encoder."""
    attention_layers: int = 2
    """layers of segment attention in the decoder."""
    heads: int = 4
    """attention heads."""
    segment: int = 128
    """groups per segment; a group attends to its segment and the one before."""
    feed_forward: int = 256
    """width inside the feed-forward network of a decoder layer."""
    head_width: int = 32
    """width of the hidden layer that scores (group, device) pairs."""
    superposition: bool = True
    """whether the decoder's dense layers are gated by the graph."""
    context: int = 32
    """width of the graph's summary that gates them."""
    passes: int = 1
    """decoding passes; each after the first sees the placement of the one before, and the last one is the placement."""
    decoding: Decoding = "sequential"
    """how the groups of one pass are decided."""
    finish_prior: float = 4.0
    """how strongly an untrained sequential policy prefers the device where a group ends first."""
    transfer_prior: float = 3.0
    """how strongly it prefers the device to which the fewest seconds of transfers lead."""
    max_devices: int = 16
    """largest cluster served: slot embeddings."""
    judge_width: int = 0
    """width of the network that judges changes of a placement before search tries them; 0 leaves it out."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.type is int and value < 1 and field.name not in ("attention_layers", "sage_layers", "judge_width"):
                raise InputError(f"{field.name} of the policy is {value}; it must be at least 1")
        if min(self.attention_layers, self.sage_layers, self.judge_width) < 0:
            raise InputError("attention_layers, sage_layers and judge_width of the policy must not be negative")
        if self.hidden % self.heads:
            raise InputError(f"hidden of the policy is {self.hidden}, no multiple of its {self.heads} heads; change either")
        if self.decoding not in ("sequential", "independent"):
            raise InputError(f"decoding of the policy is {self.decoding!r}; it must be 'sequential' or 'independent'")
        for name, prior in (("finish_prior", self.finish_prior), ("transfer_prior", self.transfer_prior)):
            if not 0 <= prior < 100:
                raise InputError(f"{name} of the policy is {prior}; it must be from 0 to 100")
