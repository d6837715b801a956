"""Seeded draws: the same under every placement and in every step, different between ops, and of the right distribution."""

import pytest
import torch
from branching_net import NAMES
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gdp.capture.torch import capture
from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.runtime.executor import Executor
from gdp.runtime.pieces import cut
from gdp.runtime.random_draws import random_ops, seed_random_ops
from gdp.runtime.values import difference, program_values


class Noisy(nn.Module):
    """Every kind of op that draws: with an argument for a device, with a probability, of the shape of another tensor, inside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.lstm = nn.LSTM(8, 8, 2, dropout=0.3, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)

    def forward(self, x):
        left = nn.functional.dropout(self.first(x), 0.5)
        right = nn.functional.dropout(self.second(x), 0.5)
        recurrent, _ = self.lstm(left)
        attended, _ = self.attention(right, right, right, need_weights=False)
        return recurrent, attended + torch.randn_like(x), x + torch.rand(8), torch.bernoulli(torch.full_like(x, 0.5))


def noisy_program():
    torch.manual_seed(0)  # noqa: TID251 # the layers' weights
    return capture(Noisy().train(), (torch.ones(2, 3, 8),)).program


def training_program():
    torch.manual_seed(0)  # noqa: TID251 # the layers' weights
    net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 16), nn.Dropout(0.2), nn.Linear(16, 1))
    step = TrainingStep(
        module=net,
        inputs=(torch.ones(4, 8),),
        targets=(torch.zeros(4, 1),),
        loss=nn.MSELoss(),
        optimizer=torch.optim.AdamW(net.parameters(), lr=0.1),
    )
    return capture_training(step).program


PROGRAMS = {"noisy": (noisy_program(), [torch.ones(2, 3, 8)]), "training": (training_program(), [torch.ones(4, 8), torch.zeros(4, 1)])}
for program, _ in PROGRAMS.values():
    seed_random_ops(program, seed=5)


@pytest.fixture(scope="module")
def executor():
    with Executor(NAMES) as running:
        yield running


@pytest.mark.parametrize("name", PROGRAMS)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_every_placement_draws_the_same(name, executor, data):
    program, inputs = PROGRAMS[name]
    values = program_values(program, inputs, generator=torch.Generator())
    with torch.inference_mode():
        expected = program.graph_module(*values.values())
    ops = [node.name for node in program.graph.nodes if node.op == "call_function"]
    device = data.draw(st.lists(st.integers(0, 1), min_size=len(ops), max_size=len(ops)))
    results = [node.name for node in program.graph.output_node().args[0]]
    placed = executor.load(cut(program, dict(zip(ops, device, strict=True))), values=values, homes={}, results=results)
    for _ in range(2):
        assert difference(executor.step(placed).outputs, expected) == ""


@pytest.mark.parametrize(("training", "expected"), [(True, ["dropout"]), (False, [])])
def test_random_ops_are_those_that_really_draw(training, expected):
    module = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.0)).train(training)
    assert random_ops(torch.export.export(module, (torch.ones(2),))) == expected


def test_ops_draw_different_numbers_of_the_right_distribution():
    program = capture(nn.Sequential(nn.Dropout(0.25), nn.Dropout(0.25)).train(), (torch.ones(100_000),)).program
    assert len(random_ops(program)) == 2
    seed_random_ops(program, seed=0)
    kept = program.graph_module(torch.ones(100_000))[0] != 0
    assert kept.float().mean().item() == pytest.approx(0.75**2, abs=0.01)  # 0.75 if both drew the same


def test_another_seed_draws_other_numbers():
    first, second = (capture(nn.Dropout(0.5).train(), (torch.ones(64),)).program for _ in range(2))
    seed_random_ops(first, seed=0)
    seed_random_ops(second, seed=1)
    assert not torch.equal(first.graph_module(torch.ones(64))[0], second.graph_module(torch.ones(64))[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_draws_on_the_host_are_those_of_the_host():
    program = capture(nn.Dropout(0.5).train(), (torch.ones(64),)).program
    draws = seed_random_ops(program, seed=0)
    expected = program.graph_module(torch.ones(64))[0]
    draws.on_host = True
    assert torch.equal(program.graph_module(torch.ones(64, device="cuda"))[0].cpu(), expected)
