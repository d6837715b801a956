"""Every checkpoint that travels with gdp: it loads, and what its card says is true."""

import hashlib
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

import gdp.hub
from gdp.bundled import bundled
from gdp.hub.checkpoint import FILES, read_config
from gdp.hub.load import available

FOLDERS = sorted(path for path in bundled("checkpoints").iterdir() if path.is_dir())
ROOT = Path(__file__).resolve().parents[2]
MAX_BUNDLED_BYTES = 8 * 2**20
"""All of them together: they travel inside the wheel."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_card_is_true(folder: Path) -> None:
    weights = (folder / "model.safetensors").read_bytes()
    policy = gdp.hub.load(folder.name)
    facts = {
        "num_parameters": sum(value.numel() for value in policy.state_dict().values()),
        "weights_bytes": len(weights),
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
    }
    _, front, body = (folder / "README.md").read_text().split("---\n", 2)
    matter = yaml.safe_load(front)
    assert matter["gdp"] == facts
    assert matter["library_name"] == "gdp" and matter["license"] and matter["pipeline_tag"] == "graph-ml"
    assert f"# {folder.name}\n" in body
    for number in facts.values():
        assert str(number) in body
    for heading in ("## Training", "## Results", "## Limits"):
        assert heading in body
    assert read_config(folder).facts.weights_sha256 == facts["weights_sha256"]
    assert {path.name for path in folder.iterdir()} <= set(FILES)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_hubs_library_reads_its_results(folder: Path) -> None:
    """`ModelCard` is how the Hub itself, and everybody's scripts, read a card."""
    data = ModelCard.load(folder / "README.md").data
    rows = _rows(folder)
    found = {(one.dataset_split, one.metric_name): one.metric_value for one in data.eval_results}
    for split in ("validation", "hold-out"):
        ratios = [float(row[6]) for row in rows if row[2] == split]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        assert found[split, "geometric mean of step time over the best simple method's"] == pytest.approx(mean, abs=6e-4)
        assert found[split, "worst step time over the best simple method's"] == pytest.approx(max(ratios), abs=6e-4)
    assert len(found) == 4


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_stated_command_reproduces_its_figures(folder: Path, tmp_path: Path) -> None:
    """On three of its graphs, that is 18 of its 60 rows; the whole command takes two minutes."""
    graphs = ("series-parallel-60-inference-0", "two-tower-recommender-8", "branching")
    stated = re.search(r"reproduced by `python (benchmarks/zero_shot.py --policy [\w-]+)`", (folder / "README.md").read_text())
    assert stated is not None
    out = tmp_path / "figures.json"
    subprocess.run(
        [sys.executable, *stated[1].split(), "--workloads", ",".join(graphs), "--out", str(out)], cwd=ROOT, check=True, capture_output=True
    )
    measured = {
        (cell["workload"], cell["cluster"]): (
            f"{1e3 * statistics.median(cell['policy_s']):.4g}",
            f"{1e3 * cell['best_simple_s']:.4g} ({cell['best_simple']})",
        )
        for cell in json.loads(out.read_text())["cells"]
    }
    printed = {(row[0], row[1]): (row[4], row[5]) for row in _rows(folder) if row[0] in graphs}
    assert len(measured) == 18 and measured == printed


def _rows(folder: Path) -> list[list[str]]:
    """The table of results, cell by cell."""
    table = (folder / "README.md").read_text().split("## Results")[1].split("## Limits")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("|")]
    return rows[2:]


def test_they_can_be_shown() -> None:
    for folder in FOLDERS:
        assert gdp.hub.card(folder.name) == (folder / "README.md").read_text()
    assert [one.name for one in gdp.hub.list() if one.where == "bundled"] == [folder.name for folder in FOLDERS]


def test_they_are_light_and_listed() -> None:
    assert available() == tuple(folder.name for folder in FOLDERS)
    assert sum(path.stat().st_size for folder in FOLDERS for path in folder.iterdir()) <= MAX_BUNDLED_BYTES
