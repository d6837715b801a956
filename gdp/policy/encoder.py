"""GraphSAGE with max pooling over producers and consumers (GDP, arXiv 1910.01578, section 3.2; Hamilton et al., NeurIPS 2017, equation 3).

    h_N(v) = max over u in N(v) of sigmoid(W h_u + b),    h_v' = f(concat(h_v, h_N(v)))

Deviations: producers and consumers are pooled apart, with weights of their own, so that a group knows which way data flows; the pooled dense layer
also sees the edge (how much data); each layer is residual and normalised. Group inputs are features plus the mean embedding of the group's op types.
Legend: N groups, E edges, T (group, type) pairs, H hidden.
"""

import warnings

import torch
from jaxtyping import Float32, Int64
from torch import Tensor, nn

from gdp.features.config import EDGE_FEATURES, FeatureConfig
from gdp.features.graph_tensors import GraphTensors
from gdp.policy.initialise import dense, embedding

with warnings.catch_warnings():  # importing torch-geometric 2.8 calls torch.jit.script, which torch has deprecated since
    warnings.simplefilter("ignore", DeprecationWarning)
    from torch_geometric.utils import scatter


class MaxPool(nn.Module):
    """`max over u in N(v) of sigmoid(W h_u + V e_uv + b)`; zero where there is no neighbour."""

    def __init__(self, hidden: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.neighbour = dense(hidden, hidden, generator=generator)
        self.edge = dense(len(EDGE_FEATURES), hidden, generator=generator, bias=False)

    def forward(
        self,
        h_NH: Float32[Tensor, "groups hidden"],
        source: Int64[Tensor, " edges"],
        target: Int64[Tensor, " edges"],
        edge: Float32[Tensor, "edges edge_features"],
    ) -> Float32[Tensor, "groups hidden"]:
        message_EH = torch.sigmoid(self.neighbour(h_NH)[source] + self.edge(edge))
        out: Tensor = scatter(message_EH, target, dim=0, dim_size=len(h_NH), reduce="max")
        return out


class SageLayer(nn.Module):
    """One residual step of message passing in both directions."""

    def __init__(self, hidden: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.producers = MaxPool(hidden, generator=generator)
        self.consumers = MaxPool(hidden, generator=generator)
        self.combine = dense(3 * hidden, hidden, generator=generator)
        self.normalise = nn.LayerNorm(hidden)

    def forward(self, h_NH: Float32[Tensor, "groups hidden"], x: GraphTensors) -> Float32[Tensor, "groups hidden"]:
        from_producers_NH = self.producers(h_NH, x.edge_producer, x.edge_consumer, x.edge)
        from_consumers_NH = self.consumers(h_NH, x.edge_consumer, x.edge_producer, x.edge)
        combined_NH = self.combine(torch.cat([h_NH, from_producers_NH, from_consumers_NH], dim=-1))
        out: Tensor = self.normalise(h_NH + torch.relu(combined_NH))
        return out


class Encoder(nn.Module):
    """Embeds every group of a graph."""

    def __init__(self, features: FeatureConfig, *, hidden: int, type_embedding: int, layers: int, generator: torch.Generator) -> None:
        super().__init__()
        self.op_type = embedding(features.num_types, type_embedding, generator=generator)
        self.embed = dense(features.num_group_features + type_embedding, hidden, generator=generator)
        self.normalise = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(SageLayer(hidden, generator=generator) for _ in range(layers))

    def forward(self, x: GraphTensors) -> Float32[Tensor, "groups hidden"]:
        type_TH = self.op_type(x.type_id) * x.type_share[:, None]
        types_NH = scatter(type_TH, x.type_group, dim=0, dim_size=x.num_groups, reduce="sum")
        h_NH: Tensor = self.normalise(self.embed(torch.cat([x.group, types_NH], dim=-1)))
        for layer in self.layers:
            h_NH = layer(h_NH, x)
        return h_NH
