"""A run measures its ops and hand-overs once, on one machine."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from gdp.capture.torch import capture
from gdp.cli.finetune_config import SimulatorConfig
from gdp.cli.measured import measured_runtime
from gdp.cli.model import Model
from gdp.cli.runtimes import calibrated, kept_profile, new_profile, open_judges
from gdp.cluster import Cluster, Device, preset
from gdp.errors import InputError
from gdp.runtime.fingerprint import fingerprint
from gdp.runtime.profile import Profile, write_profile
from gdp.runtime.timing import Protocol
from gdp.runtime.verdict import Dispatch
from gdp.workloads.synthetic import layered

MODEL = Model(graph=layered(np.random.default_rng(0), num_ops=20), program=None, example_inputs=())
CLUSTER = preset("p100x2")
PROFILE = Profile(
    graph_sha256=MODEL.graph.sha256,
    dispatch="program_order",
    op_time_s={"p100": np.ones(MODEL.graph.num_ops)},
    links={},
    fingerprint=fingerprint([device.name for device in CLUSTER.devices]),
)
CORES = sorted(os.sched_getaffinity(0))


def test_an_earlier_start_s_seconds_are_taken(tmp_path: Path) -> None:
    assert kept_profile(MODEL, CLUSTER, tmp_path / "profile.json") is None
    write_profile(tmp_path / "profile.json", PROFILE)
    kept = kept_profile(MODEL, CLUSTER, tmp_path / "profile.json")
    assert kept is not None and kept.op_time_s["p100"].tolist() == [1.0] * MODEL.graph.num_ops
    assert calibrated(CLUSTER, kept) is CLUSTER


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
    write_profile(path, PROFILE)
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: value}))
    with pytest.raises(InputError, match=message):
        kept_profile(MODEL, CLUSTER, path)


@pytest.mark.parametrize(("said", "dispatch"), [(None, "program_order"), ("ready_order", "ready_order")])
def test_the_simulator_runs_a_program_as_its_framework_does_unless_told(said: Dispatch | None, dispatch: Dispatch, tmp_path: Path) -> None:
    of_torch = dataclasses.replace(MODEL, dispatch="program_order")
    config = SimulatorConfig(kind="simulator", dispatch=said, num_threads=1)
    with open_judges(config, of_torch, CLUSTER, objective="step_time", folder=tmp_path) as judges:
        assert judges.predictor.dispatch == dispatch and judges.proposed is judges.predictor


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_hand_overs_are_measured_without_touching_the_scale_of_the_run(tmp_path: Path) -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(20)]).eval()
    inputs = (torch.ones(16, 64),)
    captured = capture(net, inputs)
    model = Model(graph=captured.graph, program=captured.program, example_inputs=inputs)
    core = Device(
        name=f"cpu:{CORES[0]}", kind="core", memory_bytes=2**30, flops_per_s={"float32": 1e11}, memory_bytes_per_s=1e10, op_overhead_s=1e-6
    )
    cluster = Cluster(
        name="cores",
        devices=(core, dataclasses.replace(core, name=f"cpu:{CORES[1]}")),
        bandwidth_bytes_per_s=np.full((2, 2), 1e10),
        latency_s=np.full((2, 2), 1e-9),
        channel=np.full((2, 2), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )
    with measured_runtime(model, protocol=Protocol(max_pairs=24, max_time_s=0.5)) as runtime:
        profile = new_profile(model, cluster, tmp_path / "profile.json", runtime)
        assert not runtime._measuring._incumbent  # the first placement of the run is still to anchor its scale
    kept = kept_profile(model, cluster, tmp_path / "profile.json")
    assert kept is not None and profile.hand_overs is not None and kept.hand_overs is not None
    assert dataclasses.asdict(kept.hand_overs) == dataclasses.asdict(profile.hand_overs)
    latency_s = calibrated(cluster, kept).latency_s
    assert latency_s[0, 1] == latency_s[1, 0] == profile.hand_overs.latency_s > 1e-9
