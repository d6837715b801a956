"""Maps of real small transformers models, held against accelerate's own checks; and the placements that no map can say."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from gdp.capture.torch import Captured, capture
from gdp.cluster import Cluster, Device
from gdp.errors import InputError
from gdp.export.device_map import device_map
from gdp.placement import Origin, Placement

LAYERS = 3


def cluster(*names: str) -> Cluster:
    count = len(names)
    return Cluster(
        name="pair",
        devices=tuple(
            Device(
                name=name,
                kind=name.partition(":")[0],
                memory_bytes=2**34,
                flops_per_s={"float32": 1e12},
                memory_bytes_per_s=1e11,
                op_overhead_s=0.0,
            )
            for name in names
        ),
        bandwidth_bytes_per_s=np.full((count, count), 1e10),
        latency_s=np.zeros((count, count)),
        channel=np.full((count, count), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )


GPUS = cluster("cuda:0", "cuda:1")


def placed(captured: Captured, device_of: Callable[[str, str], int]) -> Placement:
    """By name and module of each op."""
    graph = captured.graph
    device = np.array([device_of(name, module) for name, module in zip(graph.name, graph.module_path, strict=True)], np.int32)
    return Placement(device=device, origin=Origin(placer="user"))


def mapped(captured: Captured, device_of: Callable[[str, str], int], *, on: Cluster = GPUS) -> dict[str, int | str]:
    return device_map(captured.program, captured.graph, on, placed(captured, device_of))


@pytest.fixture(scope="module")
def llama() -> tuple[Any, Captured]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        use_cache=False,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        model = LlamaForCausalLM(config).eval()
    return model, capture(model, (), {"input_ids": torch.zeros((2, 8), dtype=torch.int64, device="meta")})


@pytest.fixture(scope="module")
def gpt2() -> tuple[Any, Captured]:
    from transformers import GPT2Config, GPT2LMHeadModel

    with torch.device("meta"):
        model = GPT2LMHeadModel(
            GPT2Config(
                vocab_size=64,
                n_positions=16,
                n_embd=32,
                n_layer=LAYERS,
                n_head=4,
                bos_token_id=0,
                eos_token_id=0,
                use_cache=False,
                tie_word_embeddings=True,
            )
        ).eval()
        model.tie_weights()
    return model, capture(model, (), {"input_ids": torch.zeros((2, 8), dtype=torch.int64, device="meta")})


def accepted(model: nn.Module, answer: dict[str, int | str]) -> None:
    """By accelerate, for every tensor of the state, and without a word."""
    from accelerate.utils.modeling import check_device_map, check_tied_parameters_on_same_device, clean_device_map, find_tied_parameters

    check_device_map(model, answer)
    check_tied_parameters_on_same_device(find_tied_parameters(model), answer)
    assert clean_device_map(dict(answer)) == answer  # nothing left to shorten


def split_at(layer: int) -> Callable[[str, str], int]:
    def device_of(name: str, module: str) -> int:
        parts = module.split(".")
        number = next((int(part) for part in parts if part.isdecimal()), None)
        if number is None:
            return int(parts[-1] in ("norm", "lm_head"))
        return int(number >= layer)

    return device_of


def test_layers_on_two_devices(llama: tuple[Any, Captured]) -> None:
    model, captured = llama
    answer = mapped(captured, split_at(2))
    assert answer == {
        "model.embed_tokens": 0,
        "model.layers.0": 0,
        "model.layers.1": 0,
        "model.layers.2": 1,
        "model.norm": 1,
        "model.rotary_emb": 0,
        "lm_head": 1,
    }
    accepted(model, answer)


def test_one_device_is_the_empty_name(llama: tuple[Any, Captured]) -> None:
    model, captured = llama
    answer = mapped(captured, lambda *_: 1)
    assert answer == {"": 1}
    accepted(model, answer)


def test_one_set_of_cores_is_accelerates_cpu(llama: tuple[Any, Captured]) -> None:
    _, captured = llama
    assert mapped(captured, lambda *_: 1, on=cluster("cuda:0", "cpu:0-3")) == {"": "cpu"}


def test_simulated_gpus_are_numbered_in_order(llama: tuple[Any, Captured]) -> None:
    _, captured = llama
    assert mapped(captured, lambda *_: 2, on=cluster("cpu:0", "gpu7", "gpu8")) == {"": 1}
    assert mapped(captured, lambda *_: 1, on=cluster("cpu:0", "cuda:5")) == {"": 5}


def test_tied_weights_lie_together(gpt2: tuple[Any, Captured]) -> None:
    model, captured = gpt2
    assert model.lm_head.weight is model.transformer.wte.weight
    answer = mapped(captured, lambda name, module: int(module.startswith("transformer.h.2") or module == "transformer.ln_f"))
    assert answer["transformer.wte"] == answer["lm_head"] == 0
    assert answer["transformer.h.2"] == 1
    accepted(model, answer)


def test_second_name_that_nothing_uses_lies_with_the_first() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.used = nn.Linear(4, 4, bias=False)
            self.again = nn.Linear(4, 4, bias=False)
            self.again.weight = self.used.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(self.first(x))

    model = Tied()
    answer = mapped(capture(model, (torch.zeros(2, 4),)), lambda name, module: int(module == "used"))
    assert answer == {"first": 0, "used": 1, "again": 1}
    accepted(model, answer)


def test_weights_without_a_consumer_are_covered() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(4, 4)
            self.spare = nn.Linear(4, 4)
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(self.used(x))

    model = Spare().eval()
    answer = mapped(capture(model, (torch.zeros(2, 4),)), lambda name, module: int(module == "norm"))
    assert answer == {"used": 0, "spare": 0, "norm": 1}
    accepted(model, answer)


def test_branch_that_meets_outside_of_its_modules_is_refused(llama: tuple[Any, Captured]) -> None:
    """The residual sum of a layer would find its terms on two devices."""
    _, captured = llama
    with pytest.raises(
        InputError, match=r"module 'model.layers.0' would take inputs from 'cuda:0' and 'cuda:1'.* cannot split that module"
    ):
        mapped(captured, lambda name, module: int(module.startswith("model.layers.0.mlp")))


def test_projections_of_one_attention_on_two_devices_are_refused(llama: tuple[Any, Captured]) -> None:
    _, captured = llama
    with pytest.raises(InputError, match=r"of module 'model.layers.0.self_attn' would take inputs from"):
        mapped(captured, lambda name, module: int(module == "model.layers.0.self_attn.q_proj"))


class Owner(nn.Module):
    """Two parameters of its own, used by two ops."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.shift = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.scale).relu() + self.shift


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Owner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_tensors_of_one_module_on_two_devices_are_refused() -> None:
    captured = capture(Around(), (torch.zeros(2, 4),))
    with pytest.raises(InputError, match=r"module 'inner' has 'scale' on 'cuda:0' and 'shift' on 'cuda:1'"):
        mapped(captured, lambda name, module: int(name.startswith("add")))


def test_parameter_with_consumers_on_two_devices_is_refused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x * self.scale) + self.scale

    with pytest.raises(InputError, match=r"parameter 'scale' is used on 'cuda:0' and on 'cuda:1'"):
        mapped(capture(Twice(), (torch.zeros(2, 4),)), lambda name, module: int(name.startswith("add")))


def test_computing_on_both_kinds_is_refused(llama: tuple[Any, Captured]) -> None:
    _, captured = llama
    with pytest.raises(InputError, match=r"computes on 'cpu:0' and on cuda:0, which no device_map can say"):
        mapped(captured, split_at(2), on=cluster("cpu:0", "cuda:0"))
    with pytest.raises(InputError, match=r"computes on 'cpu:0' and on cpu:1, which no device_map can say"):
        mapped(captured, split_at(2), on=cluster("cpu:0", "cpu:1"))


def test_program_without_tensors_is_refused() -> None:
    with pytest.raises(InputError, match="has no parameters or buffers"):
        mapped(capture(nn.ReLU(), (torch.zeros(2),)), lambda *_: 0)


def test_placement_of_another_graph_is_refused(llama: tuple[Any, Captured]) -> None:
    _, captured = llama
    with pytest.raises(InputError, match=r"the placement has 1 ops, the graph .* has"):
        device_map(captured.program, captured.graph, GPUS, Placement(device=np.zeros(1, np.int32), origin=Origin(placer="user")))
    with pytest.raises(InputError, match="uses device number 3, cluster 'pair' has 2"):
        mapped(captured, lambda *_: 3)
