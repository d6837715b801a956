"""What a measuring process does not know is refused before one is started."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from branching_net import NAMES, core_cluster

from gdp.capture.torch import capture
from gdp.errors import InputError
from gdp.measurement import Status
from gdp.placement import Origin, Placement
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.timing import Protocol

X = torch.ones(3, 4)


class Calls(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(torch.ones(5, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.weight).relu()


@pytest.fixture
def registered() -> Iterator[torch._ops.OpOverload]:
    """An operator as a user's file registers one."""
    with torch.library._scoped_library("gdp_test_of_own", "FRAGMENT") as library:
        library.define("times(Tensor x, Tensor w) -> Tensor")
        library.impl("times", lambda x, w: x @ w.T, "CompositeExplicitAutograd")
        yield torch.ops.gdp_test_of_own.times.default


def test_an_operator_of_the_user_s_file_is_refused_by_name(registered: torch._ops.OpOverload) -> None:
    captured = capture(Calls(registered), (X,))
    with pytest.raises(InputError, match="the program calls the operator 'gdp_test_of_own::times', which torch does not have by itself"):
        PyTorchRuntime(captured.program, (X,))


def test_an_operator_inside_a_branch_is_refused_too(registered: torch._ops.OpOverload) -> None:
    def branch(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, registered, lambda x, w: x @ w.T, (x, weight))

    program = torch.export.export(Calls(branch).eval(), (X,))
    with pytest.raises(InputError, match="'gdp_test_of_own::times'"):
        PyTorchRuntime(program, (X,))


def test_torch_s_own_operators_of_other_namespaces_run() -> None:
    def linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, weight, None, "hardtanh", [0.0, 6.0], "")

    captured = capture(Calls(linear).eval(), (X,))
    assert any("mkldnn" in op for op in captured.graph.op_type)
    with PyTorchRuntime(captured.program, (X,), timeout_s=60.0, protocol=Protocol(max_warm_up=1, max_pairs=6)) as runtime:
        placement = Placement(device=np.zeros(captured.graph.num_ops, np.int32), origin=Origin(placer="test"))
        measured = runtime(captured.graph, core_cluster(NAMES), placement)
    assert (measured.status, measured.detail) == (Status.OK, "")
