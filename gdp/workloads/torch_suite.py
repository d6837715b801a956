"""Today's models, from PyTorch at published sizes: each as a forward pass (inference) and as a training step with AdamW.

Captured on the meta device: shapes and costs, no weights. What a graph is, with its source, sizes and deviations, stands at the head of its builder.
"""

import functools
from collections.abc import Callable

from gdp.graph import Graph
from gdp.workloads.decoder_language_models import gpt2, llama_2_7b
from gdp.workloads.diffusion_unet import diffusion_unet
from gdp.workloads.graph_network import graph_network
from gdp.workloads.mamba import mamba_130m
from gdp.workloads.mixtral import mixtral
from gdp.workloads.papers_suite import Captures
from gdp.workloads.split import Split
from gdp.workloads.t5 import t5
from gdp.workloads.torch_step import Example, inference_graph, training_graph
from gdp.workloads.two_tower_retrieval import two_tower_retrieval
from gdp.workloads.vision_transformer import vision_transformer
from gdp.workloads.whisper import whisper_small

_Build = Callable[..., Example]


def _graph(capture: Callable[[Callable[[], Example]], Graph], build: _Build, batch_size: int | None) -> Graph:
    return capture(build if batch_size is None else functools.partial(build, batch_size=batch_size))


def _both(name: str, build: _Build, *, inference: int | None, training: int | None) -> Captures:
    """The two graphs of a model, with their batch sizes; `None` where a model takes none."""
    return (
        (f"{name}-inference", functools.partial(_graph, inference_graph, build, inference)),
        (f"{name}-training", functools.partial(_graph, training_graph, build, training)),
    )


TORCH_SUITE: tuple[tuple[str, Split, Captures], ...] = (
    (
        "decoder-transformer",
        "pretraining",
        (
            *_both("gpt2", functools.partial(gpt2, 12, 768, 12), inference=8, training=8),
            *_both("gpt2-xl", functools.partial(gpt2, 48, 1600, 25), inference=4, training=2),
            *_both("llama-2-7b", llama_2_7b, inference=2, training=1),
        ),
    ),
    ("mixture-of-experts", "pretraining", _both("mixtral-8x7b", mixtral, inference=4, training=2)),
    (
        "t5",
        "pretraining",
        (
            *_both("t5-base", functools.partial(t5, "base"), inference=16, training=16),
            *_both("t5-large", functools.partial(t5, "large"), inference=16, training=8),
        ),
    ),
    ("u-net", "pretraining", _both("stable-diffusion-unet", diffusion_unet, inference=2, training=2)),
    (
        "vision-transformer",
        "validation",
        (
            *_both("vit-b-16", functools.partial(vision_transformer, "base"), inference=64, training=64),
            *_both("vit-l-16", functools.partial(vision_transformer, "large"), inference=64, training=32),
        ),
    ),
    ("mamba", "validation", _both("mamba-130m", mamba_130m, inference=4, training=1)),
    ("two-tower-recommender", "validation", _both("two-tower-retrieval", two_tower_retrieval, inference=8192, training=8192)),
    ("whisper", "hold-out", _both("whisper-small", whisper_small, inference=16, training=4)),
    (
        "graph-network",
        "hold-out",
        (
            *_both("gcn-arxiv", functools.partial(graph_network, "gcn"), inference=None, training=None),
            *_both("graphsage-arxiv", functools.partial(graph_network, "sage"), inference=None, training=None),
        ),
    ),
)
"""Per family: its split and its workloads. Families that the catalog has in smaller sizes, too, are in one split with them."""
