"""The suite of the placement papers: training steps of TensorFlow programs, from ColRL (2017), HDP (2018) and GDP (2019; table 1), and the usual networks beside them."""

import functools
from collections.abc import Callable

from gdp.graph import Graph
from gdp.workloads.amoebanet import amoebanet_training
from gdp.workloads.bert import bert_training
from gdp.workloads.gnmt import gnmt_training
from gdp.workloads.inception_v3 import inception_v3_training
from gdp.workloads.nasnet import nasnet_large_training, nasnet_mobile_training
from gdp.workloads.resnet import resnet_training
from gdp.workloads.rnnlm import rnnlm_training
from gdp.workloads.split import Split
from gdp.workloads.transformer_xl import transformer_xl_training
from gdp.workloads.vgg import vgg_training
from gdp.workloads.wavenet import wavenet_training

Captures = tuple[tuple[str, Callable[[], Graph]], ...]
"""Names of workloads, each with what captures it."""

PAPERS_SUITE: tuple[tuple[str, Split, Captures], ...] = (
    ("rnnlm", "pretraining", tuple((f"rnnlm-{n}-training", functools.partial(rnnlm_training, n)) for n in (2, 4, 8))),
    (
        "resnet",
        "pretraining",
        (
            ("resnet-50-training", functools.partial(resnet_training, 50)),
            ("resnet-101-training", functools.partial(resnet_training, 101)),
            ("resnet-152-training", functools.partial(resnet_training, 152)),
        ),
    ),
    ("vgg", "pretraining", (("vgg-16-training", vgg_training),)),
    ("bert", "pretraining", (("bert-base-training", bert_training),)),
    (
        "wavenet",
        "validation",
        (
            ("wavenet-18-training", functools.partial(wavenet_training, 2)),
            ("wavenet-36-training", functools.partial(wavenet_training, 4)),
        ),
    ),
    ("gnmt", "hold-out", tuple((f"gnmt-{n}-training", functools.partial(gnmt_training, n)) for n in (2, 4, 8))),
    (
        "transformer-xl",
        "hold-out",
        tuple((f"transformer-xl-{n}-training", functools.partial(transformer_xl_training, n)) for n in (2, 4, 8)),
    ),
    (
        "inception",
        "hold-out",
        (
            ("inception-v3-training", inception_v3_training),
            ("inception-v3-batch-64-training", functools.partial(inception_v3_training, 64)),
        ),
    ),
    ("amoebanet", "hold-out", (("amoebanet-d-training", amoebanet_training),)),
    (
        "nasnet",
        "hold-out",
        (("nasnet-a-mobile-training", nasnet_mobile_training), ("nasnet-a-large-training", nasnet_large_training)),
    ),
)
"""Per family: its split and its workloads. AmoebaNet and NASNet share a search space, so they share a split; human-expert placements: `datasets/experts/`."""
