"""PipeDream's profiles and DOPPLER's text: small files by hand, and wrong ones that are refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdp.capture.doppler_txt import read_doppler
from gdp.capture.pipedream_txt import read_pipedream
from gdp.errors import InputError
from gdp.graph import Graph, Phase

PROFILE = """\
node3 -- Linear(in_features=4, out_features=2) -- forward_compute_time=2.0, backward_compute_time=4.0, activation_size=[16.0; 4.0], parameter_size=8.000, stage_id=1
node1 -- Input -- forward_compute_time=50.0, backward_compute_time=0.0, activation_size=100.0, parameter_size=0.0
node2 -- ReLU(inplace) -- forward_compute_time=1.0, backward_compute_time=0.0, activation_size=40.0, parameter_size=0.0

\tnode1 -- node2
\tnode2 -- node3
"""

DOPPLER = "6\n0, 1, \n0, 1, 2, \n2, 2, 3,\n0,2\n0,4\n1.5,1,mm\n3,0\n"


def edges_of(graph: Graph) -> set[tuple[str, str, int]]:
    return {
        (graph.name[producer], graph.name[consumer], int(graph.tensor_bytes[tensor]))
        for producer, consumer, tensor in zip(graph.edge_producer, graph.edge_consumer, graph.edge_tensor, strict=True)
    }


def profile(folder: Path, text: str | bytes) -> Graph:
    path = folder / "graph.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_pipedream(path, kind="v100")


def doppler(folder: Path, text: str | bytes) -> Graph:
    path = folder / "doppler.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_doppler(path, kind="p100", seconds_per_unit=1e-3, bandwidth_bytes_per_s=1e6)


def test_a_profile_by_hand(tmp_path: Path) -> None:
    graph = profile(tmp_path, PROFILE)
    assert edges_of(graph) == {
        ("node1", "node2", 100),
        ("node2", "node3", 40),
        ("node1", "node2.backward", 100),
        ("node2", "node3.backward", 40),
        ("node3", "node3.backward", 20),
        ("node3.backward", "node2.backward", 40),
    }
    seconds = dict(zip(graph.name, graph.measured_time_s["v100"].tolist(), strict=True))
    assert seconds == {"node1": 0.0, "node2": 1e-3, "node3": 2e-3, "node3.backward": 4e-3, "node2.backward": 0.0}
    assert {graph.name[op] for op in np.flatnonzero(graph.phase == Phase.BACKWARD)} == {"node2.backward", "node3.backward"}
    group = dict(zip(graph.name, graph.colocation_group.tolist(), strict=True))
    assert group["node2"] == group["node2.backward"] != group["node3"]
    assert graph.param_bytes.sum() == 8


@pytest.mark.parametrize(
    "old,new,message",
    [
        ("=2.0", "=-2.0", "line 1 .*forward_compute_time=-2.0"),
        ("=2.0", "=nan", "line 1 .*forward_compute_time=nan"),
        ("=2.0", "=1_0", "forward_compute_time=1_0"),
        ("=2.0", "=1e999", "forward_compute_time=1e999"),
        ("=8.000", "=2e18", "parameter_size"),
        ("stage_id=1", "stage=1", "'stage=1'"),
        ("stage_id=1", "parameter_size=1", "each once"),
        (", parameter_size=0.0\nnode2", "\nnode2", "no parameter_size"),
        ("node2 -- ReLU", "node1 -- ReLU", "line 3 .*'node1' again"),
        ("\tnode2 -- node3", "\tnode2 -- node4", "'node4', which is not there"),
        ("\tnode2 -- node3", "\tnode1 -- node2", "again"),
        ("\tnode2 -- node3", "\tnode2 -- node1", "circle"),
        ("\tnode2 -- node3", "\tnode2 -- node2", "circle"),
        ("\tnode2 -- node3", "node2 -- node3", "must be a node"),
        ("\tnode2 -- node3", "\tnode2 node3", "must be an edge"),
    ],
)
def test_a_wrong_profile_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert PROFILE.count(old) == 1 or old == "=2.0"
    with pytest.raises(InputError, match=message):
        profile(tmp_path, PROFILE.replace(old, new, 1))


def test_a_doppler_file_by_hand(tmp_path: Path) -> None:
    graph = doppler(tmp_path, DOPPLER)
    assert edges_of(graph) == {("op0", "op2", 2000), ("op1", "op2", 4000), ("op2", "op3", 1000)}
    assert graph.measured_time_s["p100"].tolist() == pytest.approx([0.0, 0.0, 1.5e-3, 3e-3])
    assert graph.op_type == ("op", "op", "mm", "op")


def test_a_doppler_file_may_have_a_line_for_every_input(tmp_path: Path) -> None:
    graph = doppler(tmp_path, DOPPLER.replace("6\n", "4\n", 1))
    assert graph.op_type == ("input", "input", "mm", "op")
    assert edges_of(graph) == edges_of(doppler(tmp_path, DOPPLER))
    with pytest.raises(InputError, match="calls op 2 an input"):
        doppler(tmp_path, DOPPLER.replace("6\n0, 1,", "4\n0, 2,", 1))


@pytest.mark.parametrize(
    "old,new,message",
    [
        ("6\n0, 1, ", "7\n0, 1, ", "states 7 inputs and ops, 2 of them inputs, but has 4 lines of costs; write one for every op .5."),
        ("6\n0, 1, ", "6\n0,", "states 6 inputs and ops, 1 of them inputs, but has 4 lines of costs"),
        ("6\n0, 1, ", "x\n0, 1, ", "line 1 .*'x'"),
        ("6\n0, 1, ", "0\n0, 1, ", "line 1"),
        ("6\n0, 1, ", "6\n0, 9, ", "line 2 .*'9'"),
        ("6\n0, 1, ", "6\n0, 0, ", "twice"),
        ("6\n0, 1, ", "6\n0, 1,, ", "line 2 .*''"),
        ("6\n0, 1, ", "2\n0, 1, ", "from 1 to"),
        ("0, 1, 2, \n", "0, 1, 4\n", "line 3 .*'4'"),
        ("0, 1, 2, \n", "0, 1\n", "2 sources but 3 destinations"),
        ("0, 1, 2, \n2, 2", "0, 0, 2\n2, 2", "edge 0 -> 2 twice"),
        ("2, 2, 3,", "2, 2, 2", "circle"),
        ("1.5,1,mm", "1.5", "line 7 .*compute,comm"),
        ("1.5,1,mm", "-1,1,mm", "line 7 .*'-1'"),
        ("1.5,1,mm", "inf,1,mm", "line 7 .*'inf'"),
        ("1.5,1,mm", "1,9e14,mm", "check seconds_per_unit|too|counted"),
    ],
)
def test_a_wrong_doppler_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        doppler(tmp_path, DOPPLER.replace(old, new, 1).replace("9e14", "9e14" if "check" not in message else "9.9e14"))


@given(st.data())
@settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_text_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    for read, whole in ((profile, PROFILE.encode()), (doppler, DOPPLER.encode())):
        text = bytearray(whole)
        for _ in range(data.draw(st.integers(1, 4))):
            place = data.draw(st.integers(0, len(text)))
            text[place : place + data.draw(st.integers(0, 3))] = data.draw(
                st.one_of(st.sampled_from([b"\n", b",", b"-", b"9", b"\t", b"1e9"]), st.binary(max_size=2))
            )
        try:
            graph = read(tmp_path, bytes(text))
        except InputError:
            continue
        assert all(np.isfinite(seconds).all() for seconds in graph.measured_time_s.values())


@pytest.mark.skipif(
    not (shared := Path(__file__).resolve().parents[3] / "shared" / "instances" / "pipedream").exists(), reason="the profiles are not here"
)
@pytest.mark.parametrize("name,backward_s", [("vgg16", 0.438633), ("resnet50", 0.260931)])
def test_published_profiles(name: str, backward_s: float) -> None:
    graph = read_pipedream(shared / f"{name}.txt", kind="v100")
    lines = (shared / f"{name}.txt").read_text().splitlines()
    assert (graph.phase == Phase.FORWARD).sum() == sum(not line.startswith("\t") for line in lines)
    assert graph.measured_time_s["v100"][graph.phase == Phase.BACKWARD].sum() == pytest.approx(backward_s)
