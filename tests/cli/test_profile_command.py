"""`gdp profile` and what is predicted with it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gdp.capture.parquet import read_graph
from gdp.cluster import read_cluster
from gdp.runtime.profile import read_profile

PROGRAM = """
import torch

def build():
    return torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)]).eval(), (torch.ones(32, 64),)
"""
CORES = sorted(os.sched_getaffinity(0))


def _gdp(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "gdp.cli.main", *arguments], cwd=folder, capture_output=True, text=True, env=environment, check=False
    )


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "program.py").write_text(PROGRAM)
    done = _gdp(folder, "profile", "program.py:build", "--steps", "3", "--out", "profile")
    assert done.returncode == 0, done.stderr
    assert f"cpu:{CORES[0]} alone: predicted" in done.stdout and "measured" in done.stdout
    return folder


def test_graph_cluster_and_profile_agree(profiled: Path) -> None:
    graph, cluster = read_graph(profiled / "profile" / "graph.parquet"), read_cluster(profiled / "profile" / "cluster.yaml")
    profile = read_profile(profiled / "profile" / "profile.json", graph)
    for kind in cluster.kinds:
        assert np.array_equal(graph.measured_time_s[kind], profile.op_time_s[kind])
        assert np.array_equal(profile.op_time_s[kind] > 0, graph.works)
    for name, link in profile.links.items():
        i, j = (next(number for number, device in enumerate(cluster.devices) if device.name == end) for end in name.split(" -> "))
        assert cluster.bandwidth_bytes_per_s[i, j] == link.bandwidth_bytes_per_s
        if name.count("cpu:") == 2:
            assert profile.hand_overs is not None and cluster.latency_s[i, j] == profile.hand_overs.latency_s
        else:
            assert cluster.latency_s[i, j] == link.latency_s
    if profile.hand_overs is not None:
        assert profile.hand_overs.num_transfers[0] == 0 < max(profile.hand_overs.num_transfers)
        assert len(profile.hand_overs.measured_s) == len(profile.hand_overs.num_transfers)


def test_placing_predicts_with_the_measured_seconds(profiled: Path) -> None:
    arguments = ("place", "profile/graph.parquet", "--cluster", "profile/cluster.yaml", "--samples", "4", "--json")
    done = _gdp(profiled, *arguments)
    assert done.returncode == 0, done.stderr
    graph = read_graph(profiled / "profile" / "graph.parquet")
    alone_s = graph.measured_time_s[read_cluster(profiled / "profile" / "cluster.yaml").kinds[0]].sum()
    assert json.loads(done.stdout)["candidates"]["single device"]["step_time_s"] == pytest.approx(alone_s, rel=1e-9)
    assert "measured elsewhere" not in done.stderr


def test_another_machine_s_profile_is_told(profiled: Path, tmp_path: Path) -> None:
    for name in ("graph.parquet", "cluster.yaml", "profile.json"):
        (tmp_path / name).write_bytes((profiled / "profile" / name).read_bytes())
    document = json.loads((tmp_path / "profile.json").read_text())
    document["fingerprint"]["processor"] = "another"
    (tmp_path / "profile.json").write_text(json.dumps(document))
    done = _gdp(tmp_path, "place", "graph.parquet", "--cluster", "cluster.yaml", "--samples", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert "measured elsewhere, or before something changed (processor: another, now" in done.stderr


def test_what_cannot_be_profiled_is_told(tmp_path: Path) -> None:
    done = _gdp(tmp_path, "profile", "inception-v3-training")
    assert done.returncode == 2 and "a graph without a program" in done.stderr
    (tmp_path / "program.py").write_text(PROGRAM)
    done = _gdp(tmp_path, "profile", "program.py:build", "--cluster", "p100x2")
    assert done.returncode == 2 and "is not a device that programs run on" in done.stderr
    done = _gdp(tmp_path, "profile", "program.py:build", "--out", "program.py")
    assert done.returncode == 2 and "name a folder" in done.stderr
