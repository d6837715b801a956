"""A captured training step on real devices: any placement of it computes the same next parameters, slots and loss."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from branching_net import CORES, NAMES, core_cluster
from torch import nn
from torch.nn import functional as F

from gdp.capture.torch_training import TrainingStep, capture_training
from gdp.measurement import Status
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.timing import Protocol

pytestmark = pytest.mark.skipif(len(set(CORES)) < 2, reason="needs two cores")


def small_step() -> TrainingStep:
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)
    ).train()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0, 0.3, generator=generator)
    return TrainingStep(
        module=module,
        inputs=(torch.randn(2, 3, 6, 6, generator=generator),),
        targets=(torch.tensor([1, 4]),),
        loss=F.cross_entropy,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
    )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.head = nn.LSTM(6, 8, 2, batch_first=True), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x)[0][:, -1])


def recurrent_step() -> TrainingStep:
    generator = torch.Generator().manual_seed(0)
    module = Recurrent().train()
    return TrainingStep(
        module=module,
        inputs=(torch.randn(2, 5, 6, generator=generator),),
        targets=(torch.tensor([1, 4]),),
        loss=F.cross_entropy,
        optimizer=torch.optim.Adam(module.parameters()),
    )


@pytest.mark.parametrize("make", [small_step, recurrent_step])
def test_random_placements_of_a_step_run_and_agree_with_the_unplaced_program(make: Callable[[], TrainingStep]) -> None:
    step = make()
    captured = capture_training(step)
    graph, generator = captured.graph, np.random.default_rng(0)
    group = graph.colocation_group
    of_group = generator.integers(0, 2, (3, group.max() + 1))
    device = generator.integers(0, 2, (3, graph.num_ops))
    device = np.where(group >= 0, of_group[:, np.maximum(group, 0)], device).astype(np.int32)
    assert all(len(set(row.tolist())) == 2 for row in device)
    inputs = (step.inputs, step.targets)
    with PyTorchRuntime(captured.program, inputs, timeout_s=60.0, protocol=Protocol(max_warm_up=1, max_pairs=6)) as runtime:
        measured = runtime.batch(graph, core_cluster(NAMES), device)
    assert measured.status.tolist() == [Status.OK] * 3, measured.detail
