"""The cost model of Tarnawski et al.: splits by hand, and the published values of experts."""

import numpy as np
import pytest
from hypothesis import given, settings

from gdp.baselines.tarnawski.cost import ON_CPU, latency_s, loads_s, max_load_s, why_infeasible
from gdp.baselines.tarnawski.latency_greedy import greedy_latency
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.capture.tarnawski_json import read_tarnawski, read_tarnawski_split
from tests.baselines.tarnawski.instances import PUBLISHED, instances

EXPERT_MS = {
    "bert24_layer_inference": 20.08,
    "gnmt_layer_inference": 46.21,
    "resnet50_layer_inference": 43.92,
    "inceptionv3_layer_inference": 102.48,
}
ONE_ACCELERATOR_MS = EXPERT_MS | {
    "bert24_layer_inference": 92.41,
    "bert24_layer_training": 217.8,
    "gnmt_layer_inference": 182.6,
    "resnet50_layer_inference": 201.5,
    "inceptionv3_layer_inference": 311.0,
    "bert3_op_inference": 49.35,
}


def diamond() -> TarnawskiInstance:
    """0 feeds 1 and 2, which feed 3."""
    return TarnawskiInstance(
        source="a diamond",
        num_accelerators=2,
        num_cpus=1,
        accelerator_memory_bytes=4.0,
        node_id=np.arange(4),
        cpu_time_s=np.full(4, 10.0),
        accelerator_time_s=np.array([1.0, 2.0, 3.0, 4.0]),
        runs_on_accelerator=np.array([True, True, True, True]),
        backward=np.zeros(4, np.bool_),
        colour=np.full(4, -1, np.int32),
        size_bytes=np.ones(4),
        transfer_s=np.array([0.5, 0.25, 0.125, 0.0]),
        edge_from=np.array([0, 0, 1, 2], np.int32),
        edge_to=np.array([1, 2, 3, 3], np.int32),
    )


def test_loads_by_hand() -> None:
    # 0 leaves once although two nodes read it; it comes in once on accelerator 1; nodes 1 and 2 never move.
    assert loads_s(diamond(), np.array([0, 1, 1, 1], np.int32)).tolist() == [1.5, 9.5, 0.0]
    # The CPU pays for no transfer, and accelerators pay on their side alone.
    assert loads_s(diamond(), np.array([0, 0, 2, 1], np.int32)).tolist() == [3.0 + 0.5 + 0.25, 4.0 + 0.25 + 0.125, 10.0]
    assert max_load_s(diamond(), np.zeros(4, np.int32)) == 10.0


def test_latencies_by_hand() -> None:
    assert latency_s(diamond(), np.array([0, 0, 0, 0], np.int32)) == 10.0
    assert latency_s(diamond(), np.array([0, 1, 1, 1], np.int32)) == 11.0
    # Cores are never short: 1 and 2 run side by side on the CPU.
    assert latency_s(diamond(), np.array([0, ON_CPU, ON_CPU, 1], np.int32)) == 1.5 + 10.0 + 4.375
    # Subgraph 0 holds both ends: it would wait for itself. Two subgraphs on accelerator 0 do not.
    assert latency_s(diamond(), np.array([0, 1, 1, 0], np.int32)) == float("inf")
    assert latency_s(diamond(), np.array([0, 2, 2, 1], np.int32), subgraphs_per_accelerator=2) == 1.5 + (5.0 + 0.5 + 0.375) + 4.375


def test_what_cannot_run_is_said() -> None:
    instance = diamond()
    assert why_infeasible(instance, np.zeros(4, np.int32)) is None
    small = TarnawskiInstance(**{**vars(instance), "accelerator_memory_bytes": 2.0})
    assert why_infeasible(small, np.array([0, 0, 0, 1], np.int32)) == "accelerator 0 holds 3 bytes, 1 more than it can"
    assert why_infeasible(small, np.array([2, 2, 2, 3], np.int32)) == "it uses a device outside 0..2"
    joined = TarnawskiInstance(**{**vars(instance), "colour": np.array([0, -1, -1, 0], np.int32)})
    assert why_infeasible(joined, np.array([0, 0, 0, 1], np.int32)) == "nodes 0 and 3 have one colour but are on two devices"


@given(instances())
@settings(deadline=None, max_examples=100)
def test_the_greedy_split_can_run(instance: TarnawskiInstance) -> None:
    solution = greedy_latency(instance)
    if solution.split is not None:
        assert latency_s(instance, solution.split) == solution.objective_s < float("inf")


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published instances are not here")
@pytest.mark.parametrize("name", ONE_ACCELERATOR_MS)
def test_published_values(name: str) -> None:
    instance = read_tarnawski(PUBLISHED / "max_load" / f"{name}.json")
    # Published without regard to memory, which ResNet-50 exceeds.
    assert loads_s(instance, np.zeros(instance.num_nodes, np.int32)).max() * 1e3 == pytest.approx(ONE_ACCELERATOR_MS[name], rel=5e-4)
    if name in EXPERT_MS:
        expert = read_tarnawski_split(PUBLISHED / "expert" / f"{name}.json", instance)
        assert max_load_s(instance, expert) * 1e3 == pytest.approx(EXPERT_MS[name], abs=6e-3)


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published instances are not here")
def test_published_greedy_latency() -> None:
    """On bert3_op, which has many topological orders, ours is not the published one."""
    bert24, bert3 = (
        greedy_latency(read_tarnawski(PUBLISHED / "latency" / f"{name}_inference.json")) for name in ("bert24_layer", "bert3_op")
    )
    assert bert24.objective_s * 1e3 == pytest.approx(100.22, abs=6e-3)
    assert bert3.objective_s * 1e3 == pytest.approx(416.20, rel=0.02)
