"""Every checkpoint that travels with gdp: it loads, and what its card says is true."""

import hashlib
from pathlib import Path

import pytest
import yaml

import gdp.hub
from gdp.bundled import bundled
from gdp.hub.checkpoint import FILES, read_config
from gdp.hub.load import available

FOLDERS = sorted(path for path in bundled("checkpoints").iterdir() if path.is_dir())
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


def test_they_can_be_shown() -> None:
    for folder in FOLDERS:
        assert gdp.hub.card(folder.name) == (folder / "README.md").read_text()
    assert [one.name for one in gdp.hub.list() if one.where == "bundled"] == [folder.name for folder in FOLDERS]


def test_they_are_light_and_listed() -> None:
    assert available() == tuple(folder.name for folder in FOLDERS)
    assert sum(path.stat().st_size for folder in FOLDERS for path in folder.iterdir()) <= MAX_BUNDLED_BYTES
