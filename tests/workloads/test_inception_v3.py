"""The stored training step of Inception-V3: what it must weigh, and that it is the one that the code builds."""

import numpy as np
import pytest

from gdp.bundled import bundled
from gdp.capture.parquet import read_graph
from gdp.graph import CONTROL, Graph, Phase

BATCH = 32
PARAMETERS = 23_851_784
MOVING_AVERAGES = 34_432
"""Mean and variance of 94 batch normalisations, which no gradient changes."""


@pytest.fixture(scope="module")
def stored() -> Graph:
    return read_graph(bundled("datasets") / "inception_v3_training.parquet")


def test_forward_pass_is_that_of_the_paper(stored: Graph) -> None:
    """5.7 billion multiply-adds per image (Keras' documentation of the network; 299 x 299), 94 convolutions and one dense layer."""
    forward = stored.phase == Phase.FORWARD
    kinds = np.array(stored.op_type)
    assert (forward & (kinds == "Conv2D")).sum() == 94
    assert (forward & (kinds == "MatMul")).sum() == 1
    contractions = stored.flops[forward & np.isin(kinds, ["Conv2D", "MatMul"])].sum()
    assert contractions == pytest.approx(2 * 5.71e9 * BATCH, rel=0.01)
    assert stored.flops[forward].sum() < 1.02 * contractions


def test_gradients_cost_twice_the_forward_pass_but_for_the_first_layer(stored: Graph) -> None:
    kinds = np.array(stored.op_type)
    convolutions = stored.flops[kinds == "Conv2D"]
    first = 2 * (BATCH * 149 * 149 * 32) * (3 * 3 * 3)
    assert convolutions[0] == first
    assert stored.flops[kinds == "Conv2DBackpropFilter"].sum() == convolutions.sum()
    assert stored.flops[kinds == "Conv2DBackpropInput"].sum() == convolutions.sum() - first
    assert (stored.phase[kinds == "Conv2DBackpropFilter"] == Phase.BACKWARD).all()


def test_parameters_with_the_two_slots_of_rmsprop(stored: Graph) -> None:
    trained = PARAMETERS - MOVING_AVERAGES
    rate_and_two_counters = 4 + 8
    assert stored.param_bytes.sum() == 4 * (PARAMETERS + 2 * trained) + rate_and_two_counters
    holds = stored.param_bytes > 0
    assert {kind for kind, one in zip(stored.op_type, holds, strict=True) if one} == {"VarHandleOp"}
    assert (stored.colocation_group[holds] >= 0).all()


def test_every_phase_is_there(stored: Graph) -> None:
    share = np.bincount(stored.phase, minlength=4) / stored.num_ops
    assert (share[[Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]] > 0.25).all()
    assert 10_000 < stored.num_ops < 15_000
    assert all(-1 not in shape for shape in stored.tensor_shape)
    assert not stored.tensor_bytes[[dtype == CONTROL for dtype in stored.tensor_dtype]].any()


@pytest.mark.slow
@pytest.mark.tensorflow
def test_stored_graph_is_the_one_that_is_built(stored: Graph) -> None:
    """Twice in one process, because Keras numbers layers as it goes."""
    from gdp.workloads.inception_v3 import inception_v3_training

    for _ in range(2):
        assert inception_v3_training(BATCH).sha256 == stored.sha256
