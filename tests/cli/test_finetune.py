"""`finetune.py` end to end on a graph from a file, in the simulator."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gdp.cluster import preset
from gdp.placement import read_placement
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import numpy as np
from gdp.workloads.synthetic import layered
def build():
    return layered(np.random.default_rng(5), num_ops=60)
"""


@pytest.mark.slow
def test_the_result_is_the_best_candidate_and_the_file_can_be_read_back(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run = tmp_path / "run"
    command = [sys.executable, str(ROOT / "finetune.py"), "workload=program.py:build", "cluster=p100x2", "init=null", "policy=tiny"]
    command += ["finetune.evaluations=64", "finetune.search_evaluations=50", "finetune.parameters=all", f"run_dir={run}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((run / "result.json").read_text())
    times = {name: figures["step_time_s"] for name, figures in result["candidates"].items() if figures["status"] == "ok"}
    assert {"one device: gpu0", "contiguous", "metis", "list scheduling", "local search", "zero-shot"} <= set(times)
    graph, cluster = layered(np.random.default_rng(5), num_ops=60), preset("p100x2")
    placement = read_placement(run / "placement.json", graph, cluster)
    step_time_s = Simulator()(graph, cluster, placement).step_time_s
    assert step_time_s == min(times.values()) == times[result["best"]]
    assert result["curve"]["evaluations"] == [16, 32, 48, 64]
    assert result["curve"]["best_s"] == sorted(result["curve"]["best_s"], reverse=True)
    assert result["curve"]["best_s"][-1] == times["fine-tuned"] <= times["zero-shot"]
    one_device = len(set(placement.device.tolist())) == 1
    assert result["verdict"].startswith("one device is best") == one_device
