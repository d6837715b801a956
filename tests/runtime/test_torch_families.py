"""Random placements of programs of many families, inference and training: the placed program computes what eager PyTorch does."""

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from branching_net import CORES, NAMES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from gdp.capture.torch import Captured, capture
from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.graph import Graph
from gdp.runtime.executor import Executor
from gdp.runtime.neutral_ops import trainable
from gdp.runtime.pieces import cut
from gdp.runtime.values import program_values
from gdp.workloads.torch_modules import Transformer, TwoTowers, TwoUNets, UnrolledLSTM, residual_network

pytestmark = pytest.mark.skipif(len(set(CORES)) < 2, reason="needs two cores")

NUM_PLACEMENTS = 40


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """A captured program, its flat inputs, and what eager PyTorch makes of it: outputs, or after a training step the state by its name."""

    captured: Captured
    inputs: list[torch.Tensor]
    outputs: tuple[torch.Tensor, ...] = ()
    state: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 40, shape, generator=torch.Generator().manual_seed(1))


def initialised(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.2, generator=generator)
    return module


def inference(module: nn.Module, *inputs: torch.Tensor) -> Family:
    initialised(module).eval()
    with torch.no_grad():
        outputs = module(*inputs)
    flat = tuple(torch.utils._pytree.tree_leaves(outputs))
    return Family(captured=capture(module, inputs), inputs=list(inputs), outputs=flat)


def training(
    module: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    target: torch.Tensor,
    optimizer: Callable[[Any], torch.optim.Optimizer],
    loss: Callable[..., torch.Tensor] = F.cross_entropy,
) -> Family:
    initialised(module).train()
    step = TrainingStep(module=module, inputs=inputs, targets=(target,), loss=loss, optimizer=optimizer(module.parameters()))
    captured = capture_training(step)
    eager = copy.deepcopy(module)
    updated = optimizer(eager.parameters())
    loss(eager(*inputs), target).backward()
    updated.step()
    state = {f"module.{name}": value.detach() for name, value in (*eager.named_parameters(), *eager.named_buffers())}
    return Family(captured=captured, inputs=[*inputs, target], state=state)


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-2)


def per_token(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.flatten(0, -2), target.flatten())


class Tied(nn.Module):
    """One matrix as the embedding and as the output layer, a convolution between them that is used twice, and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.between, self.norm = nn.Embedding(40, 16), nn.Conv1d(16, 16, 3, padding=1, bias=False), nn.BatchNorm1d(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.tokens(x).transpose(1, 2)
        hidden = self.norm(self.between(F.relu(self.between(hidden))))
        return F.linear(hidden.transpose(1, 2), self.tokens.weight)


class InPlace(nn.Module):
    """Views and writes in place, which capturing makes functional; several outputs, one of them of whole numbers."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = x.clone()
        rows = x[::2]
        rows.mul_(2.0)
        x[1, :3] = 7.0
        low, high = x.chunk(2, dim=1)
        high.add_(low)
        order = torch.argsort(x, dim=1)
        return {"sum": x.cumsum(0), "order": order, "part": torch.gather(x, 1, order)[:, :2]}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0][:, -1])


FAMILIES: dict[str, Callable[[], Family]] = {
    "residual": lambda: inference(residual_network((1, 1), 8), random(2, 3, 32, 32)),
    "two U-Nets": lambda: inference(TwoUNets(2, 4), random(1, 3, 16, 16), random(1, 3, 16, 16)),
    "mixture of experts": lambda: inference(Transformer(1, 16, 2, 40, 6, causal=True, num_experts=4), tokens(2, 6)),
    "two towers": lambda: inference(TwoTowers(2, 40, 8, (16, 8)), tokens(4, 2, 3), tokens(4, 2, 3)),
    "in place": lambda: inference(InPlace(), random(6, 8)),
    "recurrent, inference": lambda: inference(Recurrent(), random(2, 5, 6)),
    "convolutions, training": lambda: training(residual_network((1, 1), 8), (random(4, 3, 32, 32),), torch.arange(4), sgd),
    "transformer, training": lambda: training(Transformer(1, 16, 2, 40, 6, causal=True), (tokens(2, 6),), tokens(2, 6), adamw, per_token),
    "unrolled LSTM, training": lambda: training(UnrolledLSTM(1, 8, 40), (tokens(3, 4),), tokens(3, 4), sgd, per_token),
    "recurrent, training": lambda: training(Recurrent(), (random(2, 5, 6),), torch.tensor([1, 4]), adamw),
    "tied, training": lambda: training(Tied(), (tokens(3, 8),), tokens(3, 8), sgd, per_token),
}


def random_placement(graph: Graph, generator: np.random.Generator) -> dict[str, int]:
    """Every colocation group and every other op on one of two devices, by a coin of its own bias."""
    group, bias = graph.colocation_group, generator.uniform(0.05, 0.95)
    device = (generator.random(graph.num_ops) < bias).astype(int)
    of_group = (generator.random(group.max() + 2) < bias).astype(int)
    return dict(zip(graph.name, np.where(group >= 0, of_group[np.maximum(group, 0)], device).tolist(), strict=True))


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor(NAMES) as running:
        yield running


@pytest.mark.parametrize("name", FAMILIES)
def test_any_placement_computes_what_eager_pytorch_does(name: str, executor: Executor) -> None:
    family = FAMILIES[name]()
    program = family.captured.program
    trainable(program.graph_module)
    values = program_values(program, family.inputs, generator=torch.Generator())
    results = [node.name if isinstance(node, torch.fx.Node) else node for node in program.graph.output_node().args[0]]
    targets = [str(spec.target) for spec in program.graph_signature.output_specs]
    num_devices: list[int] = []

    @given(seed=st.integers(0, 2**32 - 1))
    @settings(max_examples=NUM_PLACEMENTS, deadline=None)
    def check(seed: int) -> None:
        device_of_op = random_placement(family.captured.graph, np.random.default_rng(seed))
        num_devices.append(len(set(device_of_op.values())))
        loaded = executor.load(cut(program, device_of_op), values=values, homes={}, results=results)
        for _ in range(2):  # every step from the same state
            outputs = executor.step(loaded).outputs
        for output, expected in zip(outputs, family.outputs, strict=False):
            torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)
        found = dict(zip(targets, outputs, strict=True))
        assert family.outputs or found.keys() >= family.state.keys()
        for target, expected in family.state.items():
            torch.testing.assert_close(found[target], expected, rtol=1e-3, atol=1e-4, msg=target)

    check()
    assert sum(count == 2 for count in num_devices) > len(num_devices) / 2
