"""The commands, as a user types them: what they write, and one sentence with exit code 2 for every mistake."""

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as parquet
import pytest
import torch
import yaml

from gdp.bundled import bundled
from gdp.capture.parquet import read_graph, write_graphs
from gdp.cli.main import main
from gdp.cli.placers import PLACERS, SEEDED
from gdp.cluster import preset, read_cluster, write_cluster
from gdp.compare.results import read_results, write_results
from gdp.features.config import FeatureConfig
from gdp.hub.card import Card
from gdp.hub.checkpoint import load_checkpoint, read_config, save_checkpoint
from gdp.placement import read_placement
from gdp.policy.config import PolicyConfig
from gdp.policy.policy import Policy
from gdp.runtime.simulator import Simulator
from gdp.workloads.synthetic import layered

Gdp = Callable[..., tuple[int, str, str]]

CARD = Card(name="new", summary="untrained", recipe="none", commit="none", corpus="none", seeds=(0,), results=(), limits="untrained")

PROGRAM = """
from __future__ import annotations
import dataclasses
import torch
from gdp.graph import Graph

@dataclasses.dataclass
class Sizes:
    width: int = 256

class View(torch.nn.Module):
    def forward(self, x):
        return x.view(-1)

def view():
    return View(), (torch.empty(4, 4, device="meta"),)

def build():
    layers = [torch.nn.Linear(256, 256) for _ in range(4)]
    return torch.nn.Sequential(*layers).to("meta"), (torch.empty(64, 256, device="meta"),)

def nothing():
    return None

def broken():
    raise RuntimeError("no weights here")
"""


@pytest.fixture
def gdp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Gdp:
    """Runs the command in an empty folder and returns exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gdp", *arguments])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A new policy's checkpoint folder."""
    folder = tmp_path_factory.mktemp("policy") / "new"
    config = PolicyConfig(hidden=16, heads=2, segment=32, feed_forward=16, head_width=8, context=8, attention_layers=1)
    save_checkpoint(folder, Policy(config, FeatureConfig(), generator=torch.Generator().manual_seed(0)), card=CARD)
    return str(folder)


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    path = tmp_path / "graph.parquet"
    write_graphs(path, [layered(np.random.default_rng(1), num_ops=40)])
    return path


def test_place_writes_the_best_candidate_and_a_report(gdp: Gdp, policy: str, graph_file: Path) -> None:
    code, out, _ = gdp("place", str(graph_file), "--cluster", "p100x4", "--policy", policy, "--samples", "8", "--out", "run", "--json")
    assert code == 0
    summary = json.loads(out)
    times = {name: figures["step_time_s"] for name, figures in summary["candidates"].items()}
    assert set(times) == {"single device", "contiguous", "metis", "list scheduling", "zero-shot", "policy search"}
    assert times[summary["best"]] == min(times.values()) == summary["predicted"]["step_time_s"]
    graph, cluster = read_graph(graph_file), preset("p100x4")
    placement = read_placement(Path("run/placement.json"), graph, cluster)
    assert Simulator()(graph, cluster, placement).step_time_s == min(times.values())
    assert "<svg" in Path("run/report.html").read_text()


def test_a_program_of_the_user_is_captured_and_its_placement_exported(gdp: Gdp, policy: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM)
    assert gdp("place", "mine.py:build", "--cluster", "p100x2", "--policy", policy, "--samples", "1", "--out", "run")[0] == 0
    code, _, err = gdp("export", "run/placement.json", "mine.py:build", "--cluster", "p100x2", "--to", "csv", "--out", "p.csv")
    assert code == 0, err
    rows = list(csv.DictReader(Path("p.csv").read_text().splitlines()))
    assert {row["node_name"] for row in rows} >= {"linear", "linear_1", "linear_2", "linear_3"}
    code, _, err = gdp("export", "run/placement.json", "mine.py:build", "--cluster", "p100x2", "--to", "device_map", "--out", "map.json")
    assert code == 0, err
    assert json.loads(Path("map.json").read_text()) == {"": 0}


def test_a_program_without_work_is_placed(gdp: Gdp, policy: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM)
    code, out, err = gdp("place", "mine.py:view", "--cluster", "p100x2", "--policy", policy, "--samples", "1", "--out", "run")
    assert code == 0, err
    assert "one device is best" in out and Path("run/report.html").is_file()


def test_one_device_is_a_cluster(gdp: Gdp, policy: str, graph_file: Path) -> None:
    document = {
        "name": "one",
        "devices": [{"name": "only", "kind": "x", "memory_bytes": 2**34, "flops_per_s": {"float32": 1e12}, "memory_bytes_per_s": 1e11}],
    }
    Path("one.yaml").write_text(yaml.safe_dump(document))
    code, out, err = gdp("place", str(graph_file), "--cluster", "one.yaml", "--policy", policy, "--out", "run")
    assert code == 0, err
    assert "one device is best: only" in out
    assert set(read_placement(Path("run/placement.json"), read_graph(graph_file), read_cluster(Path("one.yaml"))).device) == {0}


def test_an_op_that_the_policy_never_saw_is_placed(gdp: Gdp, policy: str, graph_file: Path) -> None:
    import dataclasses

    graph = read_graph(graph_file)
    write_graphs(graph_file, [dataclasses.replace(graph, op_type=("mycompany.secret_op",) * graph.num_ops)])
    code, _, err = gdp("place", str(graph_file), "--cluster", "p100x2", "--policy", policy, "--out", "run")
    assert code == 0, err


def test_compare_writes_every_cell(gdp: Gdp, policy: str, graph_file: Path) -> None:
    command = [
        "compare",
        "--workloads",
        str(graph_file),
        "--clusters",
        "p100x2,cpu-gpu",
        "--policy",
        policy,
        "--samples",
        "4",
        "--budget",
        "20",
    ]
    command += ["--seeds", "2", "--out", "rows.json", "--page", "results.md"]
    code, out, err = gdp(*command, "--workers", "1")
    assert code == 0, err
    found = read_results(Path("rows.json"))
    cells = {(row.cluster, row.placer, row.seed): row for row in found.rows}
    assert len(cells) == 2 * (len(PLACERS) + len(SEEDED))
    searches = ("metis-many-times", "local-search", "simulated-annealing", "cross-entropy")
    assert {cells["p100x2", name, seed].evaluations for name in searches for seed in (0, 1)} == {20}
    assert {cells["p100x2", name, 0].status for name in ("policy-search", "fine-tuned")} == {"ok"}
    assert {cells["p100x2", name, 0].evaluations for name in ("policy-search", "fine-tuned")} == {20}
    assert cells["p100x2", "zero-shot", 0].evaluations == 4 and cells["p100x2", "expert", 0].status == "unknown"
    bound_s = {cell.cluster: cell.bound_s for cell in found.cells}
    ran = [row for row in found.rows if row.seconds is not None]
    assert len(ran) > 40 and all(bound_s[row.cluster] <= row.seconds for row in ran)
    assert all(row.best_s[-1] == row.seconds for row in ran if row.placer in searches)
    assert "over bound" in out and "lower bound" in out
    lines = Path("results.md").read_text().splitlines()
    times = next(line for line in reversed(lines) if line.startswith(f"| {graph_file} | p100x2 |"))
    assert times.count("**") >= 2 and len(times.split("|")) == len(PLACERS) + 5
    assert any("separate" in line for line in lines) and ElementTree.parse("results-mean.svg").getroot().tag.endswith("svg")
    elsewhere = found.model_copy(update={"environment": {"machine": "another"}})
    write_results(Path("rows.json"), elsewhere)
    code, _, err = gdp(*command)
    assert code == 0 and read_results(Path("rows.json")) == elsewhere, err
    code, _, err = gdp(*[word if word != "20" else "30" for word in command])
    assert code == 2 and "other settings" in err


def test_compare_refuses_rows_of_another_policy_under_the_same_name(gdp: Gdp, policy: str, graph_file: Path) -> None:
    command = ["compare", "--workloads", str(graph_file), "--clusters", "p100x2", "--policy", "mine", "--budget", "4", "--workers", "1"]
    command += ["--placers", "heft,zero-shot", "--out", "rows.json", "--page", "results.md"]
    shutil.copytree(policy, "mine")
    code, _, err = gdp(*command)
    assert code == 0, err
    trained = load_checkpoint(Path("mine"))
    with torch.no_grad():
        next(trained.parameters()).add_(1.0)
    shutil.rmtree("mine")
    save_checkpoint(Path("mine"), trained, card=CARD)
    old, new = read_config(Path(policy)).revision, read_config(Path("mine")).revision
    assert {row.placer: row.revision for row in read_results(Path("rows.json")).rows} == {"heft": None, "zero-shot": old}
    assert f"mine at {old[:12]}" in Path("results.md").read_text()
    code, _, err = gdp(*command)
    assert code == 2 and old[:12] in err and new[:12] in err
    results = read_results(Path("rows.json"))
    unnamed = results.model_copy(update={"rows": [row.model_copy(update={"revision": None}) for row in results.rows]})
    write_results(Path("rows.json"), unnamed)
    code, _, err = gdp(*command)
    assert code == 2 and "do not say which revision" in err


def test_compare_asks_anew_for_rows_of_which_nobody_knows_the_graph(gdp: Gdp, graph_file: Path) -> None:
    command = [
        "compare",
        "--workloads",
        str(graph_file),
        "--clusters",
        "p100x2",
        "--workers",
        "1",
        "--placers",
        "heft",
        "--out",
        "rows.json",
    ]
    assert gdp(*command)[0] == 0
    whole = read_results(Path("rows.json"))
    wrong = [row.model_copy(update={"seconds": 1e6}) for row in whole.rows]
    write_results(Path("rows.json"), whole.model_copy(update={"cells": [], "rows": wrong}))
    code, _, err = gdp(*command)
    assert code == 0, err
    again = read_results(Path("rows.json"))
    assert again.cells == whole.cells and [row.seconds for row in again.rows] == [row.seconds for row in whole.rows]


def test_compare_keeps_no_row_that_is_faster_than_can_be(gdp: Gdp, graph_file: Path) -> None:
    command = ["compare", "--workloads", str(graph_file), "--clusters", "p100x2", "--workers", "1", "--out", "rows.json"]
    assert gdp(*command, "--placers", "heft")[0] == 0
    whole = read_results(Path("rows.json"))
    raised = [cell.model_copy(update={"bound_s": whole.rows[0].seconds}) for cell in whole.cells]
    write_results(Path("rows.json"), whole.model_copy(update={"cells": raised}))
    with pytest.raises(ValueError, match="less than the lower bound"):
        gdp(*command, "--placers", "heft,local-search", "--budget", "64")
    assert read_results(Path("rows.json")).rows == whole.rows, "what was found before is there"


@pytest.mark.parametrize("more_rows", [False, True])
@pytest.mark.parametrize("changed", ["graph", "cluster", "name"])
def test_compare_refuses_rows_of_another_graph_or_cluster_under_the_same_name(
    gdp: Gdp, graph_file: Path, changed: str, more_rows: bool
) -> None:
    shutil.copy(graph_file, "g.parquet")
    write_cluster(Path("c.yaml"), preset("p100x2"))
    workload = "rnnlm-2-training" if changed == "name" else "g.parquet"
    command = ["compare", "--workloads", workload, "--clusters", "c.yaml", "--workers", "1", "--out", "rows.json"]
    code, _, err = gdp(*command, "--placers", "heft")
    assert code == 0, err
    before = Path("rows.json").read_bytes()
    match changed:
        case "graph":
            write_graphs(Path("g.parquet"), [layered(np.random.default_rng(9), num_ops=30)])
        case "cluster":
            write_cluster(Path("c.yaml"), preset("p100x4"))
        case "name":  # as if gdp itself had changed what the catalog builds
            results = read_results(Path("rows.json"))
            other = [cell.model_copy(update={"graph_sha256": "0" * 64}) for cell in results.cells]
            write_results(Path("rows.json"), results.model_copy(update={"cells": other}))
            before = Path("rows.json").read_bytes()
    code, _, err = gdp(*command, "--placers", "heft,metis" if more_rows else "heft")
    if changed == "name" and not more_rows:
        assert code == 0, err
        return
    assert code == 2 and "before it changed" in err and (workload if changed != "cluster" else "c.yaml") in err
    assert Path("rows.json").read_bytes() == before


def test_compare_finds_the_same_in_several_processes(gdp: Gdp, graph_file: Path) -> None:
    command = ["compare", "--workloads", str(graph_file), "--placers", "heft,local-search,random", "--budget", "15", "--seeds", "2"]
    for workers in ("1", "2"):
        code, _, err = gdp(*command, "--workers", workers, "--out", f"{workers}.json")
        assert code == 0, err
    one, two = (read_results(Path(f"{workers}.json")) for workers in (1, 2))
    assert one.cells and sorted(one.cells, key=lambda cell: cell.key) == sorted(two.cells, key=lambda cell: cell.key)
    rows = [sorted((row.model_copy(update={"wall_s": 0.0}) for row in found.rows), key=lambda row: row.key) for found in (one, two)]
    assert rows[0] == rows[1] and len(rows[0]) == 2 * 5


def test_compare_takes_whole_families_and_names_the_nearest_one(gdp: Gdp) -> None:
    code, out, err = gdp("compare", "--workloads", "vgg:*,vgg-16-training", "--clusters", "p100x2", "--placers", "metis", "--workers", "1")
    assert code == 0 and "vgg-16-training" in out.replace("\n", ""), err
    code, _, err = gdp("compare", "--workloads", "wavnet:*")
    assert code == 2 and "did you mean 'wavenet'?" in err


def test_compare_of_a_program_without_work_has_no_ratios(gdp: Gdp, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM)
    command = ["compare", "--workloads", "mine.py:view", "--clusters", "p100x2", "--placers", "single-device,metis,local-search"]
    code, _, err = gdp(*command, "--budget", "5", "--workers", "1", "--out", "rows.json", "--page", "results.md")
    assert code == 0, err
    assert {row.seconds for row in read_results(Path("rows.json")).rows} == {0.0}
    assert "Of 0 cells" in Path("results.md").read_text()


def test_devices_writes_a_cluster_that_is_read_back(gdp: Gdp) -> None:
    code, _, err = gdp("devices", "--cluster", "two-machines", "--out", "found.yaml")
    assert code == 0, err
    assert read_cluster(Path("found.yaml")).sha256 == preset("two-machines").sha256


def _cyclic(path: Path) -> None:
    table = parquet.read_table(path)
    consumers = table.column("edge_consumer").to_pylist()[0]
    index = table.schema.get_field_index("edge_consumer")
    import pyarrow

    changed = pyarrow.array([[0] * len(consumers)], table.schema.field(index).type)
    parquet.write_table(table.set_column(index, table.schema.field(index), changed), path)


def _with_nan(path: Path) -> None:
    import pyarrow

    table = parquet.read_table(path)
    index = table.schema.get_field_index("flops")
    values = table.column("flops").to_pylist()[0]
    changed = pyarrow.array([[float("nan"), *values[1:]]], table.schema.field(index).type)
    parquet.write_table(table.set_column(index, table.schema.field(index), changed), path)


def _tiny_cluster() -> None:
    document = yaml.safe_load((bundled("conf") / "cluster" / "p100x2.yaml").read_text())
    for device in document["devices"]:
        device["memory_bytes"] = 1000
    Path("tiny.yaml").write_text(yaml.safe_dump(document))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["place", "nowhere.parquet", "--cluster", "p100x2"], "nowhere.parquet"),
        (["place", "mine.py:missing", "--cluster", "p100x2"], "mine.py"),
        (["place", "inceptoin-v3-training", "--cluster", "p100x2"], "did you mean 'inception-v3-training'"),
        (["place", "graph.parquet", "--cluster", "p100x3"], "did you mean"),
        (["place", "graph.parquet", "--cluster", "nowhere.yaml"], "nowhere.yaml"),
        (["place", "graph.parquet", "--cluster", "p100x2", "--policy", "gdp-tyni"], "gdp-tyni"),
        (["place", "graph.parquet", "--cluster", "tiny.yaml"], "bytes"),
        (["place", "cyclic.parquet", "--cluster", "p100x2"], "backwards"),
        (["place", "nan.parquet", "--cluster", "p100x2"], "nan"),
        (["place", "graph.parquet", "--cluster", "p100x2", "--out", "graph.parquet"], "graph.parquet"),
        (["bench", "nowhere.json", "graph.parquet", "--cluster", "p100x2"], "program"),
        (["export", "nowhere.json", "graph.parquet", "--cluster", "p100x2", "--to", "csv", "--out", "x.csv"], "nowhere.json"),
        (["hub", "pull", "gdp-tyni"], "gdp-tyni"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else None,
)
def test_a_mistake_is_one_sentence_and_exit_code_2(gdp: Gdp, policy: str, graph_file: Path, arguments: list[str], says: str) -> None:
    for name, spoil in (("cyclic", _cyclic), ("nan", _with_nan)):
        path = graph_file.with_name(f"{name}.parquet")
        path.write_bytes(graph_file.read_bytes())
        spoil(path)
    _tiny_cluster()
    before = set(Path(".").iterdir())
    if arguments[0] == "place" and "--policy" not in arguments:
        arguments = [*arguments, "--policy", policy]
    code, out, err = gdp(*arguments)
    assert code == 2, (out, err)
    assert says in err and err.count("\n") == 1 and "Traceback" not in err
    assert set(Path(".").iterdir()) == before, "nothing half-written"


LONG = "x" * 5000


@pytest.mark.parametrize(
    "arguments",
    [
        ["place", f"{LONG}.parquet", "--cluster", "p100x2"],
        ["place", f"{LONG}.py", "--cluster", "p100x2"],
        ["place", f"{LONG}.py:build", "--cluster", "p100x2"],
        ["place", LONG, "--cluster", "p100x2"],
        ["place", "graph.parquet", "--cluster", f"{LONG}.yaml"],
        ["place", "graph.parquet", "--cluster", "p100x2", "--policy", f"./{LONG}"],
        ["place", "graph.parquet", "--cluster", "p100x2", "--policy", LONG],
        ["place", "graph.parquet", "--cluster", "p100x2", "--out", LONG],
        ["compare", "--workloads", "graph.parquet", "--clusters", "p100x2", "--placers", "single-device", "--out", f"{LONG}.json"],
        ["compare", "--workloads", f"{LONG}.parquet", "--clusters", "p100x2", "--placers", "single-device"],
        ["export", f"{LONG}.json", "graph.parquet", "--cluster", "p100x2", "--to", "csv", "--out", "x.csv"],
        ["export", "nowhere.json", "graph.parquet", "--cluster", "p100x2", "--to", "csv", "--out", LONG],
        ["devices", "--out", f"{LONG}.yaml"],
        ["hub", "push", LONG, "a/b", "--dry-run"],
        ["hub", "pull", f"./{LONG}"],
    ],
    ids=lambda arguments: " ".join(argument.replace(LONG, "long") for argument in arguments),
)
def test_a_name_that_is_too_long_is_a_mistake_like_any(gdp: Gdp, policy: str, graph_file: Path, arguments: list[str]) -> None:
    if arguments[0] == "place" and "--policy" not in arguments:
        arguments = [*arguments, "--policy", policy]
    code, out, err = gdp(*arguments)
    assert code == 2, (out, err)
    assert "Traceback" not in err and len(err) < 4200


@pytest.mark.parametrize(("function", "says"), [("nothing", "must return"), ("broken", "no weights here")])
def test_a_program_that_fails_is_named(gdp: Gdp, policy: str, tmp_path: Path, function: str, says: str) -> None:
    (tmp_path / "mine.py").write_text(PROGRAM)
    code, _, err = gdp("place", f"mine.py:{function}", "--cluster", "p100x2", "--policy", policy)
    assert code == 2 and says in err and err.count("\n") == 1


def test_debug_shows_the_traceback(gdp: Gdp) -> None:
    from gdp.errors import InputError

    with pytest.raises(InputError, match="nowhere.parquet"):
        gdp("--debug", "place", "nowhere.parquet", "--cluster", "p100x2")
