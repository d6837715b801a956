"""Tarnawski's JSON: what is read is what was written, and a wrong file is one sentence that says what."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdp.baselines.tarnawski.cost import loads_s
from gdp.capture.tarnawski_graph import to_graph_and_cluster
from gdp.capture.tarnawski_json import read_tarnawski, read_tarnawski_split
from gdp.errors import InputError
from gdp.placement import Origin, Placement
from gdp.runtime.simulator import Simulator


def node(number: int, **changed: Any) -> dict[str, Any]:
    plain = {"id": number, "supportedOnFpga": 1, "cpuLatency": 10.0, "fpgaLatency": 1.0, "isBackwardNode": 0, "size": 8.0}
    return plain | changed


def document() -> dict[str, Any]:
    """9 -> 7 -> 5, written in another order."""
    return {
        "maxSizePerFPGA": 16,
        "maxFPGAs": 2,
        "maxCPUs": 1,
        "nodes": [node(5, colorClass=3), node(7, colorClass=3, name="b", fpgaLatency=2), node(9, supportedOnFpga=False)],
        "edges": [{"sourceId": 7, "destId": 5, "cost": 0.25, "size": 3}, {"sourceId": 9, "destId": 7, "cost": 0.5}],
    }


def written(folder: Path, content: object) -> Path:
    path = folder / "instance.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_an_instance_by_hand(tmp_path: Path) -> None:
    instance = read_tarnawski(written(tmp_path, document()))
    assert instance.node_id.tolist() == [9, 7, 5]
    assert instance.accelerator_time_s.tolist() == [1e-3, 2e-3, 1e-3]
    assert instance.transfer_s.tolist() == [0.5e-3, 0.25e-3, 0.0]
    assert list(zip(instance.edge_from.tolist(), instance.edge_to.tolist(), strict=True)) == [(1, 2), (0, 1)]
    assert instance.colour.tolist() == [-1, 0, 0]
    assert instance.runs_on_accelerator.tolist() == [False, True, True]
    # The CPU computes 10 ms; the accelerator 3 ms and the transfer in.
    assert loads_s(instance, np.array([2, 1, 1], np.int32)) == pytest.approx([0.0, 3.5e-3, 10e-3])


WRONG = [
    ("nodes.0.id", "x", "nodes.0.id"),
    ("nodes.0.id", 7, "two nodes with the id 7"),
    ("nodes.0.size", -1.0, "nodes.0.size.*greater than or equal to 0"),
    ("nodes.0.cpuLatency", float("nan"), "no finite number"),
    ("nodes.0.cpuLatency", float("inf"), "no finite number"),
    ("nodes.0.cpuLatency", 10**400, "instance file"),
    ("nodes.0.latency", 1.0, "nodes.0.latency.*not permitted"),
    ("nodes.0.supportedOnFpga", 2, "supportedOnFpga"),
    ("nodes", [], "at least 1"),
    ("maxFPGAs", 65, "maxFPGAs"),
    ("maxCPUs", 0, "node 9.*no CPU core"),
    ("maxSizePerFPGA", None, "maxSizePerFPGA"),
    ("edges.0.sourceId", 1, "edge 1 -> 5.*node 1, which is not there"),
    ("edges.1.destId", 9, "circle"),
    ("edges.0", {"sourceId": 9, "destId": 7, "cost": 0.5}, "twice"),
    ("edges.0", {"sourceId": 9, "destId": 5, "cost": 0.75}, "costs 0.75 and 0.5"),
]


@pytest.mark.parametrize("place,value,message", WRONG)
def test_what_is_wrong_is_said(tmp_path: Path, place: str, value: object, message: str) -> None:
    content = document()
    target: Any = content
    *way, last = [int(part) if part.isdigit() else part for part in place.split(".")]
    for part in way:
        target = target[part]
    target[last] = value
    with pytest.raises(InputError, match=message):
        read_tarnawski(written(tmp_path, content))


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"maxFPGAs": 1, "maxFPGAs": 2}', "null", "1e999", '"\\ud800"'])
def test_what_is_no_instance_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="instance file"):
        read_tarnawski(written(tmp_path, text))


_SCRAPS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.just([]), st.just({}), st.sampled_from([5, 7, 9, 1e300])
)


@given(st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    content = document()
    for _ in range(data.draw(st.integers(1, 3))):
        target: Any = content
        while True:
            keys = list(target) if isinstance(target, dict) else list(range(len(target))) if isinstance(target, list) else []
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(target[key], dict | list) and target[key] and data.draw(st.booleans()):
                target = target[key]
                continue
            if data.draw(st.booleans()):
                target[key] = data.draw(_SCRAPS)
            else:
                del target[key]
            break
    try:
        instance = read_tarnawski(written(tmp_path, content))
    except InputError:
        return
    # What was accepted is what was asked for.
    assert sorted(instance.node_id.tolist()) == sorted(one["id"] for one in content["nodes"])
    assert (instance.edge_from < instance.edge_to).all()


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_noise_is_refused(tmp_path: Path, noise: bytes) -> None:
    path = tmp_path / "noise.json"
    path.write_bytes(noise)
    with pytest.raises(InputError):
        read_tarnawski(path)


def test_splits(tmp_path: Path) -> None:
    instance = read_tarnawski(written(tmp_path, document()))
    path = tmp_path / "split.json"
    path.write_text(
        json.dumps(
            {"cpus": [{"load": 0.0, "nodes": [9]}], "fpgas": [{"nodes": [5]}, {"nodes": []}, {"load": -1, "nodes": [7]}], "maxLoad": -1}
        )
    )
    assert read_tarnawski_split(path, instance).tolist() == [2, 1, 0]
    for parts, message in (
        ([[5], [7], [9]], "uses 3 accelerators"),
        ([[5, 7]], "leaves out the node 9"),
        ([[5, 5, 7, 9]], "node 5 twice"),
        ([[1]], "node 1, which"),
    ):
        path.write_text(json.dumps({"cpus": [], "fpgas": [{"nodes": nodes} for nodes in parts]}))
        with pytest.raises(InputError, match=message):
            read_tarnawski_split(path, instance)


def test_a_graph_and_a_cluster_from_an_instance(tmp_path: Path) -> None:
    content = document()
    with pytest.raises(InputError, match="node 9.*CPU alone"):
        to_graph_and_cluster(read_tarnawski(written(tmp_path, content)))
    content["nodes"][2]["supportedOnFpga"] = True
    content["maxSizePerFPGA"] = 1e9  # the simulator counts the tensors, too
    graph, cluster = to_graph_and_cluster(read_tarnawski(written(tmp_path, content)))

    def step_ms(device: list[int]) -> float:
        placement = Placement(device=np.array(device, np.int32), origin=Origin(placer="user"))
        return Simulator()(graph, cluster, placement).step_time_s * 1e3

    assert step_ms([0, 0, 0]) != step_ms([0, 1, 1])
    assert step_ms([0, 1, 1]) == pytest.approx(1.0 + 2 * 0.5 + 2.0 + 1.0)
    assert step_ms([2, 1, 1]) == pytest.approx(10.0 + 0.5 + 2.0 + 1.0)
