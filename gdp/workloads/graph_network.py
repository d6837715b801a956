"""Graph networks on the citation graph ogbn-arxiv (Hu et al., NeurIPS 2020): GCN (Kipf and Welling, ICLR 2017) and GraphSAGE (Hamilton et al., NeurIPS 2017).

Three layers of 256 with batch normalisation, as in the benchmark's reference code, on the whole graph in one step; what is connected with what does not matter, only how many edges
there are. Layers are those of torch-geometric. The edges' weights of GCN, which that code computes once, are an input. Deviations: no dropout; the loss counts every node.
"""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

from gdp.workloads.torch_step import Example

NODES, EDGES, NUMBERS, CLASSES, WIDTH = 169_343, 2 * 1_166_243, 128, 40, 256
"""Every edge is there both ways; GCN has one from each node to itself, too."""


class GraphNetwork(nn.Module):
    """`(features [nodes, 128], edges [2, edges], weight [edges])` -> `[nodes, 40]`; GraphSAGE takes no weight."""

    def __init__(self, layer: Literal["gcn", "sage"]) -> None:
        from torch_geometric.nn import GCNConv, SAGEConv

        super().__init__()
        widths = (NUMBERS, WIDTH, WIDTH, CLASSES)
        pairs = list(zip(widths, widths[1:], strict=False))
        self.layers = nn.ModuleList(GCNConv(*pair, normalize=False) if layer == "gcn" else SAGEConv(*pair) for pair in pairs)
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH) for _ in widths[1:-1])

    def forward(self, features: torch.Tensor, *edges: torch.Tensor) -> torch.Tensor:
        x = features
        for layer, norm in zip(self.layers, self.norms, strict=False):
            x = F.relu(norm(layer(x, *edges)))
        return self.layers[-1](x, *edges)  # type: ignore[no-any-return]


def graph_network(layer: Literal["gcn", "sage"]) -> Example:
    """A network of such layers on all of the graph."""
    num_edges = EDGES + NODES if layer == "gcn" else EDGES
    edges = (torch.empty(2, num_edges, dtype=torch.int64), *([torch.empty(num_edges)] if layer == "gcn" else []))
    labels = torch.empty(NODES, dtype=torch.int64)
    return Example(module=GraphNetwork(layer), inputs=(torch.empty(NODES, NUMBERS), *edges), targets=(labels,), loss=F.cross_entropy)
