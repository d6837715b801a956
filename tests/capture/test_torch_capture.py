"""Capture of PyTorch modules: graphs known by hand, programs that compute what the module computes, and errors that help."""

import dataclasses
import logging
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from gdp.capture.exported import COPIED_STATE_BYTES, INPUT
from gdp.capture.torch import Captured, capture
from gdp.errors import InputError
from gdp.graph import Graph, Phase


def seeded(module: nn.Module) -> nn.Module:
    """The module with weights that a test can rely on."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.1, generator=generator)
    return module.eval()


def edges(graph: Graph) -> set[tuple[str, str]]:
    return {(graph.name[p], graph.name[c]) for p, c in zip(graph.edge_producer, graph.edge_consumer, strict=True)}


def of(graph: Graph, values: np.ndarray | tuple[str, ...]) -> dict[str, Any]:
    """By op name."""
    return dict(zip(graph.name, values, strict=True))


def check_program(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Captured:
    """The captured program, after its results are found equal to the module's and its ops equal to the graph's."""
    captured = capture(module, args, kwargs)
    with torch.no_grad():
        wanted = pytree.tree_leaves(module(*args, **(kwargs or {})))
        found = pytree.tree_leaves(captured.program.module()(*args, **(kwargs or {})))
    torch.testing.assert_close(found, wanted)
    nodes = {node.name for node in captured.program.graph.nodes}
    assert set(captured.graph.name) <= nodes
    assert (captured.graph.phase == Phase.FORWARD).all()
    return captured


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.dropout(F.relu_(self.norm(self.conv(x))), 0.5, self.training).mean((2, 3)))


def test_a_small_network_is_the_graph_that_one_writes_by_hand() -> None:
    graph = check_program(seeded(Small()), (torch.ones(2, 3, 8, 8),)).graph
    assert graph.op_type == (
        INPUT,
        "aten.conv2d.default",
        "aten._native_batch_norm_legit_no_training.default",
        "aten.relu.default",
        "aten.mean.dim",
        "aten.linear.default",
    )
    assert graph.name == ("x", "conv2d", "_native_batch_norm_legit_no_training", "relu", "mean", "linear")
    assert graph.module_path == ("", "conv", "norm", "", "", "head")
    np.testing.assert_array_equal(graph.edge_producer, [0, 1, 2, 3, 4])
    np.testing.assert_array_equal(graph.edge_consumer, [1, 2, 3, 4, 5])
    activation = 2 * 4 * 8 * 8
    np.testing.assert_array_equal(graph.flops, [0, 2 * activation * 27, activation, activation, activation, 2 * 2 * 4 * 2])
    np.testing.assert_array_equal(
        graph.accessed_bytes,
        4 * np.array([0, 2 * 3 * 64 + 108 + 4 + activation, 2 * activation + 16, 2 * activation, activation + 8, 8 + 8 + 2 + 4]),
    )
    np.testing.assert_array_equal(graph.param_bytes, 4 * np.array([0, 108 + 4, 16, 0, 0, 8 + 2]))
    np.testing.assert_array_equal(graph.temp_bytes, 0)
    np.testing.assert_array_equal(graph.colocation_group, Graph.NO_GROUP)
    assert graph.tensor_shape == ((2, 3, 8, 8), (2, 4, 8, 8), (2, 4, 8, 8), (2, 4, 8, 8), (2, 4), (2, 2))
    assert set(graph.tensor_dtype) == {"float32"}
    assert graph.tensor_bytes.tolist() == [4 * int(np.prod(shape)) for shape in graph.tensor_shape]
    assert f"torch {torch.__version__}" in graph.source and "Small" in graph.source


def test_the_meta_device_gives_the_same_graph() -> None:
    real = capture(seeded(Small()), (torch.ones(2, 3, 8, 8),)).graph
    with torch.device("meta"):
        shapes = capture(Small().eval(), (torch.empty(2, 3, 8, 8),)).graph
    assert shapes.sha256 == real.sha256


class Split(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        first, second, third = x.split([1, 2, 3], dim=1)
        values, indices = third.topk(2)
        return {"sum": first + values, "second": second.exp(), "indices": indices * 2, "nothing": None}


def test_picking_an_output_is_no_op_and_edges_carry_the_picked_tensor() -> None:
    graph = check_program(Split(), (torch.randn(4, 6, generator=torch.Generator().manual_seed(0)),)).graph
    assert graph.name == ("x", "split_with_sizes", "topk", "add", "exp", "mul")
    carried = {
        (graph.name[producer], graph.name[consumer]): graph.tensor_shape[tensor]
        for producer, consumer, tensor in zip(graph.edge_producer, graph.edge_consumer, graph.edge_tensor, strict=True)
    }
    assert carried == {
        ("x", "split_with_sizes"): (4, 6),
        ("split_with_sizes", "topk"): (4, 3),
        ("split_with_sizes", "add"): (4, 1),
        ("split_with_sizes", "exp"): (4, 2),
        ("topk", "add"): (4, 2),
        ("topk", "mul"): (4, 2),
    }
    dtypes = {
        graph.name[c]: graph.tensor_dtype[t] for c, t in zip(graph.edge_consumer, graph.edge_tensor, strict=True) if graph.name[c] == "mul"
    }
    assert dtypes == {"mul": "int64"}
    assert of(graph, graph.works) == {"x": False, "split_with_sizes": False, "topk": True, "add": True, "exp": True, "mul": True}


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = nn.Parameter(self.embed.weight.data)
        self.free = nn.Linear(4, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.out(self.free(self.embed(ids)))


@pytest.mark.parametrize("same_object", [True, False])
def test_tied_parameters_are_kept_once_and_hold_their_consumers_together(same_object: bool) -> None:
    module = seeded(Tied())
    if same_object:
        module.out.weight = module.embed.weight
    graph = check_program(module, (torch.tensor([1, 2]),)).graph
    group, kept = of(graph, graph.colocation_group), of(graph, graph.param_bytes)
    assert group["embedding"] == group["linear_1"] == 0
    assert group["linear"] == Graph.NO_GROUP
    assert (kept["embedding"], kept["linear"], kept["linear_1"]) == (160, 80, 0)


class Shared(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(size))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * self.table, (x - 1) / self.table


def test_a_small_buffer_is_copied_and_a_large_one_holds_its_consumers_together() -> None:
    small = capture(Shared(4), (torch.ones(4),)).graph
    assert of(small, small.param_bytes) == {"x": 0, "mul": 16, "sub": 0, "div": 16}
    assert (small.colocation_group == Graph.NO_GROUP).all()
    size = COPIED_STATE_BYTES // 4 + 1
    large = capture(Shared(size), (torch.ones(size),)).graph
    assert of(large, large.param_bytes) == {"x": 0, "mul": 4 * size, "sub": 0, "div": 0}
    assert of(large, large.colocation_group) == {"x": -1, "mul": 0, "sub": -1, "div": 0}


class TransposedWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.t()


def test_a_view_of_a_parameter_stays_with_what_consumes_it() -> None:
    graph = check_program(TransposedWeight(), (torch.ones(2, 5),)).graph
    assert of(graph, graph.colocation_group) == {"x": -1, "t": 0, "matmul": 0}


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.count
        self.count.add_(x.sum())
        return y + 1


def test_the_next_value_of_a_buffer_stays_with_the_present_one() -> None:
    graph = capture(Counting(), (torch.ones(3),)).graph
    assert of(graph, graph.colocation_group) == {"x": -1, "mul": 0, "sum_1": -1, "add": 0, "add_1": -1}
    assert of(graph, graph.param_bytes)["mul"] == 4


def test_running_statistics_stay_with_their_normalisation() -> None:
    graph = capture(Small().train(), (torch.ones(2, 3, 8, 8),)).graph
    kept = of(graph, graph.param_bytes)
    assert kept["_native_batch_norm_legit_functional"] == 4 * 4 * 4
    assert sum(kept.values()) == 4 * (108 + 4 + 16 + 10) + 8  # the counter of batches is one int64


class WritesInput(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        x.add_(1)
        return y


def test_a_written_input_stays_with_what_writes_it() -> None:
    graph = capture(WritesInput(), (torch.ones(3),)).graph
    assert of(graph, graph.colocation_group) == {"x": 0, "mul": -1, "add": 0}


class Awkward(nn.Module):
    """Writes through a view, constants, other types, nested inputs, casts, no_grad inside, and a result that is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, batch: dict[str, Any], scale: float, *, flag: bool) -> tuple[Any, ...]:
        y = batch["a"] * scale
        y[0].add_(1)
        with torch.no_grad():
            z = y + self.offset + torch.tensor(5.0)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            w = z @ batch["nested"][0]
        copy = y.clone()
        return w, copy if flag else None, y.t().reshape(-1), batch["a"], F.dropout(y, 0.5, False), z.relu_().bool()


def test_awkward_programs_compute_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    batch = {"a": torch.randn(3, 3, generator=generator), "nested": [torch.randn(3, 2, generator=generator)]}
    graph = check_program(Awkward(), (batch, 0.5), {"flag": True}).graph
    assert graph.op_type.count(INPUT) == 2
    assert "bfloat16" in graph.tensor_dtype and "bool" in graph.tensor_dtype
    assert not any("assert" in op or "dropout" in op for op in graph.op_type)


class Copies(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


def test_a_copy_that_is_returned_is_a_copy() -> None:
    captured, x = capture(Copies(), (torch.ones(3),)), torch.ones(3)
    assert captured.graph.op_type == (INPUT, "aten.clone.default")
    assert captured.program.module()(x).data_ptr() != x.data_ptr()


@dataclasses.dataclass
class Result:
    first: torch.Tensor
    second: torch.Tensor | None


class ReturnsRecord(nn.Module):
    def forward(self, x: torch.Tensor) -> Result:
        return Result(first=x + 1, second=None)


def test_a_dataclass_can_be_returned() -> None:
    torch.export.register_dataclass(Result)
    assert capture(ReturnsRecord(), (torch.ones(3),)).graph.name == ("x", "add")


class Sizes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = torch.nonzero(x)
        return torch.zeros(chosen.shape[0] + 2) + x.sum().item()


def test_numbers_known_only_while_running_are_tensors_of_one_number() -> None:
    graph = capture(Sizes(), (torch.ones(5),)).graph
    assert any(shape == (-1,) for shape in graph.tensor_shape)
    assert "aten.item.default" in graph.op_type and any(op.startswith("_operator.") for op in graph.op_type)
    assert all((a, b) in edges(graph) for a, b in (("x", "nonzero"), ("x", "sum_1")))


@pytest.mark.parametrize(
    ("module", "inputs"),
    [
        (lambda: nn.LSTM(4, 8, 2, batch_first=True), (torch.ones(2, 5, 4),)),
        (lambda: nn.GRU(4, 8), (torch.ones(5, 2, 4),)),
        (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2), (torch.ones(2, 5, 8),)),
        (lambda: nn.MultiheadAttention(8, 2), (torch.ones(5, 2, 8),) * 3),
        (
            lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 2, 2), nn.ReLU(inplace=True), nn.Upsample(scale_factor=2)),
            (torch.ones(1, 3, 4, 4),),
        ),
    ],
    ids=["lstm", "gru", "encoder", "attention", "upsampling"],
)
def test_modules_of_torch(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    built = seeded(module())
    graph = check_program(built, inputs).graph
    assert graph.param_bytes.sum() == 4 * sum(parameter.numel() for parameter in built.parameters())


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "vit"])
def test_transformers(name: str) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `hf` is not installed")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    ids = torch.zeros(1, 8, dtype=torch.int64, device="meta")
    with torch.device("meta"):
        match name:
            case "gpt2":
                module = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50))
            case "llama":
                module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**size, num_key_value_heads=2, vocab_size=50))
            case "bert":
                module = transformers.BertModel(transformers.BertConfig(**size, vocab_size=50))
            case _:
                module = transformers.ViTModel(transformers.ViTConfig(**size, image_size=32, patch_size=8))
    inputs = torch.zeros(1, 3, 32, 32, device="meta") if name == "vit" else ids
    graph = capture(module.eval(), (inputs,), {} if name in ("vit", "bert") else {"use_cache": False}).graph
    parameters = sum(parameter.numel() * 4 for parameter in module.parameters())
    buffers = graph.param_bytes.sum() - parameters
    assert -(2**12) * 4 <= buffers <= 2**16  # unused parameters (BERT's pooled types, ViT's mask) and small buffers
    assert graph.op_type.count("aten.scaled_dot_product_attention.default") == 2
    tied = {op for op, group in zip(graph.op_type, graph.colocation_group, strict=True) if group >= 0}
    assert ("aten.embedding.default" in tied) == (name == "gpt2")


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x
        return -x


class Sliced(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int(x.sum().item())]


class Nested(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


class Broken(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


@pytest.mark.parametrize(
    ("module", "args", "kwargs", "message"),
    [
        (nn.Identity(), (torch.ones(2),), {}, "computes nothing"),
        (Broken(), (), {}, "do not fit .*Broken.forward: missing a required argument: 'x'"),
        (Broken(), (torch.ones(3),), {"y": 1}, "unexpected keyword argument 'y'"),
        (Broken(), (torch.ones(5),), {}, r"cannot be captured: .*\(at .*test_torch_capture.py:\d+, `return self.layer\(x\)`\)"),
        (Branches(), (torch.ones(3),), {}, r"cannot be captured: .*\(at .*test_torch_capture.py:\d+, `if x.sum\(\) > 0:`\)"),
        (Sliced(), (torch.ones(3),), {}, "cannot be captured: GuardOnDataDependentSymNode"),
        (Nested(), (torch.ones(3),), {}, "operator 'cond' in its own forward.* runs a program of its own"),
    ],
)
def test_what_cannot_be_captured_is_explained(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=message) as error:
        capture(module, args, kwargs)
    assert "\n" not in str(error.value)
    assert capfd.readouterr() == ("", "")


class Leaves(nn.Module):
    def forward(self, x):
        sys.exit(0)


def test_a_module_that_ends_the_program_is_a_user_s_mistake():
    with pytest.raises(InputError, match="cannot be captured: SystemExit"):
        capture(Leaves(), (torch.ones(3),))


def test_nothing_is_logged_while_tracing(caplog):
    class Wrong(nn.Module):
        def forward(self, x):
            logging.getLogger("torch.export").error("loud")
            return x @ torch.ones(7)

    with pytest.raises(InputError, match="cannot be captured"):
        capture(Wrong(), (torch.ones(3),))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert logging.root.manager.disable == logging.NOTSET
