"""Today's models as stored: what they must weigh and compute, by published figures and closed forms; and the modules that are written anew, against the published ones."""

import copy
import functools

import numpy as np
import pytest
import torch
from torch import nn

from gdp.graph import Graph, Phase
from gdp.workloads.build import store
from gdp.workloads.catalog import CATALOG, stored_path, workload
from gdp.workloads.mamba import linear_scan, with_parallel_scan
from gdp.workloads.mixtral import with_placeable_experts
from gdp.workloads.torch_suite import TORCH_SUITE

NAMES = [name for _, _, captures in TORCH_SUITE for name, _ in captures]
MODELS = sorted({name.rpartition("-")[0] for name in NAMES})
PRODUCTS = ("mm.", "addmm.", "bmm.", "linear.", "matmul.", "conv", "scaled_dot")


@functools.cache
def stored(name: str) -> Graph:
    return workload(name).build()


def products(graph: Graph) -> float:
    """Operations of matrix products, convolutions and attention."""
    return float(sum(flops for kind, flops in zip(graph.op_type, graph.flops, strict=True) if any(one in kind for one in PRODUCTS)))


def test_every_graph_is_stored() -> None:
    assert all(stored_path(name).is_file() for name in NAMES)
    assert {entry.name for entry in CATALOG if entry.framework == "pytorch" and entry.capture is not None} == set(NAMES)


def test_a_family_is_in_the_split_it_had_and_whole_families_are_held_out() -> None:
    split = {entry.family: entry.split for entry in CATALOG}
    assert all(split[family] == given for family, given, _ in TORCH_SUITE)
    assert {family for family, given, _ in TORCH_SUITE if given == "hold-out"} == {"whisper", "graph-network"}


@pytest.mark.parametrize(
    ("model", "parameters", "bytes_each"),
    [
        ("gpt2", 124_439_808, 4),
        ("gpt2-xl", 1_557_611_200, 4),
        ("llama-2-7b", 6_738_415_616, 2),
        ("mixtral-8x7b", 46_702_792_704, 2),
        ("t5-base", 222_903_552, 4),
        ("t5-large", 737_668_096, 4),
        ("stable-diffusion-unet", 859_520_964, 4),
        ("vit-b-16", 86_567_656, 4),
        ("vit-l-16", 304_326_632, 4),
        ("mamba-130m", 129_135_360, 4),
        ("whisper-small", 241_734_912, 4),
        ("gcn-arxiv", 110_120, 4),
        ("graphsage-arxiv", 218_664, 4),
    ],
)
def test_parameters_are_as_many_as_published(model: str, parameters: int, bytes_each: int) -> None:
    """The checkpoints' own numbers (transformers, diffusers) and the Open Graph Benchmark's table. Buffers (tables of rotations, statistics) come on top, below 2 MB; when
    training, two slots and a counter for each that is trained: all but Whisper's encoder positions."""
    inference, training = stored(f"{model}-inference"), stored(f"{model}-training")
    assert 0 <= inference.param_bytes.sum() - bytes_each * parameters < 2 * 2**20
    frozen = 1500 * 768 if model == "whisper-small" else 0
    slots = 2 * bytes_each * (parameters - frozen)
    assert 0 <= training.param_bytes.sum() - bytes_each * parameters - slots < 2 * 2**20


def test_the_two_towers_are_their_tables_and_perceptrons() -> None:
    tables = (2_000_000 + 500_000) * 256 + 14 * 10_000 * 32
    perceptrons = sum(
        before * after + after
        for width in (3 * 256 + 8 * 32, 2 * 256 + 6 * 32)
        for before, after in ((width, 1024), (1024, 512), (512, 128))
    )
    assert stored("two-tower-retrieval-inference").param_bytes.sum() == 4 * (tables + perceptrons)


@pytest.mark.parametrize("model", MODELS)
def test_a_training_step_is_three_forward_passes(model: str) -> None:
    """Each product has two gradients. Attention's backward pass forms the scores once more; the first layer has no gradient of its input."""
    inference, training = stored(f"{model}-inference"), stored(f"{model}-training")
    work = np.bincount(training.phase, weights=training.flops, minlength=3)
    assert 1.5 < work[Phase.BACKWARD] / work[Phase.FORWARD] < 2.6
    updates = sum(kind == "aten._fused_adamw.default" for kind in training.op_type)
    assert (training.phase == Phase.UPDATE).sum() == 2 * updates
    assert (inference.phase == Phase.FORWARD).all()
    assert not any("nondeterministic" in kind or "dropout" in kind for kind in (*inference.op_type, *training.op_type))


@pytest.mark.parametrize(
    ("name", "tokens", "length", "layers", "width", "parameters"),
    [
        ("gpt2", 8 * 1024, 1024, 12, 768, 12 * 12 * 768**2 + 768 * 50_257),
        ("gpt2-xl", 2 * 1024, 1024, 48, 1600, 48 * 12 * 1600**2 + 1600 * 50_257),
        ("llama-2-7b", 4096, 4096, 32, 4096, 32 * (4 * 4096**2 + 3 * 4096 * 11_008) + 4096 * 32_000),
    ],
)
def test_language_models_take_six_operations_for_each_weight_and_token(
    name: str, tokens: int, length: int, layers: int, width: int, parameters: int
) -> None:
    """Kaplan et al. (arXiv 2001.08361), section 2.1: 6 N D, with the weights that are multiplied; and attention, whose 2 + 5 products are over all pairs of tokens."""
    attention = 7 * 2 * layers * tokens * length * width
    assert products(stored(f"{name}-training")) == 6 * parameters * tokens + attention


def test_mixtral_multiplies_two_experts_for_each_token_and_a_quarter_more_room() -> None:
    width, inner, layers, tokens = 4096, 14_336, 32, 4 * 2048
    experts = 1.25 * 2 * 3 * width * inner
    attention = 2 * width**2 + 2 * width * 1024
    weights = layers * (experts + attention + 8 * width) + width * 32_000
    pairs = 2 * 2 * layers * tokens * 2048 * width
    assert products(stored("mixtral-8x7b-inference")) == 2 * weights * tokens + pairs
    paths = {path.rpartition(".")[0] for path in stored("mixtral-8x7b-inference").module_path if path.endswith(".w1")}
    assert len(paths) == layers * 8


@pytest.mark.parametrize(("name", "multiply_adds_per_image"), [("vit-b-16", 17.58e9), ("vit-l-16", 61.55e9)])
def test_vision_transformers_multiply_as_much_as_published(name: str, multiply_adds_per_image: float) -> None:
    """torchvision's table of weights gives 17.56 and 61.55 GFLOPs (multiply-adds) at 224 x 224, attention left out or in."""
    assert products(stored(f"{name}-inference")) / 2 / 64 == pytest.approx(multiply_adds_per_image, rel=0.02)


def seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    return module.eval()


def test_a_scan_is_the_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    decay, update = (torch.rand(2, 16, 3, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    state, wanted = torch.zeros(2, 3, 4, dtype=torch.float64), []
    for step in range(16):
        state = decay[:, step] * state + update[:, step]
        wanted.append(state)
    torch.testing.assert_close(linear_scan(decay, update), torch.stack(wanted, 1))


def test_the_parallel_mamba_is_the_published_one() -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    config = transformers.MambaConfig(hidden_size=16, num_hidden_layers=2, state_size=4, vocab_size=50)
    published = seeded(transformers.MambaForCausalLM(config).double())
    ours = with_parallel_scan(copy.deepcopy(published)).double().eval()
    ours.load_state_dict(published.state_dict())
    assert type(ours.backbone.layers[0].mixer) is not type(published.backbone.layers[0].mixer)
    tokens = torch.arange(16).view(2, 8)
    with torch.no_grad():
        wanted, found = published(tokens).logits, ours(tokens).logits
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_experts_with_room_for_all_are_the_published_ones() -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    size = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32, "num_hidden_layers": 2}
    published = seeded(transformers.MixtralForCausalLM(transformers.MixtralConfig(**size, vocab_size=50)))
    ours = with_placeable_experts(copy.deepcopy(published), capacity_factor=4.0).eval()
    for layer, other in zip(ours.model.layers, published.model.layers, strict=True):
        for number, expert in enumerate(layer.mlp.experts.experts):
            w1, w3 = other.mlp.experts.gate_up_proj[number].chunk(2)
            w2 = other.mlp.experts.down_proj[number]
            expert.load_state_dict({"w1.weight": w1, "w3.weight": w3, "w2.weight": w2})
    tokens = torch.arange(24).view(2, 12)
    with torch.no_grad():
        wanted, found = published(tokens).logits, ours(tokens).logits
    assert wanted.std() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_an_expert_that_is_full_leaves_tokens_out() -> None:
    from gdp.workloads.mixtral import Experts

    experts = seeded(Experts(2, 4, 8, capacity_factor=1.0))
    tokens = torch.ones(4, 4)
    chosen, weight = torch.tensor([[0], [0], [0], [1]]), torch.ones(4, 1)
    with torch.no_grad():
        result = experts(tokens, chosen, weight)
        own = [experts.experts[number](tokens[:1])[0] for number in (0, 0, 1)]
    torch.testing.assert_close(result, torch.stack([own[0], own[1], torch.zeros(4), own[2]]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2-inference", "vit-b-16-training", "two-tower-retrieval-training", "gcn-arxiv-training"])
def test_the_stored_graph_is_the_one_that_is_built(name: str) -> None:
    pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    assert not store(workload(name), stored_path(name))
