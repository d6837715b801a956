"""`gdp solve` on small instances, and profiles as MODEL: what is printed and written, and one sentence for every mistake."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gdp.baselines.tarnawski.cost import loads_s
from gdp.capture.tarnawski_json import read_tarnawski, read_tarnawski_split
from gdp.cli.main import app
from gdp.cli.model import resolve_model
from gdp.errors import InputError

Instance = Callable[..., Path]

PIPEDREAM = """node1 -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=8.0, parameter_size=0.0
node2 -- Linear(2, 2) -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=8.0, parameter_size=16.0
\tnode1 -- node2
"""
DOPPLER = "2\n0\n0\n1\n1.0,3.0\n2.0,0.0\n"


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """Writes a chain of four nodes of a millisecond, with transfers of a quarter."""

    def write(*, memory: float = 10.0, accelerators: int = 2, cpus: int = 0) -> Path:
        node = {"supportedOnFpga": 1, "cpuLatency": 10.0, "fpgaLatency": 1.0, "isBackwardNode": 0, "size": 1.0}
        document = {
            "maxSizePerFPGA": memory,
            "maxFPGAs": accelerators,
            "maxCPUs": cpus,
            "nodes": [{"id": number, **node} for number in range(4)],
            "edges": [{"sourceId": number, "destId": number + 1, "cost": 0.25} for number in range(3)],
        }
        path = tmp_path / "chain.json"
        path.write_text(json.dumps(document))
        return path

    return write


def test_a_chain_is_cut_in_the_middle(instance: Instance, tmp_path: Path) -> None:
    """Two nodes and a transfer on either side: 2.25 ms. The latency has no cut: 4 ms."""
    path, out = instance(), tmp_path / "split.json"
    for kind in ("--contiguous", "--no-contiguous"):
        result = CliRunner().invoke(app, ["solve", str(path), kind, "--out", str(out), "--evaluations", "1000", "--json"])
        assert result.exit_code == 0
        said = json.loads(result.stdout)
        assert said["status"] == "optimal" and said["proven"] and said["gap"] == pytest.approx(0.0, abs=1e-6)
        assert said["value_s"] == pytest.approx(2.25e-3) and said["bound_s"] == pytest.approx(2.25e-3)
        read = read_tarnawski(path)
        np.testing.assert_allclose(loads_s(read, read_tarnawski_split(out, read)), said["loads_s"])
    result = CliRunner().invoke(app, ["solve", str(path), "--objective", "latency", "--evaluations", "1000"])
    assert result.exit_code == 0 and "latency 4 ms" in result.stdout


def test_a_solver_out_of_time_says_what_it_has_proven(instance: Instance) -> None:
    arguments = ["solve", str(instance(accelerators=3)), "--no-contiguous", "--time-limit-s", "1e-9", "--evaluations", "1", "--json"]
    result = CliRunner().invoke(app, arguments)
    said = json.loads(result.stdout)
    assert result.exit_code == 0
    assert said["status"] == "not proven" and not said["proven"]
    assert 0 < said["bound_s"] < said["value_s"] and said["gap"] == pytest.approx(said["value_s"] / said["bound_s"] - 1)


@pytest.mark.parametrize(
    ("memory", "options", "says"),
    [
        (1.5, [], "1 bytes too much"),
        (0.5, [], "node 0"),
        (10.0, ["--objective", "latency", "--contiguous"], "--contiguous is for"),
        (10.0, ["--subgraphs", "2"], "--subgraphs and --solver are for"),
        (10.0, ["--time-limit-s", "0"], "positive, finite time"),
    ],
)
def test_mistakes(instance: Instance, memory: float, options: list[str], says: str) -> None:
    result = CliRunner().invoke(app, ["solve", str(instance(memory=memory)), *options])
    assert isinstance(result.exception, InputError) and says in str(result.exception)


def test_profiles_are_models(tmp_path: Path) -> None:
    pipedream, doppler = tmp_path / "graph.txt", tmp_path / "sharded.txt"
    pipedream.write_text(PIPEDREAM)
    doppler.write_text(DOPPLER)
    assert resolve_model(f"{pipedream}:p100").graph.measured_time_s["p100"].sum() == pytest.approx(3e-3)
    graph = resolve_model(f"{doppler}:v100:1e-3:1e9").graph
    assert graph.measured_time_s["v100"].tolist() == pytest.approx([1e-3, 2e-3])
    assert graph.tensor_bytes.tolist() == [3_000_000]
    for text, says in (
        (str(pipedream), "graph.txt:KIND"),
        (str(doppler), "KIND:SECONDS_PER_UNIT:BYTES_PER_S"),
        (f"{doppler}:v100", "have no unit"),
        (f"{pipedream}:v100:1:1", "whose units are known"),
        (f"{doppler}:v100:x:1", "is no number"),
        (f"{tmp_path / 'none.txt'}:v100", "none.txt"),
        (f"{pipedream}:v100:1", "is no profile"),
    ):
        with pytest.raises(InputError, match=says):
            resolve_model(text)
    result = CliRunner().invoke(app, ["place", f"{pipedream}:v100", "--cluster", "p100x2", "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, InputError) and "is of the kind 'p100'" in str(result.exception)
