"""A small policy with its card, and a checkpoint folder of it."""

from pathlib import Path

import torch

from gdp.features.config import FeatureConfig
from gdp.hub.card import Card, Result
from gdp.hub.checkpoint import save_checkpoint
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Policy

CARD = Card(
    name="small-v1",
    summary="A policy to test with.",
    recipe="python train.py experiment=small",
    commit="0123abc",
    corpus="two graphs on two clusters",
    seeds=(0, 1),
    results=(
        Result(workload="a|b", cluster="p100x2", split="hold-out", evaluations=64, step_time_s=0.02, baseline="metis", baseline_s=0.04),
        Result(workload="c", cluster="p100x4", split="hold-out", evaluations=64, step_time_s=0.04, baseline="metis", baseline_s=0.02),
    ),
    limits="It is untrained.",
)


def small_policy(seed: int = 0) -> Policy:
    config = PolicyConfig(hidden=16, type_embedding=4, heads=2, segment=8, feed_forward=16, head_width=8, context=8)
    features = FeatureConfig(op_vocabulary=("add", "mm"), num_hash_buckets=4)
    return Policy(config, features, generator=torch.Generator().manual_seed(seed))


def small_checkpoint(folder: Path) -> Path:
    save_checkpoint(folder, small_policy(), card=CARD, metrics={"loss": 0.5}, train_config="seed: 0\n")
    return folder
