"""A run that is killed continues to the same result, bit for bit."""

import hashlib
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from gdp.errors import InputError
from gdp.learn.config import RewardConfig
from gdp.learn.imitation import ImitationConfig, as_target, imitate, searched
from gdp.learn.learner import Learner
from gdp.learn.loop import learn
from gdp.learn.snapshots import lock_folder, read_snapshot, restore_snapshot, save_snapshot
from gdp.learn.sources import FixedTasks
from gdp.learn.task import relative_reward
from tests.learn.problems import learn_config, learner, task, two_chains, two_devices


def run(state: Learner, *, updates: int, snapshot: Path | None = None, pause_s: float = 0.0) -> list[dict[str, float]]:
    """Imitates for two steps, then learns up to `updates`; returns the untimed metrics of each update."""
    only = task(two_chains(), two_devices())
    source, target = FixedTasks(tasks=[only]), as_target(only, searched(only, evaluations=5, objective="step_time", seed=0))
    warm_up = ImitationConfig(
        steps=2, search_evaluations=5, placements_per_step=1, region_share=0.0, learning_rate=1e-2, final_learning_rate=1e-2
    )
    for _ in imitate(state, [0, 0], lambda number: (only, target), config=warm_up, gradient_norm=1.0, objective="step_time"):
        if snapshot is not None:
            save_snapshot(snapshot, state, run="test", extra={"note": 1})
    seen = []
    reward = relative_reward(RewardConfig(objective="step_time", invalid=-10.0))
    for update in learn(state, source, reward, config=learn_config(updates=updates, elite_weight=0.1), objective="step_time"):
        seen.append({name: value for name, value in update.metrics.items() if not name.startswith("time/")})
        if snapshot is not None:
            save_snapshot(snapshot, state, run="test", extra={"note": 1})
            time.sleep(pause_s)
    return seen


def assert_same(one: Learner, other: Learner) -> None:
    for name, value in one.policy.state_dict().items():
        assert torch.equal(value, other.policy.state_dict()[name]), name
    assert one.history == other.history and one.update == other.update and one.evaluations == other.evaluations
    assert one.numpy_generator.bit_generator.state == other.numpy_generator.bit_generator.state
    assert torch.equal(one.torch_generator.get_state(), other.torch_generator.get_state())
    assert {name: best.device.tolist() for name, best in one.incumbent.items()} == {
        name: best.device.tolist() for name, best in other.incumbent.items()
    }


@pytest.mark.parametrize("stopped_after", [1, 4])
def test_a_restored_run_continues_bit_for_bit(tmp_path: Path, stopped_after: int) -> None:
    whole, first, second = learner(0), learner(0), learner(1)
    metrics = run(whole, updates=6)
    run(first, updates=stopped_after, snapshot=tmp_path / "s.pt")
    assert restore_snapshot(tmp_path / "s.pt", second, run="test") == {"note": 1}
    assert run(second, updates=6) == metrics[stopped_after:]
    assert_same(whole, second)


def test_a_run_killed_at_any_moment_continues_bit_for_bit(tmp_path: Path) -> None:
    whole, state = learner(0), learner(0)
    run(whole, updates=12)
    program = (
        "import sys; from pathlib import Path; from tests.learn.test_snapshots import resumed, run; "
        "run(resumed(Path(sys.argv[1])), updates=12, snapshot=Path(sys.argv[1]), pause_s=0.03)"
    )
    moments = np.random.default_rng(0).uniform(0.02, 0.25, size=2)
    for moment in moments:
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path / "s.pt")], env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}
        )
        before = _stamp(tmp_path / "s.pt")
        while _stamp(tmp_path / "s.pt") == before and child.poll() is None:
            time.sleep(0.01)
        time.sleep(float(moment))
        child.send_signal(signal.SIGKILL)
        child.wait()
    restore_snapshot(tmp_path / "s.pt", state, run="test")
    run(state, updates=12)
    assert_same(whole, state)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["s.pt"]


def resumed(path: Path) -> Learner:
    state = learner(0)
    if path.exists():
        restore_snapshot(path, state, run="test")
    return state


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def test_a_snapshot_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.pt"
    save_snapshot(path, learner(0), run="one", extra={})
    with pytest.raises(InputError, match="another configuration"):
        restore_snapshot(path, learner(0), run="other")
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    with pytest.raises(InputError, match="cannot be read"):
        restore_snapshot(path, learner(0), run="one")
    for place in np.random.default_rng(0).integers(len(whole), size=20).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(InputError, match="changed since it was written"):
            restore_snapshot(path, learner(0), run="one")


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps(print), pickle.dumps([1]), b"PK\x03\x04", b"\x80\x02"])
def test_what_is_no_snapshot_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "s.pt"
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        restore_snapshot(path, learner(0), run="one")


@pytest.mark.parametrize("content", [[1], {}, {"document": 3}, {"document": "[]"}, {"document": '{"format": 5, "run": "one"}'}])
def test_a_snapshot_that_lacks_something_is_refused(tmp_path: Path, content: object) -> None:
    path = tmp_path / "s.pt"
    data = io.BytesIO()
    torch.save(content, data)
    path.write_bytes(hashlib.sha256(data.getvalue()).digest() + data.getvalue())
    with pytest.raises(InputError, match="cannot be read: (?!.*changed since)"):
        restore_snapshot(path, learner(0), run="one")


def test_a_folder_belongs_to_one_run(tmp_path: Path) -> None:
    with lock_folder(tmp_path):
        held = subprocess.run(
            [
                sys.executable,
                "-c",
                f"from pathlib import Path; from gdp.learn.snapshots import lock_folder; lock_folder(Path({str(tmp_path)!r})).__enter__()",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        assert held.returncode != 0 and "another run is at work" in held.stderr
    with lock_folder(tmp_path):
        pass


def test_a_lock_that_is_no_file_of_its_own_is_refused_and_what_it_leads_to_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for number, make in enumerate((lambda lock: lock.symlink_to(victim), os.mkfifo, Path.mkdir)):
        folder = tmp_path / str(number)
        folder.mkdir()
        make(folder / ".lock")
        with pytest.raises(InputError, match=r"\.lock is not a regular file|cannot write"), lock_folder(folder):
            pass
    assert victim.read_text() == "precious"


def test_a_pipe_or_a_huge_hole_for_a_snapshot_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(2**40)
    for name, told in (("pipe", "not a regular file"), ("hole", "at most")):
        with pytest.raises(InputError, match=told):
            restore_snapshot(tmp_path / name, learner(0), run="one")


@pytest.mark.parametrize("name", ["update", "imitation_step", "evaluations", "last_improvement"])
@pytest.mark.parametrize("value", [-1, 1.0, "1", True, None, 10**400])
def test_a_counter_that_is_no_count_is_refused(tmp_path: Path, name: str, value: object) -> None:
    _forged(tmp_path / "s.pt", document={name: value})
    with pytest.raises(InputError, match="cannot be read: ValueError: .* is no count"):
        restore_snapshot(tmp_path / "s.pt", learner(0), run="test")


def test_a_state_of_the_optimiser_for_other_weights_is_refused(tmp_path: Path) -> None:
    _forged(tmp_path / "s.pt", momentum=torch.zeros(3))
    with pytest.raises(InputError, match="not that of the policy's weights"):
        restore_snapshot(tmp_path / "s.pt", learner(0), run="test")


def _forged(path: Path, *, document: dict[str, object] | None = None, momentum: torch.Tensor | None = None) -> None:
    """A snapshot that somebody has changed, with a hash that fits."""
    run(learner(0), updates=1, snapshot=path)
    content = read_snapshot(path)
    content["document"] = json.dumps(json.loads(content["document"]) | (document or {}))
    if momentum is not None:
        for state in content["optimizer"]["state"].values():
            state["exp_avg"] = momentum
    data = io.BytesIO()
    torch.save(content, data)
    path.write_bytes(hashlib.sha256(data.getvalue()).digest() + data.getvalue())
