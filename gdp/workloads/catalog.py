"""The named workloads and their splits. The split is by family: no family of validation or hold-out is seen in pretraining."""

import dataclasses
import difflib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from gdp.bundled import bundled
from gdp.capture.parquet import read_graph
from gdp.capture.torch import capture
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.runtime.verdict import Dispatch
from gdp.workloads.branching import branching_network, example_inputs
from gdp.workloads.doppler import feed_forward_net, llama_block, llama_layer, matrix_chain
from gdp.workloads.known_optimum import SolvedProblem, fork_join, independent_chains
from gdp.workloads.papers_suite import PAPERS_SUITE, Captures
from gdp.workloads.split import Split
from gdp.workloads.synthetic import cells, layered, series_parallel, unrolled_rnn
from gdp.workloads.torch_models import (
    decoder_transformer,
    mixture_of_experts,
    residual_cnn,
    transformer_encoder,
    two_tower_recommender,
    u_net,
    unrolled_lstm,
)
from gdp.workloads.torch_suite import TORCH_SUITE

Framework = Literal["synthetic", "pytorch", "tensorflow"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """A named graph, built when asked for."""

    name: str
    family: str
    """what it shares with others; all of a family are in one split."""
    framework: Framework
    split: Split
    build: Callable[[], Graph]
    """captures or draws the graph; the same one every time."""
    capture: Callable[[], Graph] | None = None
    """captures afresh what `build` reads from `datasets/` where it is stored (`python -m gdp.workloads.build` stores it)."""
    program: Callable[[], tuple[nn.Module, tuple[Any, ...]]] | None = None
    """the PyTorch module and its example inputs, where it has weights and can really run."""
    solved: Callable[[], SolvedProblem] | None = None
    """the graph with a cluster and the least step time of any placement on it, where that is known."""

    @property
    def dispatch(self) -> Dispatch:
        """How its devices choose what to run: PyTorch's queue keeps the program's order, TensorFlow's executor takes what is ready."""
        return "program_order" if self.framework == "pytorch" else "ready_order"


def workload(name: str) -> Workload:
    """The workload of this name. Raises `InputError` with the nearest names, and one of each family, when there is none."""
    names = [entry.name for entry in CATALOG]
    if name not in names:
        close = difflib.get_close_matches(name, names, n=3, cutoff=0.4)
        hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
        families = {entry.family: entry.name for entry in reversed(CATALOG)}
        examples = ", ".join(reversed([name for name in families.values() if name not in close]))
        raise InputError(
            f"there is no workload {name!r}; {hint}one of each family: {examples}; or name FILE.py:FUNCTION or a .parquet file"
        )
    return CATALOG[names.index(name)]


_SYNTHETIC = {"layered": layered, "series-parallel": series_parallel, "cells": cells, "unrolled-rnn": unrolled_rnn}


def _drawn(family: str, num_ops: int, training: bool, seed: int) -> Graph:
    return _SYNTHETIC[family](np.random.default_rng(seed), num_ops=num_ops, training=training)


def _synthetic(family: str, split: Split, *, sizes: tuple[int, ...], seeds: tuple[int, ...]) -> tuple[Workload, ...]:
    return tuple(
        Workload(
            name=f"{family}-{num_ops}-{'training' if training else 'inference'}-{seed}",
            family=family,
            framework="synthetic",
            split=split,
            build=functools.partial(_drawn, family, num_ops, training, seed),
        )
        for num_ops in sizes
        for training in (False, True)
        for seed in seeds
    )


def _pytorch(family: str, split: Split, *builds: tuple[str, Callable[[], Graph]]) -> tuple[Workload, ...]:
    return tuple(Workload(name=name, family=family, framework="pytorch", split=split, build=build) for name, build in builds)


def _branching_program() -> tuple[nn.Module, tuple[Any, ...]]:
    generator = torch.Generator().manual_seed(0)
    return branching_network(generator), example_inputs(generator)


def _branching() -> Graph:
    return capture(*_branching_program()).graph


def stored_path(name: str) -> Path:
    """Where the graph of the workload `name` is stored, if it is."""
    return bundled("datasets") / f"{name.replace('-', '_')}.parquet"


def _stored(name: str, capture: Callable[[], Graph]) -> Graph:
    """The stored graph where it is bundled, else a fresh capture."""
    path = stored_path(name)
    return read_graph(path) if path.is_file() else capture()


def _suite(framework: Framework, suite: tuple[tuple[str, Split, Captures], ...]) -> tuple[Workload, ...]:
    return tuple(
        Workload(
            name=name, family=family, framework=framework, split=split, build=functools.partial(_stored, name, capture), capture=capture
        )
        for family, split, captures in suite
        for name, capture in captures
    )


def _sharded(family: str, name: str, capture: Callable[[], Graph]) -> Workload:
    return Workload(
        name=name,
        family=family,
        framework="synthetic",
        split="hold-out",
        build=functools.partial(_stored, name, capture),
        capture=capture,
    )


def _known_optimum(name: str, solved: Callable[[], SolvedProblem]) -> Workload:
    return Workload(name=name, family="known-optimum", framework="synthetic", split="hold-out", build=lambda: solved().graph, solved=solved)


CATALOG: tuple[Workload, ...] = (
    *(
        entry
        for family in ("layered", "cells", "unrolled-rnn")
        for entry in _synthetic(family, "pretraining", sizes=(60, 200, 600), seeds=(0, 1, 2))
    ),
    *_pytorch(
        "residual-cnn",
        "pretraining",
        ("residual-cnn-18", residual_cnn),
        ("residual-cnn-34", functools.partial(residual_cnn, depths=(3, 4, 6, 3), batch_size=32)),
    ),
    *_pytorch(
        "transformer-encoder",
        "pretraining",
        ("transformer-encoder-6", transformer_encoder),
        ("transformer-encoder-12", functools.partial(transformer_encoder, num_layers=12, width=768, num_heads=12, batch_size=32)),
    ),
    *_pytorch(
        "decoder-transformer",
        "pretraining",
        ("decoder-transformer-6", decoder_transformer),
        ("decoder-transformer-12", functools.partial(decoder_transformer, num_layers=12, width=768, num_heads=12, length=512)),
    ),
    *_pytorch(
        "mixture-of-experts",
        "pretraining",
        ("mixture-of-experts-8", mixture_of_experts),
        ("mixture-of-experts-16", functools.partial(mixture_of_experts, num_layers=6, num_experts=16)),
    ),
    *_pytorch(
        "unrolled-lstm",
        "pretraining",
        ("unrolled-lstm-2", unrolled_lstm),
        ("unrolled-lstm-4", functools.partial(unrolled_lstm, num_layers=4)),
    ),
    *_pytorch("u-net", "pretraining", ("u-net-4", u_net), ("u-net-5", functools.partial(u_net, num_levels=5, width=48, image_size=256))),
    *_synthetic("series-parallel", "validation", sizes=(60, 200, 600), seeds=(0,)),
    *_pytorch(
        "two-tower-recommender",
        "validation",
        ("two-tower-recommender-8", two_tower_recommender),
        ("two-tower-recommender-24", functools.partial(two_tower_recommender, num_tables=24, batch_size=8192)),
    ),
    Workload(name="branching", family="branching", framework="pytorch", split="hold-out", build=_branching, program=_branching_program),
    *_suite("tensorflow", PAPERS_SUITE),
    *_suite("pytorch", TORCH_SUITE),
    _sharded("sharded-matrix-chain", "sharded-matrix-chain", matrix_chain),
    _sharded("sharded-feed-forward", "sharded-feed-forward", feed_forward_net),
    _sharded("sharded-llama", "sharded-llama-block", llama_block),
    _sharded("sharded-llama", "sharded-llama-layer", llama_layer),
    *(
        _known_optimum(
            f"chains-{chains}x{length}-on-{devices}",
            functools.partial(independent_chains, num_chains=chains, length=length, num_devices=devices),
        )
        for chains, length, devices in ((4, 3, 2), (3, 4, 3), (8, 5, 4))
    ),
    *(
        _known_optimum(
            f"fork-join-{branches}-{round(100 * transfer_s)}", functools.partial(fork_join, num_branches=branches, transfer_s=transfer_s)
        )
        for branches, transfer_s in ((8, 0.25), (9, 0.5), (10, 1.0))
    ),
)
"""Every named workload."""
