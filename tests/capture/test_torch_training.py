"""Capture of training steps: a graph known by hand, programs that take the same steps as PyTorch's own optimisers, costs by closed forms, and errors that help."""

import copy
import io
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count

from gdp.capture.exported import INPUT
from gdp.capture.torch import Captured
from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.errors import InputError
from gdp.graph import Graph, Phase

MakeOptimizer = Callable[[Any], torch.optim.Optimizer]

OPTIMIZERS: dict[str, MakeOptimizer] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "decaying sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, weight_decay=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "nesterov": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "ascent": lambda parameters: torch.optim.SGD(parameters, lr=0.01, maximize=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, betas=(0.8, 0.9)),
    "decaying adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01, weight_decay=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
}


class Everything(nn.Module):
    """Convolution, statistics that are written, writing in place, attention, a tied weight, a frozen one, one that nothing reads, and a part without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.words = nn.Embedding(10, 8)
        self.query = nn.Linear(8, 8)
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU())
        self.again = self.layers
        self.frozen = nn.Linear(8, 8).requires_grad_(False)
        self.unread = nn.Linear(3, 3)

    def forward(self, image: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
        pixels = self.relu(self.norm(self.conv(image))).flatten(2).transpose(1, 2)
        read = self.words(words)
        read[0].add_(1)
        mixed = F.scaled_dot_product_attention(self.query(read)[:, None], pixels[:, None], pixels[:, None])[:, 0]
        with torch.no_grad():
            scale = self.frozen(mixed)
        return self.again(self.layers(mixed) * scale) @ self.words.weight.t()


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def everything(optimizer: MakeOptimizer = OPTIMIZERS["adamw"], device: str = "cpu") -> TrainingStep:
    """In double precision, so that a step can be compared closely."""
    generator = torch.Generator().manual_seed(0)
    module = Everything().double().train()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.5, generator=generator)
    image = torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64)
    words, targets = torch.tensor([[1, 2, 3], [4, 4, 0]]), torch.tensor([[2, 3, 9], [4, 0, 1]])
    if device == "meta":
        module, image, words, targets = (one.to("meta") for one in (module, image, words, targets))
    return TrainingStep(module=module, inputs=(image, words), targets=(targets,), loss=token_loss, optimizer=optimizer(module.parameters()))


def run(captured: Captured, *inputs: Any) -> list[float]:
    """The losses of the captured steps, one after the other, on the program's own state."""
    module = captured.program.module()
    with torch.no_grad():
        return [module(*inputs).item() for _ in range(3)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_three_steps_are_those_of_eager_pytorch(name: str) -> None:
    step = everything(OPTIMIZERS[name])
    eager = copy.deepcopy(step.module)
    optimizer = OPTIMIZERS[name](eager.parameters())
    wanted = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = token_loss(eager(*step.inputs), *step.targets)
        loss.backward()
        optimizer.step()
        wanted.append(loss.item())

    captured = capture_training(step)
    assert run(captured, step.inputs, step.targets) == pytest.approx(wanted, rel=1e-10)
    state = captured.program.state_dict
    for path, value in [*eager.named_parameters(remove_duplicate=False), *eager.named_buffers()]:
        torch.testing.assert_close(state[f"module.{path}"], value, rtol=1e-8, atol=1e-10)
        if path.startswith("layers."):  # the program knows this weight under its other name
            continue
        for slot, kept in optimizer.state.get(value, {}).items():
            if slot == "step":
                assert state[f"optimizer.next_step.module.{path}"] == kept + 1
            elif kept is not None:
                torch.testing.assert_close(state[f"optimizer.{slot}.module.{path}"], kept, rtol=1e-8, atol=1e-10)
    slots = {path for path in state if path.startswith("optimizer.")}
    assert len(slots) == sum(len([kept for kept in held.values() if kept is not None]) for held in optimizer.state.values())


def test_a_saved_program_takes_the_same_step() -> None:
    step = everything()
    captured = capture_training(step)
    file = io.BytesIO()
    torch.export.save(captured.program, file)
    file.seek(0)
    loaded = torch.export.load(file)
    assert {node.name for node in loaded.graph.nodes} >= set(captured.graph.name)
    flat = [*step.inputs, *step.targets]
    results = []
    for program in (captured.program, loaded):
        given = iter(flat)
        state = {**program.state_dict, **program.constants}
        values = [next(given) if spec.target is None else state[spec.target] for spec in program.graph_signature.input_specs]
        with torch.no_grad():
            results.append(program.graph_module(*values))
    torch.testing.assert_close(results[0], results[1])


def test_the_meta_device_gives_the_same_graph() -> None:
    assert capture_training(everything(device="meta")).graph.sha256 == capture_training(everything()).graph.sha256


class Regression(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x)


def regression(**changed: Any) -> TrainingStep:
    module = changed.pop("module", Regression())
    given = {
        "module": module,
        "inputs": (torch.ones(5, 3),),
        "targets": (torch.ones(5, 2),),
        "loss": nn.MSELoss(),
        "optimizer": torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9),
    }
    return TrainingStep(**{**given, **changed})


def test_a_regression_is_the_graph_that_one_writes_by_hand() -> None:
    graph = capture_training(regression()).graph
    update = "update_module_out_weight"
    rows = [
        # name, type, phase, group, resident, operations
        ("inputs_0", INPUT, Phase.FORWARD, -1, 0, 0),
        ("targets_0", INPUT, Phase.FORWARD, -1, 0, 0),
        ("t", "aten.t.default", Phase.FORWARD, 0, 24, 0),
        ("mm", "aten.mm.default", Phase.FORWARD, 0, 0, 2 * 5 * 3 * 2),
        ("mse_loss", "aten.mse_loss.default", Phase.FORWARD, -1, 0, 10),
        ("ones_like_default", "aten.ones_like.default", Phase.BACKWARD, -1, 0, 0),
        ("mse_loss_backward", "aten.mse_loss_backward.default", Phase.BACKWARD, -1, 0, 10),
        ("t_1", "aten.t.default", Phase.BACKWARD, -1, 0, 0),
        ("mm_1", "aten.mm.default", Phase.BACKWARD, -1, 0, 2 * 5 * 3 * 2),
        ("t_2", "aten.t.default", Phase.BACKWARD, -1, 0, 0),
        ("t_3", "aten.t.default", Phase.BACKWARD, -1, 0, 0),
        (update, "aten._fused_sgd.default", Phase.UPDATE, 0, 24, 6 * 4),
    ]
    found = zip(graph.name, graph.op_type, graph.phase, graph.colocation_group, graph.param_bytes, graph.flops, strict=True)
    used = [row for row in found if row[0] not in ("t_2", "t_3")]
    assert used == [row for row in rows if row[0] not in ("t_2", "t_3")]
    at = {name: number for number, name in enumerate(graph.name)}
    assert [graph.module_path[at[name]] for name in ("mm", "mm_1", update, "mse_loss", "mse_loss_backward")] == [
        *["out"] * 3,
        *["loss"] * 2,
    ]
    edges = {(graph.name[a], graph.name[b]) for a, b in zip(graph.edge_producer, graph.edge_consumer, strict=True)}
    assert edges >= {("t", "mm"), ("mm", "mse_loss"), ("mse_loss", "ones_like_default"), ("mm", "mse_loss_backward"), ("t_1", "mm_1")}
    assert [a for a, b in edges if b == update] == ["t_3" if "t_3" in at else "t_2"]
    # reads the weight, its gradient and the slot; writes the weight and the slot
    assert graph.accessed_bytes[at[update]] == 5 * 24
    assert "Regression with SGD" in graph.source and f"torch {torch.__version__}" in graph.source


def test_a_parameter_lives_with_its_readers_its_update_and_its_slots() -> None:
    graph = capture_training(everything()).graph
    at = {name: number for number, name in enumerate(graph.name)}
    parameters = [name.removeprefix("update_") for name in graph.name if name.startswith("update_")]
    assert len(parameters) == 10  # four of them are under two names; frozen and unread ones are not updated
    for name in parameters:
        group = graph.colocation_group[at[f"update_{name}"]]
        assert group != Graph.NO_GROUP and graph.colocation_group[at[f"count_{name}"]] == group
    together = graph.colocation_group == graph.colocation_group[at["update_module_words_weight"]]
    kinds = [kind for kind, one in zip(graph.op_type, together, strict=True) if one and graph.works[graph.op_type.index(kind)]]
    assert {"aten.embedding.default", "aten.mm.default", "aten._fused_adamw.default"} <= set(kinds)
    trained = sum(
        parameter.numel() for name, parameter in everything().module.named_parameters() if "frozen" not in name and "unread" not in name
    )
    frozen, statistics, counter, counts = 8 * 8 + 8, 2 * 8, 1, len(parameters)
    assert graph.param_bytes.sum() == 8 * (3 * trained + frozen + statistics + counter) + 4 * counts


def test_updates_come_last_and_every_gradient_of_a_module_carries_its_path() -> None:
    graph = capture_training(everything()).graph
    assert (np.diff(graph.phase) >= 0).all()
    for path in ("conv", "norm", "words", "query"):
        phases = {Phase(one) for one, where in zip(graph.phase.tolist(), graph.module_path, strict=True) if where == path}
        assert phases == {Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE}


def contractions(graph: Graph) -> float:
    counted = ("mm.", "addmm.", "bmm.", "convolution", "scaled_dot")
    return float(sum(flops for kind, flops in zip(graph.op_type, graph.flops, strict=True) if any(one in kind for one in counted)))


@pytest.mark.parametrize(
    ("layers", "shape"),
    [
        (lambda: nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4, bias=False)), (5, 8)),
        (lambda: nn.Sequential(nn.Conv2d(4, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 2, 1, bias=False)), (2, 4, 9, 9)),
        (lambda: nn.Sequential(nn.ConvTranspose2d(4, 8, 3, stride=2), nn.Tanh(), nn.Conv2d(8, 2, 3)), (2, 4, 5, 5)),
    ],
    ids=["linear", "convolution", "transposed"],
)
def test_operations_are_those_that_torch_counts(layers: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    """But for the sum that is the gradient of a convolution's bias, which torch leaves out."""
    module = layers()
    x = torch.ones(shape)
    with FlopCounterMode(display=False) as counter:
        module(x).mean().backward()
    sums = 0
    for number, layer in enumerate(module):  # type: ignore[arg-type]
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d) and layer.bias is not None:
            sums += module[: number + 1](x).numel()  # type: ignore[index]
    step = TrainingStep(module=module, inputs=(x,), targets=(), loss=torch.mean, optimizer=torch.optim.SGD(module.parameters(), lr=0.1))
    assert contractions(capture_training(step).graph) == counter.get_total_flops() + sums


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_either_gradient_of_a_grouped_convolution_costs_as_much_as_the_convolution(kind: type[nn.Module]) -> None:
    module = nn.Sequential(nn.Conv2d(4, 4, 1), kind(4, 8, 3, groups=2, bias=False))
    step = TrainingStep(
        module=module,
        inputs=(torch.ones(2, 4, 7, 7),),
        targets=(),
        loss=torch.mean,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
    )
    graph = capture_training(step).graph
    of_kind = [
        flops for op, flops, path in zip(graph.op_type, graph.flops, graph.module_path, strict=True) if "convolution" in op and path == "1"
    ]
    pixels = 2 * 5 * 5 if kind is nn.Conv2d else 2 * 7 * 7
    assert of_kind == [2 * pixels * 9 * 4 * 8 / 2, 2 * 2 * pixels * 9 * 4 * 8 / 2]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*(self.scale * one for one in (query, key, value)), is_causal=True)


def test_attention_is_one_op_each_way() -> None:
    module = Attention()
    query, key, value = torch.ones(2, 4, 16, 8), torch.ones(2, 4, 16, 8), torch.ones(2, 4, 16, 8)
    step = TrainingStep(
        module=module, inputs=(query, key, value), targets=(), loss=torch.mean, optimizer=torch.optim.SGD(module.parameters(), lr=0.1)
    )
    graph = capture_training(step).graph
    attention = {kind: flops for kind, flops in zip(graph.op_type, graph.flops, strict=True) if "scaled_dot" in kind}
    forward, backward = attention.values()
    assert len(attention) == 2
    assert forward == 2 * 2 * 2 * 4 * 16 * 16 * 8
    assert backward == sdpa_backward_flop_count(query.shape, query.shape, key.shape, value.shape)


def test_adam_counts_its_operations_and_decay() -> None:
    for decay, each in ((0.0, 13), (0.1, 15)):
        module = Regression()
        optimizer = torch.optim.AdamW(module.parameters(), weight_decay=decay)
        graph = capture_training(regression(module=module, optimizer=optimizer)).graph
        assert graph.flops[graph.op_type.index("aten._fused_adamw.default")] == 6 * each


class Twins(nn.Module):
    """Two parameters in one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(3))
        self.second = nn.Parameter(self.first.data)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.first + self.second


class Picks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x[x[:, 0] > 0])


def used(optimizer: torch.optim.Optimizer, module: nn.Module) -> torch.optim.Optimizer:
    module(torch.ones(5, 3)).sum().backward()
    optimizer.step()
    return optimizer


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: {"loss": lambda out, target: out - target},
            r"the loss of .*Regression is a tensor of shape \[5, 2\] and torch.float32; it must",
        ),
        (lambda m: {"loss": lambda out, target: (out.sum(), target)}, "is 2 results; it must be one"),
        (lambda m: {"loss": lambda out, target: target.sum()}, "depends on no parameter that the optimizer holds"),
        (lambda m: {"loss": lambda out: out.sum()}, "cannot be captured: TypeError"),
        (lambda m: {"inputs": (torch.ones(5, 4),)}, r"cannot be captured: .*\(at .*test_torch_training.py:\d+, `return self.out\(x\)`\)"),
        (lambda m: {"optimizer": torch.optim.LBFGS(m.parameters())}, "the optimizer is LBFGS; .* torch.optim.SGD, Adam or AdamW"),
        (lambda m: {"optimizer": torch.optim.RMSprop(m.parameters())}, "the optimizer is RMSprop; .* torch.optim.SGD, Adam or AdamW"),
        (lambda m: {"optimizer": torch.optim.Adam(m.parameters(), amsgrad=True)}, "Adam has amsgrad=True"),
        (lambda m: {"optimizer": torch.optim.SGD(m.parameters(), momentum=0.9, dampening=0.5)}, "SGD has dampening=0.5"),
        (lambda m: {"optimizer": torch.optim.SGD(nn.Linear(1, 1).parameters())}, "depends on no parameter that the optimizer holds"),
        (lambda m: {"optimizer": used(torch.optim.Adam(m.parameters()), m)}, "has taken steps already"),
    ],
    ids=[
        "vector",
        "two",
        "constant",
        "arguments",
        "inputs",
        "lbfgs",
        "rmsprop",
        "amsgrad",
        "dampening",
        "other",
        "used",
    ],
)
def test_what_cannot_be_captured_is_explained(change: Callable[[nn.Module], dict[str, Any]], message: str) -> None:
    module = Regression()
    with pytest.raises(InputError, match=message) as error:
        capture_training(regression(module=module, **change(module)))
    assert "\n" not in str(error.value)


def test_two_parameters_in_one_memory_are_refused() -> None:
    step = regression(module=Twins(), inputs=(torch.ones(5, 3),), targets=(torch.ones(5, 3),))
    with pytest.raises(InputError, match="'first' and 'second' of .*Twins lie in the same memory"):
        capture_training(step)


def test_sizes_that_depend_on_values_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be captured"):
        capture_training(regression(module=Picks(), targets=(), loss=torch.mean))


WRONG_TYPES = """
import torch
from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.errors import InputError

module = torch.nn.Linear(3, 2)
right = {"module": module, "inputs": (torch.ones(5, 3),), "targets": (torch.ones(5, 2),), "loss": torch.nn.MSELoss(), "optimizer": torch.optim.SGD(module.parameters())}
for wrong in ({"optimizer": None}, {"module": module.forward}, {"inputs": torch.ones(2, 3)}, {"targets": None}, {"loss": "mse"}):
    try:
        capture_training(TrainingStep(**{**right, **wrong}))
    except InputError as error:
        print(error)
"""


def test_a_field_of_another_type_is_explained_where_no_types_are_checked() -> None:
    """In a process of its own, since these tests check the types of all calls."""
    done = subprocess.run([sys.executable, "-c", WRONG_TYPES], capture_output=True, text=True, check=True)
    said = [line.split(" of the TrainingStep is a ") for line in done.stdout.splitlines()]
    assert [(field.split()[-1], found.split(";")[0]) for field, found in said] == [
        ("optimizer", "NoneType"),
        ("module", "method"),
        ("inputs", "Tensor"),
        ("targets", "NoneType"),
        ("loss", "str"),
    ]
