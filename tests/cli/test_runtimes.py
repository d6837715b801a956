"""The stored profile of a run is read strictly."""

import json
from pathlib import Path

import numpy as np
import pytest

from gdp.cli.runtimes import read_profile
from gdp.cluster import preset
from gdp.errors import InputError
from gdp.workloads.synthetic import layered

GRAPH = layered(np.random.default_rng(0), num_ops=20)
GOOD = [0.5] * GRAPH.num_ops


def test_a_profile_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"p100": GOOD}))
    assert read_profile(path, GRAPH, preset("p100x2"))["p100"].tolist() == GOOD


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b"{}",
        b'{"a": "b"}',
        json.dumps({"v100": GOOD}).encode(),
        json.dumps({"p100": GOOD[1:]}).encode(),
        json.dumps({"p100": [*GOOD[1:], -1.0]}).encode(),
        json.dumps({"p100": [*GOOD[1:], float("nan")]}).encode(),
        json.dumps({"p100": [*GOOD[1:], None]}).encode(),
        json.dumps({"p100": [GOOD]}).encode(),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match="start anew"):
        read_profile(path, GRAPH, preset("p100x2"))
