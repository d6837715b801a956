"""Attention over groups in topological order, in segments (GDP, arXiv 1910.01578, section 3.3; Transformer-XL, arXiv 1901.02860, section 3.2).

    q = W_q h_t,    k, v = W_k, W_v [SG(h_(t-1)) ; h_t]        (SG = stop-gradient, t = segment)

A segment attends to itself and to the segment before it, so cost is linear in groups. There is no positional embedding: the group embeddings already hold
the topology. Within a layer no segment waits for another, so all are computed at once. Deviation: normalisation comes before each sublayer.
Legend: B placements, N groups, H hidden, S segments, L length of a segment, A heads.
"""

import torch
from jaxtyping import Bool, Float32
from torch import Tensor, nn
from torch.nn.functional import gelu, pad, scaled_dot_product_attention

from gdp.policy.superposition import SuperposedDense


class AttentionLayer(nn.Module):
    """Segment attention and a feed-forward network, both residual, both zero at first: an untrained layer changes nothing."""

    def __init__(self, *, hidden: int, heads: int, feed_forward: int, context: int | None, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.normalise_attention = nn.LayerNorm(hidden)
        self.query = SuperposedDense(hidden, hidden, context=context, generator=generator)
        self.key_value = SuperposedDense(hidden, 2 * hidden, context=context, generator=generator)
        self.project = SuperposedDense(hidden, hidden, context=context, generator=None)
        self.normalise_feed_forward = nn.LayerNorm(hidden)
        self.widen = SuperposedDense(hidden, feed_forward, context=context, generator=generator)
        self.narrow = SuperposedDense(feed_forward, hidden, context=context, generator=None)

    def forward(
        self,
        h_BSLH: Float32[Tensor, "batch segments length hidden"],
        present: Bool[Tensor, "segments length"],
        context: Float32[Tensor, " context"],
    ) -> Float32[Tensor, "batch segments length hidden"]:
        normal = self.normalise_attention(h_BSLH)
        h_BSLH = h_BSLH + self.project(self._attend(normal, present, context), context)
        wide = gelu(self.widen(self.normalise_feed_forward(h_BSLH), context))
        out: Tensor = h_BSLH + self.narrow(wide, context)
        return out

    def _attend(self, h_BSLH: Tensor, present: Tensor, context: Tensor) -> Tensor:
        batch, segments, length, hidden = h_BSLH.shape
        seen, visible = h_BSLH, present
        if segments > 1:
            seen = torch.cat([_segment_before(h_BSLH.detach(), dim=1), h_BSLH], dim=2)
            visible = torch.cat([_segment_before(present, dim=0), present], dim=1)
        query = self._split(self.query(h_BSLH, context))
        key, value = (self._split(part) for part in self.key_value(seen, context).chunk(2, dim=-1))
        mask = visible.repeat(batch, 1)[:, None, None, :]
        attended = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return attended.transpose(1, 2).reshape(batch, segments, length, hidden)

    def _split(self, x: Tensor) -> Tensor:
        """`[B, S, L, H] -> [B * S, A, L, H / A]`."""
        batch, segments, length, hidden = x.shape
        return x.reshape(batch * segments, length, self.heads, hidden // self.heads).transpose(1, 2)


def _segment_before(x: Tensor, *, dim: int) -> Tensor:
    """Every segment's predecessor; zeros (False) before the first."""
    return torch.cat([torch.zeros_like(x.narrow(dim, 0, 1)), x.narrow(dim, 0, x.shape[dim] - 1)], dim=dim)


class Decoder(nn.Module):
    """A stack of segment attention over a batch of placements of one graph."""

    def __init__(
        self, *, hidden: int, layers: int, heads: int, feed_forward: int, segment: int, context: int | None, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.segment = segment
        self.layers = nn.ModuleList(
            AttentionLayer(hidden=hidden, heads=heads, feed_forward=feed_forward, context=context, generator=generator)
            for _ in range(layers)
        )
        self.normalise = nn.LayerNorm(hidden)

    def forward(
        self, h_BNH: Float32[Tensor, "batch groups hidden"], context: Float32[Tensor, " context"]
    ) -> Float32[Tensor, "batch groups hidden"]:
        batch, groups, hidden = h_BNH.shape
        length = min(self.segment, groups)
        segments = -(-groups // length)
        padding = segments * length - groups
        h_BSLH = pad(h_BNH, (0, 0, 0, padding)).reshape(batch, segments, length, hidden)
        present = (torch.arange(segments * length, device=h_BNH.device) < groups).reshape(segments, length)
        for layer in self.layers:
            h_BSLH = layer(h_BSLH, present, context)
        out: Tensor = self.normalise(h_BSLH.reshape(batch, segments * length, hidden)[:, :groups])
        return out
