"""What goes wrong between here and a hub: every failure is one sentence that says what to do, and nothing half-fetched is taken for a policy."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from gdp.errors import InputError
from gdp.hub.repository import Repository
from tests.hub.example_checkpoint import small_checkpoint
from tests.hub.loopback_hub import Fault, Store, loopback_hub
from tests.hub.scene import Scene

FINGERPRINT = "sum(float(p.double().sum()) for p in gdp.hub.load({!r}).parameters())"


@dataclasses.dataclass(frozen=True)
class Stage:
    """A hub, a process that knows it, and a policy's folder."""

    address: str
    store: Store
    scene: Scene
    folder: Path
    home: Path

    def publish(self, name: str) -> str:
        """The policy under a name of this test's own, and what loads it."""
        self.store.create(name, private=False)
        self.store.commit(name, {path.name: path.read_bytes() for path in self.folder.iterdir()}, reference="main")
        self.store.requests.clear()
        self.store.sent_bytes = 0
        return FINGERPRINT.format(name)

    @property
    def pushing(self) -> str:
        return f"gdp.hub.push(Path({str(self.folder)!r}), {{!r}})"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    parent = tmp_path_factory.mktemp("hub")
    home = parent / "home"
    with loopback_hub() as (address, store), Scene(address, home) as scene:
        yield Stage(address, store, scene, small_checkpoint(parent / "small-v1"), home)


@pytest.fixture
def stage(running: Stage) -> Iterator[Stage]:
    yield running
    running.store.faults = []


def test_names_of_repositories() -> None:
    assert str(Repository.named("hf://org/name@v1", "model")) == "org/name@v1"
    assert Repository.named("hf://datasets/org/name", "dataset") == Repository.named("org/name", "dataset")
    for name, kind in (("../etc", "model"), ("org/name/sub", "model"), ("hf://datasets/org/name", "model"), ("hf://org/name", "dataset")):
        with pytest.raises(InputError, match="write org/name"):
            Repository.named(name, kind)


def test_a_download_that_is_cut_goes_on_where_it_was(stage: Stage) -> None:
    load = stage.publish("org/cut")
    [here] = stage.scene.ask(FINGERPRINT.format(str(stage.folder)))
    size = (stage.folder / "model.safetensors").stat().st_size
    stage.store.faults = [Fault("model.safetensors", times=1, cut_after=size // 2)]
    assert stage.scene.ask(load) == [here]
    assert sum(request.startswith("GET") and "model.safetensors" in request for request in stage.store.requests) == 2
    assert stage.store.sent_bytes < 2 * size


def test_a_download_that_never_ends_well_is_no_policy_and_can_be_taken_up_again(stage: Stage) -> None:
    load = stage.publish("org/broken")
    stage.store.faults = [Fault("model.safetensors", times=100, status=500)]
    broken, then = stage.scene.ask(load, load)
    assert broken[0] == then[0] == "refused" and "the Hub itself has failed: try again later" in broken[1]
    with Scene(stage.address, stage.home, offline=True) as offline:
        assert offline.ask(load)[0][0] == "refused"
    stage.store.faults = []
    assert stage.scene.ask(load)[0][0] == "ok"


def test_a_server_that_never_stops_is_left(stage: Stage) -> None:
    load = stage.publish("org/endless")
    stage.store.faults = [Fault("model.safetensors", times=100, endless=True)]
    before = sum(path.stat().st_size for path in stage.home.rglob("*") if path.is_file())
    [endless] = stage.scene.ask(load)
    assert endless[0] == "refused" and "sends more than" in endless[1]
    assert stage.store.sent_bytes < 100 * 2**20
    assert sum(path.stat().st_size for path in stage.home.rglob("*") if path.is_file()) < before + 100 * 2**20


def test_another_programs_model_is_refused_before_its_weights_are_fetched(stage: Stage) -> None:
    load = stage.publish("org/foreign")
    stage.store.commit("org/foreign", {"config.json": b'{"model_type": "llama"}'}, reference="main")
    stage.store.create("org/empty", private=False)
    foreign, empty = stage.scene.ask(load, "gdp.hub.load('org/empty')")
    assert foreign[0] == "refused" and "config.json is wrong" in foreign[1]
    assert not any("model.safetensors" in request for request in stage.store.requests)
    assert empty[0] == "refused" and "has no config.json" in empty[1]


def test_who_may_not(stage: Stage) -> None:
    load = stage.publish("org/closed")
    stage.store.private["org/closed"] = True
    push = stage.pushing.format("org/closed")
    [nobody] = stage.scene.ask(load, token=None)
    wrong = stage.scene.ask(load, push, token="hf_wrong")
    reader, writing = stage.scene.ask(load, push, token="hf_reader")
    assert nobody[0] == "refused" and "or you may not see it" in nobody[1] and "hf auth login" in nobody[1]
    assert all(answer[0] == "refused" and "the token is wrong or has expired" in answer[1] for answer in wrong)
    assert reader[0] == "ok"
    assert writing[0] == "refused" and "a token that may write" in writing[1]
    load = stage.publish("org/gated")
    stage.store.gated.add("org/gated")
    [gated] = stage.scene.ask(load)
    assert gated[0] == "refused" and "is gated; ask for access" in gated[1]


def test_a_hub_that_asks_to_wait_is_waited_for_and_at_last_told(stage: Stage) -> None:
    load = stage.publish("org/busy")
    stage.store.faults = [Fault("model.safetensors", times=1, status=429, headers={"Retry_After": "1"})]
    assert stage.scene.ask(load)[0][0] == "ok"
    stage.store.faults = [Fault("api/repos/create", method="POST", times=100, status=429, headers={"Retry_After": "7"})]
    [told] = stage.scene.ask(stage.pushing.format("org/new"))
    assert told[0] == "refused" and "too many requests: wait 7 s" in told[1]


def test_an_upload_that_breaks_leaves_the_repository_as_it_was(stage: Stage) -> None:
    stage.publish("org/upload")
    before = stage.store.references["org/upload"]["main"]
    stage.store.commit("org/upload", {"README.md": b"an older card"}, reference="old")
    stage.store.references["org/upload"]["main"] = before = stage.store.references["org/upload"]["old"]
    push = stage.pushing.format("org/upload")
    for path in ("/commit/main", "/lfs/objects/batch", "/preupload/"):
        stage.store.faults = [Fault(path, method="POST", times=100, status=403)]
        stage.store.objects.clear()
        [broken] = stage.scene.ask(push)
        assert broken[0] == "refused" and "cannot be sent" in broken[1], broken
        assert stage.store.references["org/upload"]["main"] == before
    stage.store.faults = [Fault("/objects/", method="PUT", times=1, status=500)]
    assert stage.scene.ask(push)[0][0] == "ok"
    now = stage.store.references["org/upload"]["main"]
    assert stage.store.commits["org/upload"][now]["README.md"] == (stage.folder / "README.md").read_bytes()


def test_a_cache_where_nothing_can_be_written_is_told(stage: Stage, tmp_path: Path) -> None:
    load = stage.publish("org/nowhere")
    (tmp_path / "file").write_text("a file where the cache should be")
    with Scene(stage.address, tmp_path / "file") as scene:
        [closed] = scene.ask(load)
    assert closed[0] == "refused" and "set HF_HOME to a folder where you may write" in closed[1]
