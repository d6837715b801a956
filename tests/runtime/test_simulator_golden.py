"""Timelines worked out by hand (tests/golden/*.json, the reasoning inside), and both implementations against them."""

import json
from pathlib import Path

import numpy as np
import pytest

from gdp.cluster import Cluster, Device
from gdp.graph import Graph
from gdp.measurement import Measurement, Timeline
from gdp.runtime.simulator import Simulator
from gdp.runtime.specification import simulate
from tests.strategies import placement

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("simulator_*.json"))


def graph_of(ops: list[dict]) -> Graph:
    """An op of a golden file has `name`, `seconds`, and perhaps `param`, `temp` and `outputs`: a list of [bytes, consumers]."""
    number = {op["name"]: index for index, op in enumerate(ops)}
    tensors = [(index, size, consumers) for index, op in enumerate(ops) for size, consumers in op.get("outputs", [])]
    edges = [(tensor, number[name]) for tensor, (_, _, consumers) in enumerate(tensors) for name in consumers]
    count = len(ops)
    return Graph(
        op_type=("op",) * count,
        name=tuple(number),
        module_path=("",) * count,
        flops=np.zeros(count),
        accessed_bytes=np.zeros(count, np.int64),
        param_bytes=np.array([op.get("param", 0) for op in ops], np.int64),
        temp_bytes=np.array([op.get("temp", 0) for op in ops], np.int64),
        phase=np.zeros(count, np.int8),
        colocation_group=np.full(count, Graph.NO_GROUP, np.int32),
        tensor_producer=np.array([producer for producer, _, _ in tensors], np.int32),
        tensor_bytes=np.array([size for _, size, _ in tensors], np.int64),
        tensor_shape=((-1,),) * len(tensors),
        tensor_dtype=("float32",) * len(tensors),
        edge_tensor=np.array([tensor for tensor, _ in edges], np.int32),
        edge_consumer=np.array([op for _, op in edges], np.int32),
        source="golden",
        measured_time_s={"unit": np.array([float(op["seconds"]) for op in ops])},
    )


def cluster_of(memory: list[int], latency_s: float, bandwidth: float, channel: list[list[int]]) -> Cluster:
    """Devices that run an op in its stated seconds, with the same latency and bandwidth between all of them."""
    count = len(memory)
    return Cluster(
        name="golden",
        devices=tuple(
            Device(name=f"d{at}", kind="unit", memory_bytes=held, flops_per_s={"float32": 1.0}, memory_bytes_per_s=1.0, op_overhead_s=0.0)
            for at, held in enumerate(memory)
        ),
        bandwidth_bytes_per_s=np.full((count, count), float(bandwidth)),
        latency_s=np.full((count, count), float(latency_s)),
        channel=np.array(channel, np.int32).reshape(count, count),
        channel_name=tuple(f"c{number}" for number in range(max(map(max, channel)) + 1)),
    )


def drawn(timeline: Timeline, names: tuple[str, ...], graph: Graph) -> dict:
    """A timeline as the golden files write it."""
    return {
        "ops": {
            name: [start, end] for name, start, end in zip(names, timeline.op_start_s.tolist(), timeline.op_end_s.tolist(), strict=True)
        },
        "transfers": [
            [names[graph.tensor_producer[tensor]], tensor, f"d{source}->d{destination}", start, end]
            for tensor, source, destination, start, end in zip(
                timeline.transfer_tensor.tolist(),
                timeline.transfer_source.tolist(),
                timeline.transfer_destination.tolist(),
                timeline.transfer_start_s.tolist(),
                timeline.transfer_end_s.tolist(),
                strict=True,
            )
        ],
        "memory": [
            [[moment, held] for moment, held in zip(moments.tolist(), use.tolist(), strict=True)]
            for moments, use in zip(timeline.memory_time_s, timeline.memory_bytes, strict=True)
        ],
    }


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_timeline_is_the_hand_drawn_one(path: Path) -> None:
    golden = json.loads(path.read_text())
    graph, cluster = graph_of(golden["ops"]), cluster_of(**golden["cluster"])
    device = placement(np.array([op["device"] for op in golden["ops"]]))
    for dispatch, expected in golden["expected"].items():
        rank = np.array([float(op["rank"]) for op in golden["ops"]]) if dispatch == "priority" else None
        simulated = Simulator(dispatch=dispatch, rank=rank, with_timeline=True)(graph, cluster, device)
        specified = simulate(graph, cluster, device, dispatch=dispatch, rank=rank)
        for measurement in (simulated, specified):
            check(measurement, expected, graph)


def check(measurement: Measurement, expected: dict, graph: Graph) -> None:
    assert measurement.timeline is not None
    assert drawn(measurement.timeline, graph.name, graph) == expected["timeline"]
    assert measurement.status.name == expected["status"]
    assert measurement.step_time_s == (float("inf") if expected["step_time_s"] is None else expected["step_time_s"])
    assert measurement.bottleneck_s == (float("inf") if expected["bottleneck_s"] is None else expected["bottleneck_s"])
    assert measurement.peak_memory_bytes.tolist() == expected["peak_memory_bytes"]
    assert measurement.busy_s.tolist() == expected["busy_s"]


def test_there_are_golden_files() -> None:
    assert len(GOLDEN) >= 4
