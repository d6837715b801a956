"""A run measures its ops once, on one machine."""

import json
from pathlib import Path

import numpy as np
import pytest

from gdp.cli.model import Model
from gdp.cli.runtimes import profiled_graph
from gdp.cluster import preset
from gdp.errors import InputError
from gdp.workloads.synthetic import layered

MODEL = Model(graph=layered(np.random.default_rng(0), num_ops=20), program=None, example_inputs=())
CLUSTER = preset("p100x2")


def seconds(each_s: float) -> dict[str, np.ndarray]:
    return {"p100": np.full(MODEL.graph.num_ops, each_s)}


def test_an_earlier_start_s_seconds_are_taken(tmp_path: Path) -> None:
    for each_s in (1.0, 2.0):
        graph = profiled_graph(MODEL, CLUSTER, tmp_path / "profile.json", measure=lambda each_s=each_s: seconds(each_s))
        assert graph.measured_time_s["p100"].tolist() == [1.0] * MODEL.graph.num_ops


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("fingerprint", {"processor": "another"}, "processor: another, now .*start a run in another folder"),
        ("op_time_s", {"v100": [1.0] * 20}, "seconds for v100, not for p100"),
        ("graph_sha256", "0" * 64, "another graph"),
    ],
)
def test_another_machine_s_or_graph_s_seconds_are_refused(part: str, value: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    profiled_graph(MODEL, CLUSTER, path, measure=lambda: seconds(1.0))
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: value}))
    with pytest.raises(InputError, match=message):
        profiled_graph(MODEL, CLUSTER, path, measure=lambda: seconds(1.0))
