"""Checkpoint folders: what is saved is loaded bit by bit, and everything else is refused."""

import hashlib
import json
import math
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import gdp.hub
from gdp.capture.coarsening import coarsen
from gdp.cluster import preset
from gdp.errors import InputError
from gdp.features.config import FeatureConfig
from gdp.features.featurize import featurize
from gdp.hub.checkpoint import MAX_CONFIG_BYTES, check_readable, config_sha256, read_config
from gdp.hub.load import available
from gdp.policy.config import PolicyConfig
from gdp.workloads.synthetic import layered
from tests.hub.example_checkpoint import CARD, small_checkpoint, small_policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_checkpoint(tmp_path / "small-v1")


def change_config(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    document = json.loads((folder / "config.json").read_text())
    change(document)
    (folder / "config.json").write_text(json.dumps(document | {"config_sha256": config_sha256(document)}))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Changes the weights and everything that vouches for them, so that only the change itself can be noticed."""
    path = folder / "model.safetensors"
    state = load_file(path)
    change(state)
    save_file(state, path)
    data = path.read_bytes()

    def vouch(document: dict[str, Any]) -> None:
        document["weights_sha256"], document["weights_bytes"] = hashlib.sha256(data).hexdigest(), len(data)
        document["num_parameters"] = sum(value.numel() for value in state.values())

    change_config(folder, vouch)


def test_a_loaded_policy_decides_bit_by_bit_as_the_saved_one(folder: Path) -> None:
    saved, loaded = small_policy(), gdp.hub.load(folder)
    assert not loaded.training
    assert (loaded.config, loaded.features) == (saved.config, saved.features)

    graph, cluster = layered(np.random.default_rng(0), num_ops=60), preset("p100x2")
    tensors = featurize(graph, cluster, coarsen(graph), saved.features)
    decisions = saved.sample(tensors, num_samples=2, temperature=1.0, generator=torch.Generator().manual_seed(0))
    for ours, theirs in zip(saved.evaluate(tensors, decisions.device), loaded.evaluate(tensors, decisions.device), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(saved.evaluate(tensors, decisions.device)[0], small_policy(seed=1).evaluate(tensors, decisions.device)[0])


REFUSED_CONFIGS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "newer": (lambda d: d.update(schema=3), "schema 3, newer than 2"),
    "older": (lambda d: d.update(schema=1), "wrong at schema"),
    "no schema": (lambda d: d.pop("schema"), "wrong at schema"),
    "unknown field": (lambda d: d.update(surprise=1), "wrong at surprise"),
    "unknown size": (lambda d: d["policy"].update(surprise=1), "wrong at policy.surprise"),
    "unknown feature": (lambda d: d["features"].update(surprise=1), "wrong at features.surprise"),
    "target": (lambda d: d["policy"].update(_target_="os.system"), "carries `_target_`"),
    "foreign architecture": (lambda d: d.update(architecture="os.system"), "architecture is 'os.system'"),
    "foreign library": (lambda d: d.update(library="other"), "wrong at library"),
    "text for a number": (lambda d: d["policy"].update(hidden="16"), "wrong at policy.hidden"),
    "huge": (lambda d: d["policy"].update(hidden=2**40), "hidden 1099511627776"),
    "deep": (lambda d: d["policy"].update(attention_layers=10**9), "attention_layers 1000000000"),
    "many buckets": (lambda d: d["features"].update(num_hash_buckets=2**60), "num_hash_buckets 1152921504606846976"),
    "no multiple": (lambda d: d["policy"].update(heads=3), "no multiple of its 3 heads"),
    "feature schema": (lambda d: d["features"].update(schema_version=99), "feature schema 99"),
    "another width": (lambda d: d["policy"].update(head_width=9), "asks for"),
    "another depth": (lambda d: d["policy"].update(attention_layers=1), "unknown tensor"),
    "hash": (lambda d: d.update(weights_sha256="0" * 64), "damaged or was changed"),
    "hash form": (lambda d: d.update(weights_sha256="../../etc/passwd"), "wrong at weights_sha256"),
    "count": (lambda d: d.update(num_parameters=5), "promises 5"),
}


@pytest.mark.parametrize("name", REFUSED_CONFIGS)
def test_a_wrong_config_is_refused(folder: Path, name: str) -> None:
    change, message = REFUSED_CONFIGS[name]
    change_config(folder, change)
    with pytest.raises(InputError) as caught:
        gdp.hub.load(folder)
    assert message in str(caught.value)
    assert str(folder) in str(caught.value) or "architecture" in str(caught.value)


def first(state: dict[str, torch.Tensor]) -> str:
    return min(state)


REFUSED_WEIGHTS: dict[str, tuple[Callable[[dict[str, torch.Tensor]], object], str]] = {
    "missing": (lambda s: s.pop(first(s)), "misses the tensor"),
    "extra": (lambda s: s.update(extra=torch.zeros(1)), "unknown tensor 'extra'"),
    "shape": (lambda s: s.update({first(s): torch.zeros(3, 3, 3)}), "has shape (3, 3, 3)"),
    "dtype": (lambda s: s.update({first(s): s[first(s)].half()}), "torch.float16"),
    "not a number": (lambda s: s[first(s)].view(-1).__setitem__(0, math.nan), "not a finite number"),
    "infinite": (lambda s: s[first(s)].view(-1).__setitem__(0, math.inf), "not a finite number"),
}


@pytest.mark.parametrize("name", REFUSED_WEIGHTS)
def test_wrong_weights_are_refused_even_when_the_hash_is_right(folder: Path, name: str) -> None:
    change, message = REFUSED_WEIGHTS[name]
    change_weights(folder, change)
    with pytest.raises(InputError) as caught:
        gdp.hub.load(folder)
    assert message in str(caught.value)


def test_a_changed_byte_is_noticed(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged or was changed"):
        gdp.hub.load(folder)


def test_every_changed_byte_of_the_config_that_changes_what_it_says_is_noticed(folder: Path) -> None:
    path = folder / "config.json"
    data, said = path.read_bytes(), json.loads(path.read_bytes())
    for position in range(len(data)):
        for flip in (1, 2, 16):
            changed = data[:position] + bytes([data[position] ^ flip]) + data[position + 1 :]
            path.write_bytes(changed)
            try:
                read_config(folder)
            except InputError:
                continue
            assert json.loads(changed) == said, f"byte {position}: {changed[position - 20 : position + 20]!r}"


def test_a_changed_prior_is_told_from_the_one_that_was_saved(folder: Path) -> None:
    path = folder / "config.json"
    document = json.loads(path.read_text())
    document["policy"]["finish_prior"] += 1.0
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="is not what was written"):
        gdp.hub.load(folder)


def test_files_that_are_not_what_they_should_be(folder: Path) -> None:
    config, weights = folder / "config.json", folder / "model.safetensors"
    original = config.read_bytes()
    for content, message in (
        (b"{", "not JSON"),
        (b"[]", "JSON object"),
        (b"[" * 10**5, "not JSON"),
        (b" " * (MAX_CONFIG_BYTES + 1), "at most"),
    ):
        config.write_bytes(content)
        with pytest.raises(InputError, match=message):
            gdp.hub.load(folder)
    config.write_bytes(original)
    weights.write_bytes(b"\xff" * 100)
    data = weights.read_bytes()
    change_config(folder, lambda d: d.update(weights_sha256=hashlib.sha256(data).hexdigest(), weights_bytes=100))
    with pytest.raises(InputError, match="not a safetensors file"):
        gdp.hub.load(folder)
    weights.unlink()
    with pytest.raises(InputError, match="cannot read"):
        gdp.hub.load(folder)
    os.mkfifo(weights)
    with pytest.raises(InputError, match="not a regular file"):
        gdp.hub.load(folder)
    weights.unlink()
    weights.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="not a regular file"):
        gdp.hub.load(folder)
    config.unlink()
    config.symlink_to("config.json")
    with pytest.raises(InputError, match="cannot read"):
        gdp.hub.load(folder)


def test_saving_is_all_or_nothing(tmp_path: Path, folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(InputError, match="exists already"):
        gdp.hub.save(folder, small_policy(), card=CARD)
    broken = small_policy()
    with torch.no_grad():
        next(broken.parameters()).view(-1)[0] = math.nan
    with pytest.raises(InputError, match="not a finite number"):
        gdp.hub.save(folder, broken, card=CARD, replace=True)
    (tmp_path / "a-file").touch()
    (tmp_path / "a-link").symlink_to(folder)
    for name, kind in (("a-file", "file"), ("a-link", "link")):
        with pytest.raises(InputError, match=f"{name} is a {kind}; move it away"):
            gdp.hub.save(tmp_path / name, small_policy(), card=CARD, replace=True)
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match="JSON compliant"):
        gdp.hub.save(folder, small_policy(), card=CARD, metrics={"loss": math.nan}, replace=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    gdp.hub.save(folder, small_policy(seed=1), card=CARD, replace=True)
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json", "model.safetensors"]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
    assert torch.equal(next(gdp.hub.load(folder).parameters()), next(small_policy(seed=1).parameters()))


def test_the_card_tells_the_figures(folder: Path) -> None:
    text = (folder / "README.md").read_text()
    _, front, body = text.split("---\n", 2)
    matter = yaml.safe_load(front)
    assert (matter["library_name"], matter["pipeline_tag"], matter["license"]) == ("gdp", "graph-ml", "apache-2.0")
    assert matter["gdp"]["num_parameters"] == sum(value.numel() for value in small_policy().parameters())
    assert matter["gdp"]["weights_sha256"] == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert matter["gdp"]["weights_sha256"] == read_config(folder).facts.weights_sha256
    assert "| a\\|b | p100x2 | hold-out | 64 | 20 | 40 (metis) | 0.500 |" in body
    assert "Geometric mean on hold-out: 1.000." in body
    assert "python train.py experiment=small" in body and "seeds 0, 1" in body and "`0123abc`" in body


@pytest.mark.parametrize("sizes", [{"hidden": 65536}, {"feed_forward": 65536, "hidden": 65536, "attention_layers": 256}])
def test_a_promise_of_many_weights_costs_no_memory(folder: Path, sizes: dict[str, int]) -> None:
    change_config(folder, lambda d: d["policy"].update(sizes))
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match="asks for|misses the tensor"):
        gdp.hub.load(folder)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 2**18


@pytest.mark.parametrize(
    ("sizes", "told"),
    [
        ({"hidden": 100_000_000}, "the policy has hidden 100000000; at most 65536 is read"),
        ({"sage_layers": 257}, "the policy has sage_layers 257; at most 256 is read"),
        ({"hidden": 65536}, "weights of [0-9]{12} bytes, and at most 1073741824 are read"),
    ],
)
def test_a_policy_whose_checkpoint_would_not_be_read_is_refused_before_it_takes_memory(sizes: dict[str, int], told: str) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    check_readable(PolicyConfig(), FeatureConfig())
    with pytest.raises(InputError, match=told):
        check_readable(PolicyConfig(**sizes), FeatureConfig())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 2**18


@pytest.mark.parametrize("shape", [[1] * 100, [0, 2**63], [2**64], [-1]])
def test_hostile_shapes_of_weights_are_refused(folder: Path, shape: list[int]) -> None:
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 if shape[0] == 1 else 0]}}).encode()
    data = len(header).to_bytes(8, "little") + header + bytes(4 if shape[0] == 1 else 0)
    (folder / "model.safetensors").write_bytes(data)
    change_config(folder, lambda d: d.update(weights_sha256=hashlib.sha256(data).hexdigest(), weights_bytes=len(data)))
    with pytest.raises(InputError):
        gdp.hub.load(folder)


def test_a_checkpoint_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write .*; name another folder"):
        gdp.hub.save(tmp_path / "file" / "small-v1", small_policy(), card=CARD)


def test_the_bundled_policies_are_read() -> None:
    for name in available():
        assert gdp.hub.load(name).config.hidden > 0
