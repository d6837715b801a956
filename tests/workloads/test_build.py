"""The command that stores graphs: writes what differs, leaves what is equal, refuses what it cannot store."""

import functools
from pathlib import Path

import pytest

from gdp.capture.parquet import read_graph
from gdp.workloads.build import main, store
from gdp.workloads.catalog import Workload
from gdp.workloads.known_optimum import fork_join


def branches(count: int) -> Workload:
    build = functools.partial(lambda: fork_join(num_branches=count, transfer_s=0.5).graph)
    return Workload(name="fork-join", family="fork-join", framework="synthetic", split="hold-out", build=build, capture=build)


def test_a_file_is_written_only_where_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "fork_join.parquet"
    assert store(branches(2), path)
    first = path.stat().st_mtime_ns
    assert not store(branches(2), path)
    assert path.stat().st_mtime_ns == first
    assert store(branches(3), path)
    assert read_graph(path).sha256 == branches(3).build().sha256


@pytest.mark.parametrize(("name", "message"), [("gnmt-9-training", "did you mean"), ("branching", "nothing of it is stored")])
def test_a_wrong_name_is_said_before_anything_is_captured(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2
    assert message in capsys.readouterr().err
