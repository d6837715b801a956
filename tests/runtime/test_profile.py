"""A profile's file says what was written, and refuses to be anything else; the fingerprint knows this machine, and what has changed."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from branching_net import branching_program, core_cluster

from gdp.errors import InputError
from gdp.runtime.fingerprint import changes, fingerprint
from gdp.runtime.handovers import HandOvers
from gdp.runtime.links import fit_link
from gdp.runtime.profile import Profile, check_covers, read_profile, write_profile

GRAPH = branching_program().graph
PROFILE = Profile(
    graph_sha256=GRAPH.sha256,
    dispatch="program_order",
    op_time_s={"core": np.linspace(0, 1e-3, GRAPH.num_ops)},
    links={"cpu:0 -> cpu:1": fit_link([1024, 4096], [1e-5, 2e-5])},
    fingerprint={"processor": "a", "torch": "2"},
    hand_overs=HandOvers(latency_s=3e-5, num_transfers=(0, 4, 9), measured_s=(1.0, 2.0, 3.0)),
)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_profile(tmp_path / "profile.json", PROFILE)
    read = read_profile(tmp_path / "profile.json", GRAPH)
    assert np.array_equal(read.op_time_s["core"], PROFILE.op_time_s["core"])
    assert (read.dispatch, read.links, read.fingerprint) == (PROFILE.dispatch, PROFILE.links, PROFILE.fingerprint)
    assert read.hand_overs is not None and dataclasses.asdict(read.hand_overs) == dataclasses.asdict(PROFILE.hand_overs)
    document = json.loads((tmp_path / "profile.json").read_text())
    del document["hand_overs"]  # as files of before have it
    (tmp_path / "profile.json").write_text(json.dumps(document))
    assert read_profile(tmp_path / "profile.json", GRAPH).hand_overs is None


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": 2}, "format"),
        ({"graph_sha256": "0" * 64}, "another graph"),
        ({"op_time_s": {"core": [1.0]}}, "another graph"),
        ({"op_time_s": {"core": [0.0] * GRAPH.num_ops}}, "no second for any op on core"),
        ({"op_time_s": {"core": [-1.0] * GRAPH.num_ops}}, "op_time_s"),
        (
            {"links": {"a": {"latency_s": 1.0, "bandwidth_bytes_per_s": 1.0, "num_bytes": [1], "seconds": [], "median_error": 0.0}}},
            "fewer seconds than sizes",
        ),
        (
            {"links": {"a": {"latency_s": 0.0, "bandwidth_bytes_per_s": 1.0, "num_bytes": [], "seconds": [], "median_error": 0.0}}},
            "latency_s",
        ),
        ({"hand_overs": {"latency_s": 1e-5, "num_transfers": [1], "measured_s": []}}, "fewer seconds than placements"),
        ({"hand_overs": {"latency_s": 0.0, "num_transfers": [], "measured_s": []}}, "hand_overs.latency_s"),
        ({"dispatch": "at random"}, "dispatch"),
        ({"more": 1}, "more"),
    ],
)
def test_another_file_is_refused(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    write_profile(path, PROFILE)
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(InputError, match=message):
        read_profile(path, GRAPH)


def test_a_kind_that_was_not_measured_is_told() -> None:
    cluster = core_cluster(["cpu:0"])
    check_covers(PROFILE, cluster, Path("p"))
    other = dataclasses.replace(cluster, devices=(dataclasses.replace(cluster.devices[0], kind="gpu"),))
    with pytest.raises(InputError, match="seconds for core, not for gpu"):
        check_covers(PROFILE, other, Path("p"))


def test_the_fingerprint_of_one_machine_does_not_change() -> None:
    now = fingerprint(["cpu:0"])
    assert {"processor", "cores", "memory", "system", "python", "torch", "numpy"} <= now.keys()
    assert changes(now, fingerprint(["cpu:0"])) == []


def test_what_is_no_gpu_has_no_fingerprint() -> None:
    assert fingerprint(["cuda:x", "cuda:-1", "cuda:", "cuda:" + "9" * 5000]) == fingerprint([])


def test_changes_name_what_is_different() -> None:
    then = {"torch": "2.12", "processor": "x", "processor clock": "2000 MHz"}
    assert changes(then, then | {"processor clock": "2100 MHz"}) == []
    assert changes(then, then | {"processor clock": "3000 MHz"}) == ["processor clock: 2000 MHz, now 3000 MHz"]
    assert changes(then, {"torch": "2.13", "processor": "x"}) == ["processor clock: 2000 MHz, now unknown", "torch: 2.12, now 2.13"]
