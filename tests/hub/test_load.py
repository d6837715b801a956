"""Names of policies, and the way to and from a hub, which here runs on the loopback interface."""

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gdp.hub
from gdp.errors import InputError
from gdp.hub.checkpoint import config_sha256, read_config
from gdp.hub.load import available
from tests.hub.example_checkpoint import small_checkpoint
from tests.hub.loopback_hub import Store, loopback_hub
from tests.hub.scene import Scene


@pytest.fixture(scope="module")
def hub() -> Iterator[tuple[str, Store]]:
    with loopback_hub() as running:
        yield running


@pytest.mark.slow
def test_push_pull_revisions_and_the_cache(hub: tuple[str, Store], tmp_path: Path) -> None:
    address, store = hub
    folder = small_checkpoint(tmp_path / "small-v1")
    (folder / "optimizer.pt").write_bytes(b"private")
    home = tmp_path / "home"
    with Scene(address, home) as scene:
        _push_and_pull(scene, address, store, folder, home)


def _push_and_pull(scene: Scene, address: str, store: Store, folder: Path, home: Path) -> None:
    digest = read_config(folder).facts.weights_sha256
    fingerprint = "sum(float(p.double().sum()) for p in gdp.hub.load({!r}).parameters())"
    dry, pushed, here, there, review = scene.ask(
        f"gdp.hub.push(Path({str(folder)!r}), 'org/small', dry_run=True)",
        f"gdp.hub.push(Path({str(folder)!r}), 'org/small', private=True)",
        fingerprint.format(str(folder)),
        fingerprint.format("org/small"),
        f"gdp.hub.push(Path({str(folder)!r}), 'org/reviewed', create_pr=True)",
    )  # fmt: skip
    assert dry[0] == "ok" and "would send 5 files" in dry[1]
    assert pushed[0] == "ok" and "sent 5 files" in pushed[1] and "org/small at revision" in pushed[1]
    assert here[0] == "ok" and here == there
    assert review[0] == "ok" and review[1].endswith("/org/reviewed/discussions/1")
    assert store.commits["org/reviewed"][store.references["org/reviewed"]["main"]] == {}
    commit = store.references["org/small"]["main"]
    assert commit in pushed[1] and store.private["org/small"]
    assert sorted(store.commits["org/small"][commit]) == [
        "README.md",
        "config.json",
        "metrics.json",
        "model.safetensors",
        "train_config.yaml",
    ]
    assert store.commits["org/small"][commit]["model.safetensors"] == (folder / "model.safetensors").read_bytes()

    changed = bytearray(store.commits["org/small"][commit]["model.safetensors"])
    changed[-1] ^= 1
    store.references["org/small"]["v1"] = commit
    store.commit("org/small", {"model.safetensors": bytes(changed)}, reference="main")
    tampered, at_tag, at_commit, resolved, no_tag, nobody, folder_in_it = scene.ask(
        "gdp.hub.load('org/small')",
        fingerprint.format("org/small@v1"),
        fingerprint.format(f"hf://org/small@{commit}"),
        "(lambda r: [r.name, r.revision])(gdp.hub.resolve('org/small@v1'))",
        "gdp.hub.load('org/small@v9')",
        "gdp.hub.load('org/nobody')",
        "gdp.hub.load('hf://org/small/sub/folder')",
    )  # fmt: skip
    assert tampered[0] == "refused" and digest[:12] in tampered[1] and "damaged or was changed" in tampered[1]
    assert at_tag == at_commit == here
    assert resolved == ("ok", str(["org/small", commit]))
    assert no_tag[0] == "refused" and "no revision 'v9'" in no_tag[1]
    assert nobody[0] == "refused" and "there is no policy org/nobody" in nobody[1] and "hf auth login" in nobody[1]
    assert folder_in_it[0] == "refused" and "as a whole" in folder_in_it[1]

    pulled, card, listed = scene.ask(
        "gdp.hub.pull('org/small@v1').revision",
        "gdp.hub.card('org/small@v1')",
        "[(one.name, one.where, one.weights_bytes) for one in gdp.hub.list() if one.name.startswith('org/')]",
    )  # fmt: skip
    assert pulled == ("ok", commit)
    assert card == ("ok", (folder / "README.md").read_text())
    size = len(store.commits["org/small"][commit]["model.safetensors"])
    tampered_commit = store.references["org/small"]["main"]
    assert listed == ("ok", str(sorted((f"org/small@{one}", "cache", size) for one in (commit, tampered_commit))))

    with Scene(address, home, offline=True) as offline:
        cached, missing, shown = offline.ask(
            fingerprint.format("org/small@v1"), "gdp.hub.load('org/other')", "gdp.hub.card('org/small@v1')"
        )
    assert cached == here and shown == card
    assert missing[0] == "refused" and "gdp hub pull org/other" in missing[1]
    with Scene("http://127.0.0.1:9", home) as away:
        unreachable, still_cached, alone = away.ask(
            "gdp.hub.load('org/other')", fingerprint.format("org/small@v1"), f"gdp.hub.push(Path({str(folder)!r}), 'org/x')"
        )
    assert unreachable[0] == "refused" and "cannot be reached" in unreachable[1]
    assert still_cached == here
    assert alone[0] == "refused" and "cannot be reached" in alone[1]
    [stranger] = scene.ask(f"gdp.hub.push(Path({str(folder)!r}), 'org/x')", token=None)
    assert stranger[0] == "refused" and "hf auth login" in stranger[1]
    assert "org/x" not in store.commits


def test_pushing_is_refused(tmp_path: Path) -> None:
    folder = small_checkpoint(tmp_path / "small-v1")
    with pytest.raises(InputError, match="write org/name"):
        gdp.hub.push(folder, "../etc")
    (folder / "README.md").unlink()
    with pytest.raises(InputError, match="no card"):
        gdp.hub.push(folder, "org/x")


def test_names_that_are_no_policy(tmp_path: Path) -> None:
    for name in available():
        with pytest.raises(InputError, match=f"did you mean {re.escape(repr(name))}"):
            gdp.hub.load(name[:-1])
    with pytest.raises(InputError, match="no policy is named 'nothing-like-it'"):
        gdp.hub.load("nothing-like-it")
    with pytest.raises(InputError, match="there is no checkpoint folder"):
        gdp.hub.load(tmp_path / "missing")
    with pytest.raises(InputError, match="there is no checkpoint folder"):
        gdp.hub.load("./missing/folder")
    with pytest.raises(InputError, match="cannot read"):
        gdp.hub.load(tmp_path)


def test_a_folder_is_named_by_all_that_its_policy_is(tmp_path: Path) -> None:
    folder = small_checkpoint(tmp_path / "small-v1")
    resolved = gdp.hub.resolve(str(folder))
    assert (resolved.folder, resolved.name) == (folder, str(folder))
    assert resolved.revision == read_config(folder).revision == hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    config = json.loads((folder / "config.json").read_text())
    config["policy"]["finish_prior"] += 1.0  # the same weights, another policy
    (folder / "config.json").write_text(json.dumps(config | {"config_sha256": config_sha256(config)}))
    assert gdp.hub.resolve(str(folder)).revision != resolved.revision
