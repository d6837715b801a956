"""What a pretraining run is validated on, and how its card names it."""

from pathlib import Path

from gdp.cli.fill import fill
from gdp.cli.hydra_config import composed, resolved
from gdp.cli.pretraining_tasks import pretraining_validation
from gdp.cli.train_config import TrainConfig


def _settings(folder: Path, *overrides: str) -> TrainConfig:
    small = ["workload.min_ops=20", "workload.max_ops=60", "workload.max_groups=16", "validation.workloads=[]", "num_threads=1"]
    return fill(TrainConfig, resolved(composed("train", [f"run_dir={folder}", *small, *overrides])), where="")


def test_random_graphs_of_validation_stand_on_every_cluster_under_one_name(tmp_path: Path) -> None:
    validation = pretraining_validation(_settings(tmp_path, "validation.synthetic=3", "validation.presets=[p100x2,p100x4]"))
    assert validation is not None
    names = [task.name for task in validation.tasks]
    assert len(names) == 6 == len(set(names))
    assert [task.cluster.name for task in validation.tasks] == ["p100x2", "p100x4"] * 3
    graphs = [name.rpartition("@")[0] for name in names]
    assert graphs[::2] == graphs[1::2] and [name.rpartition("-")[2] for name in graphs[::2]] == ["0", "1", "2"]
    assert all(name.endswith(f"@{task.cluster.name}") and name.count("@") == 1 for name, task in zip(names, validation.tasks, strict=True))
    assert validation.tasks[0].graph is validation.tasks[1].graph


def test_validation_of_nothing_is_none(tmp_path: Path) -> None:
    assert pretraining_validation(_settings(tmp_path, "validation.synthetic=0")) is None
