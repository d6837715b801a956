"""A small net with branches, multi-output ops and several outputs, as an exported program with its graph."""

import os

import numpy as np
import torch
from torch import nn

from gdp.capture.torch import Captured, capture
from gdp.cluster import Cluster, Device

_cores = sorted(os.sched_getaffinity(0))
CORES = (_cores[0], _cores[min(1, len(_cores) - 1)])
"""Two cores, the same one twice where there is only one."""
NAMES = [f"cpu:{core}" for core in CORES]


class BranchingNet(nn.Module):
    def __init__(self, *, num_branches: int, channels: int) -> None:
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
            for _ in range(num_branches)
        )
        self.head = nn.Linear(channels, 5)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        joined = torch.cat([branch(x) for branch in self.branches], dim=1)
        parts = torch.split(joined, x.shape[1], dim=1)
        pooled = parts[0].mean((2, 3)) * parts[-1].amax((2, 3))
        highest, where = self.head(pooled).max(1)
        return {"highest": highest, "where": where, "sum": parts[-1] + x}


def branching_input(*, channels: int = 4) -> torch.Tensor:
    return torch.randn((2, channels, 6, 6), generator=torch.Generator().manual_seed(1))


def branching_program(*, num_branches: int = 3, channels: int = 4) -> Captured:
    net = BranchingNet(num_branches=num_branches, channels=channels).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return capture(net, (branching_input(channels=channels),))


def core_cluster(names: list[str]) -> Cluster:
    count = len(names)
    devices = tuple(
        Device(name=name, kind="core", memory_bytes=2**30, flops_per_s={"float32": 1e10}, memory_bytes_per_s=1e10, op_overhead_s=1e-6)
        for name in names
    )
    return Cluster(
        name="cores",
        devices=devices,
        bandwidth_bytes_per_s=np.full((count, count), 1e10),
        latency_s=np.full((count, count), 2e-5),
        channel=np.full((count, count), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )
