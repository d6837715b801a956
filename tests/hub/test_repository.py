"""What goes wrong between here and a hub: every failure is one sentence that says what to do, and nothing half-fetched is taken for a policy."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gdp.errors import InputError
from gdp.hub.repository import Repository
from tests.hub.example_checkpoint import small_checkpoint
from tests.hub.loopback_hub import Fault, Store, loopback_hub
from tests.hub.scene import scene

LOAD = "sum(float(p.double().sum()) for p in gdp.hub.load('org/small').parameters())"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, Store, Path]]:
    """A hub that has one policy, `org/small`, and its folder."""
    folder = small_checkpoint(tmp_path / "small-v1")
    with loopback_hub() as (address, store):
        store.create("org/small", private=False)
        store.commit("org/small", {path.name: path.read_bytes() for path in folder.iterdir()}, reference="main")
        yield address, store, folder


def test_names_of_repositories():
    assert str(Repository.named("hf://org/name@v1", "model")) == "org/name@v1"
    assert Repository.named("hf://datasets/org/name", "dataset") == Repository.named("org/name", "dataset")
    for name, kind in (("../etc", "model"), ("org/name/sub", "model"), ("hf://datasets/org/name", "model"), ("hf://org/name", "dataset")):
        with pytest.raises(InputError, match="write org/name"):
            Repository.named(name, kind)


@pytest.mark.slow
def test_a_download_that_is_cut_goes_on_where_it_was(hub: tuple[str, Store, Path], tmp_path: Path) -> None:
    address, store, folder = hub
    [here] = scene(address, tmp_path / "here", LOAD.replace("org/small", str(folder)))
    size = (folder / "model.safetensors").stat().st_size
    store.faults = [Fault("model.safetensors", times=1, cut_after=size // 2)]
    assert scene(address, tmp_path / "home", LOAD) == [here]
    assert sum(request.startswith("GET") and "model.safetensors" in request for request in store.requests) == 2
    assert store.sent_bytes < 2 * size


@pytest.mark.slow
def test_a_download_that_never_ends_well_is_no_policy_and_can_be_taken_up_again(hub: tuple[str, Store, Path], tmp_path: Path) -> None:
    address, store, _ = hub
    home = tmp_path / "home"
    store.faults = [Fault("model.safetensors", times=100, status=500)]
    broken, then = scene(address, home, LOAD, LOAD)
    assert broken[0] == then[0] == "refused" and "the Hub itself has failed: try again later" in broken[1]
    offline = scene(address, home, LOAD, offline=True)
    assert offline[0][0] == "refused"
    store.faults = []
    assert scene(address, home, LOAD)[0][0] == "ok"


@pytest.mark.slow
def test_a_server_that_never_stops_is_left(hub: tuple[str, Store, Path], tmp_path: Path) -> None:
    address, store, folder = hub
    store.faults = [Fault("model.safetensors", times=100, endless=True)]
    [endless] = scene(address, tmp_path / "home", LOAD)
    assert endless[0] == "refused" and "sends more than" in endless[1]
    assert store.sent_bytes < 100 * 2**20
    left = sum(path.stat().st_size for path in (tmp_path / "home").rglob("*") if path.is_file())
    assert left < 2 * sum(path.stat().st_size for path in folder.iterdir()) + 100 * 2**20


@pytest.mark.slow
def test_another_programs_model_is_refused_before_its_weights_are_fetched(hub: tuple[str, Store, Path], tmp_path: Path) -> None:
    address, store, _ = hub
    store.commit("org/small", {"config.json": b'{"model_type": "llama"}'}, reference="main")
    store.create("org/empty", private=False)
    foreign, empty = scene(address, tmp_path / "home", LOAD, "gdp.hub.load('org/empty')")
    assert foreign[0] == "refused" and "config.json is wrong" in foreign[1]
    assert not any("model.safetensors" in request for request in store.requests)
    assert empty[0] == "refused" and "has no config.json" in empty[1]


@pytest.mark.slow
def test_who_may_not(hub: tuple[str, Store, Path], tmp_path: Path) -> None:
    address, store, folder = hub
    store.private["org/small"] = True
    push = f"gdp.hub.push(Path({str(folder)!r}), 'org/small')"
    nobody = scene(address, tmp_path / "nobody", LOAD, token=None)
    wrong = scene(address, tmp_path / "wrong", LOAD, push, token="hf_wrong")
    reader = scene(address, tmp_path / "reader", LOAD, push, token="hf_reader")
    assert nobody[0][0] == "refused" and "or you may not see it" in nobody[0][1] and "hf auth login" in nobody[0][1]
    assert all(answer[0] == "refused" and "the token is wrong or has expired" in answer[1] for answer in wrong)
    assert reader[0][0] == "ok"
    assert reader[1][0] == "refused" and "a token that may write" in reader[1][1]
    store.private["org/small"] = False
    store.gated.add("org/small")
    [gated] = scene(address, tmp_path / "gated", LOAD)
    assert gated[0] == "refused" and "is gated; ask for access" in gated[1]


@pytest.mark.slow
def test_a_hub_that_asks_to_wait_is_waited_for_and_at_last_told(hub: tuple[str, Store, Path], tmp_path: Path) -> None:
    address, store, folder = hub
    store.faults = [Fault("model.safetensors", times=1, status=429, headers={"Retry_After": "1"})]
    assert scene(address, tmp_path / "patient", LOAD)[0][0] == "ok"
    store.faults = [Fault("api/repos/create", method="POST", times=100, status=429, headers={"Retry_After": "7"})]
    [told] = scene(address, tmp_path / "told", f"gdp.hub.push(Path({str(folder)!r}), 'org/new')")
    assert told[0] == "refused" and "too many requests: wait 7 s" in told[1]


@pytest.mark.slow
def test_an_upload_that_breaks_leaves_the_repository_as_it_was(hub: tuple[str, Store, Path], tmp_path: Path) -> None:
    address, store, folder = hub
    before = store.references["org/small"]["main"]
    (folder / "README.md").write_text((folder / "README.md").read_text() + "more\n")
    push = f"gdp.hub.push(Path({str(folder)!r}), 'org/small')"
    for fault in (
        Fault("/commit/main", method="POST", times=100, status=403),
        Fault("/lfs/objects/batch", method="POST", times=100, status=403),
        Fault("/preupload/", method="POST", times=100, status=403),
    ):
        store.faults = [fault]
        store.objects.clear()
        [broken] = scene(address, tmp_path / "home", push)
        assert broken[0] == "refused" and "cannot be sent" in broken[1], broken
        assert store.references["org/small"]["main"] == before
    store.faults = [Fault("/objects/", method="PUT", times=1, status=500)]
    assert scene(address, tmp_path / "home", push)[0][0] == "ok"
    assert store.references["org/small"]["main"] != before


@pytest.mark.slow
def test_a_full_or_closed_cache_is_told(hub: tuple[str, Store, Path], tmp_path: Path) -> None:
    address, _, _ = hub
    (tmp_path / "file").write_text("a file where the cache should be")
    [closed] = scene(address, tmp_path / "file", LOAD)
    assert closed[0] == "refused" and "set HF_HOME to a folder where you may write" in closed[1]
