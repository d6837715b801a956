"""The nouns: what is wrong cannot be built or read, and what is written is read back."""

import copy
import dataclasses
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdp.atomic_file import append, replacing, write_text
from gdp.bounded_file import is_absent, read_bounded
from gdp.bundled import bundled
from gdp.cluster import MAX_DEVICES, MAX_FILE_BYTES, Cluster, Device, preset, presets, read_cluster, write_cluster
from gdp.errors import InputError, nearest_name_hint
from gdp.graph import MAX_BYTES, Graph
from gdp.measurement import Measurement, Status, measurement_document, measurement_of, stack
from gdp.placement import Origin, Placement, read_placement, write_placement
from gdp.reward import negative_sqrt_time
from gdp.workloads.known_optimum import fork_join
from tests.strategies import clusters, devices, graphs

PROBLEM = fork_join(num_branches=2, transfer_s=0.5)
GRAPH, CLUSTER = PROBLEM.graph, PROBLEM.cluster
IN_TMP = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def changed(field: str, index: int, value: float) -> np.ndarray:
    array = getattr(GRAPH, field).copy()
    array[index] = value
    return array


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"op_type": ()}, "has no ops"),
        ({"name": ("a", "b")}, "4 ops but 2 values of name"),
        ({"tensor_shape": ()}, "values of tensor_shape"),
        ({"flops": changed("flops", 2, np.nan)}, "flops of op 'op2'.* is nan"),
        ({"flops": changed("flops", 1, -1.0)}, "flops of op 'op1'"),
        ({"flops": changed("flops", 1, np.inf)}, "finite"),
        ({"accessed_bytes": changed("accessed_bytes", 0, MAX_BYTES + 1)}, "accessed_bytes of op 'op0'"),
        ({"param_bytes": changed("param_bytes", 3, -1)}, "param_bytes of op 'op3'"),
        ({"temp_bytes": changed("temp_bytes", 3, -1)}, "temp_bytes of op 'op3'"),
        ({"tensor_bytes": changed("tensor_bytes", 1, -1)}, "tensor 1 .* has -1 bytes"),
        ({"phase": changed("phase", 0, 9)}, "has a phase"),
        ({"colocation_group": changed("colocation_group", 0, -2)}, "colocation group below -1"),
        ({"name": ("a", "b", "a", "c")}, "both named 'a'"),
        ({"tensor_producer": changed("tensor_producer", 3, 4)}, "names a producer outside"),
        ({"tensor_producer": changed("tensor_producer", 0, -1)}, "names a producer outside"),
        ({"tensor_producer": changed("tensor_producer", 0, 2)}, "not in the order of their producers"),
        ({"edge_tensor": changed("edge_tensor", 0, 4)}, "names a tensor outside"),
        ({"edge_consumer": changed("edge_consumer", 0, 4)}, "names a consumer outside"),
        ({"edge_consumer": changed("edge_consumer", 0, 0)}, "goes backwards"),
        ({"measured_time_s": {"unit": np.full(4, np.nan)}}, r"measured_time_s\['unit'\]"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_a_wrong_graph_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(GRAPH, **change)


def test_a_graph_s_name_is_its_content() -> None:
    assert dataclasses.replace(GRAPH, source="elsewhere").sha256 == GRAPH.sha256
    assert GRAPH.with_measured_time({"unit": np.ones(4)}).sha256 == GRAPH.sha256
    assert dataclasses.replace(GRAPH, flops=changed("flops", 0, 2.0)).sha256 != GRAPH.sha256
    assert dataclasses.replace(GRAPH, name=("a", "b", "c", "d")).sha256 != GRAPH.sha256
    with pytest.raises(ValueError, match="read-only"):
        GRAPH.flops[0] = 1


DEVICE = CLUSTER.devices[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "no name or no kind"),
        ({"kind": ""}, "no name or no kind"),
        ({"memory_bytes": -1}, "memory_bytes -1"),
        ({"memory_bytes": 2**61}, "memory_bytes"),
        ({"flops_per_s": {"float16": 1.0}}, "flops_per_s for float32"),
        ({"flops_per_s": {"float32": 1.0, "complex": 1.0}}, "flops_per_s for float32"),
        ({"flops_per_s": {"float32": 0.0}}, "positive and finite"),
        ({"flops_per_s": {"float32": float("nan")}}, "positive and finite"),
        ({"memory_bytes_per_s": float("inf")}, "positive and finite"),
        ({"op_overhead_s": -1.0}, "op_overhead_s"),
        ({"op_overhead_s": float("nan")}, "op_overhead_s"),
    ],
)
def test_a_wrong_device_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(DEVICE, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"devices": ()}, "has 0 devices"),
        ({"devices": (DEVICE, DEVICE)}, "two devices of one name"),
        ({"devices": (DEVICE, dataclasses.replace(DEVICE, name="b", op_overhead_s=1.0))}, "differ in speed"),
        ({"devices": (DEVICE,)}, "has shape"),
        ({"bandwidth_bytes_per_s": np.zeros((2, 2))}, "positive bandwidth"),
        ({"bandwidth_bytes_per_s": np.full((2, 2), np.nan)}, "positive bandwidth"),
        ({"latency_s": np.full((2, 2), -1.0)}, "latency_s"),
        ({"latency_s": np.full((2, 2), np.inf)}, "latency_s"),
        ({"channel": np.full((2, 2), 4, np.int32)}, r"outside -1\.\.3"),
        ({"channel": np.full((2, 2), -2, np.int32)}, r"outside -1\.\.3"),
    ],
)
def test_a_wrong_cluster_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dataclasses.replace(CLUSTER, **change)


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_a_cluster_of_its_own_name(name: str) -> None:
    cluster = preset(name)
    assert cluster.name == name
    assert cluster.num_devices >= 2
    for number, channel in enumerate(cluster.channel_name):
        assert (cluster.channel[~np.eye(cluster.num_devices, dtype=bool)] == number).any(), f"nothing goes over {channel}"
    # From a slow Ethernet to NVLink; no transfer is faster than memory.
    links = cluster.bandwidth_bytes_per_s[~np.eye(cluster.num_devices, dtype=bool)]
    assert 1e8 < links.min() <= links.max() < max(device.memory_bytes_per_s for device in cluster.devices)


def test_presets_hold_no_hydra_keys() -> None:
    for path in (bundled("conf") / "cluster").glob("*.yaml"):
        document = yaml.safe_load(path.read_text())
        assert set(document) == {"schema", "name", "devices", "links"}, path


def test_an_unknown_preset_gets_a_hint() -> None:
    with pytest.raises(InputError, match="did you mean 'p100x4'"):
        preset("p100_x4")


@IN_TMP
@given(cluster=clusters())
def test_a_cluster_is_read_back_as_written(cluster: Cluster, tmp_path: Path) -> None:
    off = ~np.eye(cluster.num_devices, dtype=bool)
    cluster = dataclasses.replace(cluster, bandwidth_bytes_per_s=np.minimum(cluster.bandwidth_bytes_per_s, 1e300))
    path = tmp_path / "cluster.yaml"
    write_cluster(path, cluster)
    back = read_cluster(path)
    assert back.devices == cluster.devices
    for field in ("bandwidth_bytes_per_s", "latency_s"):
        np.testing.assert_array_equal(getattr(back, field)[off], getattr(cluster, field)[off])
    names = [[c.channel_name[n] if n >= 0 else None for n in c.channel[off].tolist()] for c in (back, cluster)]
    assert names[0] == names[1]
    assert back.sha256 == cluster.sha256


VALID = yaml.safe_load((bundled("conf") / "cluster" / "cpu-gpu.yaml").read_text())


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("schema",), 2, "wrong at schema"),
        (("name",), "", "wrong at name"),
        (("colour",), "red", "wrong at colour"),
        (("devices",), [], "wrong at devices"),
        (("devices", 0, "memory_bytes"), -1, "devices.0.memory_bytes"),
        (("devices", 0, "memory_bytes"), 10**30, "devices.0.memory_bytes"),
        (("devices", 0, "flops_per_s"), {"float32": ".inf"}, "devices.0.flops_per_s.float32"),
        (("devices", 0, "flops_per_s"), {}, "flops_per_s for float32"),
        (("devices", 1, "name"), "cpu", "cpu"),
        (("links", 0, "to"), "gpu7", "names the device 'gpu7'"),
        (("links", 0, "latency_s"), float("nan"), "links.0.latency_s"),
        (("links", 0, "bandwidth_bytes_per_s"), 0, "links.0.bandwidth_bytes_per_s"),
        (("links", 0, "one_way"), False, "twice"),
        (("links",), [], "no link from 'cpu' to 'gpu0'"),
    ],
)
def test_a_wrong_cluster_file_is_refused(place: tuple[Any, ...], value: Any, message: str, tmp_path: Path) -> None:
    document = copy.deepcopy(VALID)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(InputError, match=message):
        read_cluster(path)


def test_a_missing_cluster_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the cluster file"):
        read_cluster(tmp_path / "none.yaml")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["name", "devices", "links", "from", "schema", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(IN_TMP, max_examples=150)
@given(data=st.one_of(st.binary(max_size=200), JSON.map(lambda value: json.dumps(value).encode()), st.text(max_size=100).map(str.encode)))
def test_hostile_files_are_refused_with_a_sentence(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hostile"
    path.write_bytes(data)
    with pytest.raises(InputError):
        read_cluster(path)
    with pytest.raises(InputError):
        read_placement(path, GRAPH, CLUSTER)


@settings(IN_TMP, max_examples=100)
@given(data=st.data())
def test_a_mutated_cluster_file_is_read_or_refused(data: st.DataObject, tmp_path: Path) -> None:
    document = copy.deepcopy(VALID)
    inner = document[data.draw(st.sampled_from(["devices", "links"]))][0]
    inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(JSON)
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(document))
    try:
        assert read_cluster(path).num_devices == 2
    except InputError as error:
        assert "\n" not in str(error)


def written(path: Path, placement: Placement, graph: Graph, cluster: Cluster) -> dict[str, Any]:
    write_placement(path, placement, graph, cluster, gdp_version="0", predicted={"step_time_s": 1.0}, measured={}, baselines={})
    return dict(json.loads(path.read_text()))


@IN_TMP
@given(data=st.data(), graph=graphs(), cluster=clusters())
def test_a_placement_is_read_back_as_written(data: st.DataObject, graph: Graph, cluster: Cluster, tmp_path: Path) -> None:
    origin = Origin(placer="gdp", policy="p", revision="r", seed=3, evaluations=7)
    placement = Placement(device=data.draw(devices(graph, cluster)), origin=origin)
    path = tmp_path / "placement.json"
    written(path, placement, graph, cluster)
    back = read_placement(path, graph, cluster)
    np.testing.assert_array_equal(back.device, placement.device)
    assert back.origin == origin


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("schema",), 2, "wrong at schema"),
        (("extra",), 1, "wrong at extra"),
        (("graph", "sha256"), "0" * 64, "was made for the graph 000000000000"),
        (("graph", "sha256"), "zz", "graph.sha256"),
        (("devices", 0, "name"), "other", "is for the devices"),
        (("assignment", "op0"), -1, "assignment.op0"),
        (("assignment", "op0"), 2, "on device 2, but there are 2"),
        (("assignment", "more"), 0, "names ops that the graph has not"),
        (("assignment",), {"op0": 0}, "misses op 'op1'"),
        (("origin", "evaluations"), -1, "origin.evaluations"),
    ],
)
def test_a_wrong_placement_file_is_refused(place: tuple[Any, ...], value: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    document = written(path, Placement(device=np.zeros(4, np.int32), origin=Origin(placer="user")), GRAPH, CLUSTER)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=message):
        read_placement(path, GRAPH, CLUSTER)


def test_a_negative_device_is_refused() -> None:
    with pytest.raises(InputError, match="op number 1 is placed on device -1"):
        Placement(device=np.array([0, -1], np.int32), origin=Origin(placer="user"))


def measured(step_time_s: float, status: Status = Status.OK) -> Measurement:
    return Measurement(
        status=status,
        detail="" if status == Status.OK else "why",
        step_time_s=step_time_s,
        step_time_low_s=step_time_s,
        step_time_high_s=step_time_s,
        num_runs=1,
        bottleneck_s=step_time_s / 4,
        peak_memory_bytes=np.array([1, 2], np.int64),
        busy_s=np.array([0.5, 0.25]),
        num_transfers=3,
        transferred_bytes=17,
    )


def test_a_stack_of_measurements_gives_them_back() -> None:
    rows = [measured(2.0), measured(float("inf"), Status.OUT_OF_MEMORY)]
    batch = stack(rows)
    assert len(batch) == 2
    for row, original in enumerate(rows):
        for field in dataclasses.fields(Measurement):
            np.testing.assert_array_equal(getattr(batch[row], field.name), getattr(original, field.name))
    np.testing.assert_array_equal(batch.objective_s("step_time"), [2.0, np.inf])
    assert rows[0].objective_s("bottleneck") == 0.5


def test_bytes_that_could_overflow_together_are_refused() -> None:
    huge = np.full(GRAPH.num_ops, 2**57 // GRAPH.num_ops + 1, np.int64)
    with pytest.raises(InputError, match="bytes in all"):
        dataclasses.replace(GRAPH, param_bytes=huge)


def test_the_callers_array_stays_the_callers() -> None:
    batch = np.zeros((2, 3), np.int32)
    placement = Placement(device=batch[0], origin=Origin(placer="user"))
    batch[0] = 1
    assert placement.device.tolist() == [0, 0, 0] and not placement.device.flags.writeable


def test_a_measurement_comes_back_from_json() -> None:
    for original in (measured(2.0), measured(1 / 3), measured(float("inf"), Status.TIMED_OUT)):
        read = measurement_of(json.loads(json.dumps(measurement_document(original), allow_nan=False)))
        for field in dataclasses.fields(Measurement):
            np.testing.assert_array_equal(getattr(read, field.name), getattr(original, field.name), strict=True)
            assert type(getattr(read, field.name)) is type(getattr(original, field.name))


def test_reward_is_minus_the_root_of_the_relative_time() -> None:
    reward = negative_sqrt_time(reference_s=8.0)
    assert reward(measured(2.0)) == -0.5
    assert reward(measured(8.0)) == -1.0
    assert reward(measured(float("inf"), Status.INVALID)) == -10.0
    assert negative_sqrt_time(reference_s=8.0, invalid=-3.0)(measured(float("inf"), Status.FAILED)) == -3.0
    assert negative_sqrt_time(reference_s=2.0, objective="bottleneck")(measured(2.0)) == -0.5


@pytest.mark.parametrize("reference_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_reward_needs_a_reference(reference_s: float) -> None:
    with pytest.raises(InputError, match="must be positive and finite"):
        negative_sqrt_time(reference_s=reference_s)


def test_devices_of_one_kind_may_differ_in_memory_alone() -> None:
    small = dataclasses.replace(DEVICE, name="small", memory_bytes=1)
    assert isinstance(small, Device)
    assert dataclasses.replace(CLUSTER, devices=(DEVICE, small)).kinds == ("unit",)


def test_the_cluster_in_the_format_s_description_is_one(tmp_path: Path) -> None:
    text = (Path(__file__).parent.parent / "docs" / "formats.md").read_text()
    path = tmp_path / "cluster.yaml"
    path.write_text(text.split("```yaml\n")[1].split("```")[0])
    assert read_cluster(path).num_channels == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flops": np.ones((4, 2))}, "flops .* is 2-dimensional of float64"),
        ({"edge_tensor": GRAPH.edge_tensor.astype(np.float64)}, "edge_tensor .* is 1-dimensional of float64; .* int32"),
        ({"edge_consumer": GRAPH.edge_consumer.tolist()}, "edge_consumer .* is a list"),
        ({"op_type": 1}, "op_type .* must be a tuple of strings"),
        ({"op_type": None}, "op_type .* must be a tuple of strings"),
        ({"name": ("a", "b", "c", 3)}, "name .* must be a tuple of strings"),
        ({"name": ("a", "", "c", "d")}, "op number 1 .* has no name"),
        ({"source": None}, "source of a graph is None"),
        ({"tensor_shape": ((1,) * 5000, *GRAPH.tensor_shape[1:])}, "at most 64 ints"),
        ({"tensor_shape": ((1.5,), *GRAPH.tensor_shape[1:])}, "at most 64 ints"),
        ({"tensor_dtype": ("control",) * 4, "tensor_bytes": changed("tensor_bytes", 2, 8)}, "control dependency of [0-9]+ bytes"),
        ({"measured_time_s": {"unit": np.ones(4, np.float32)}}, r"measured_time_s\['unit'\] .* of float32"),
    ],
)
def test_a_graph_of_wrong_types_is_refused(change: dict[str, Any], message: str) -> None:
    graph = object.__new__(Graph)  # the constructor of a test run refuses these types by itself, a user's does not
    for field in dataclasses.fields(Graph):
        object.__setattr__(graph, field.name, change.get(field.name, getattr(GRAPH, field.name)))
    with pytest.raises(InputError, match=message):
        graph.__post_init__()


def test_the_nearest_name_is_named_and_none_that_is_far() -> None:
    assert nearest_name_hint("wavnet", ["resnet-50", "wavenet"]) == "did you mean 'wavenet'? "
    assert nearest_name_hint("zzz", ["resnet-50", "wavenet"]) == ""


def test_what_a_message_quotes_is_made_harmless() -> None:
    assert str(InputError("\x1b[31m\x00 \u202e \udcff é 図")) == "\\x1b[31m\\x00 \\u202e \\udcff é 図"
    assert str(InputError("one,\n   two")) == "one, two"
    assert len(str(InputError("x" * 10**6 + " y; mend it"))) < 500
    assert len(str(InputError("x " * 10**6 + "; mend it"))) < 4100
    assert str(InputError("x " * 10**6 + "; mend it")).endswith("; mend it")
    assert str(InputError("x" * 400)) == "x" * 400


@pytest.mark.parametrize("name", ["pipe", "endless", "folder", "missing"])
def test_only_regular_files_are_read(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    message = "cannot read" if name == "missing" else "is not a regular file"
    with pytest.raises(InputError, match=message):
        read_cluster(tmp_path / name)
    with pytest.raises(InputError, match=message):
        read_placement(tmp_path / name, GRAPH, CLUSTER)


def test_what_cannot_be_appended_is_told() -> None:
    with open("/dev/full", "ab", buffering=0) as file, pytest.raises(InputError, match="cannot write /dev/full: No space left"):
        append(file, b"line\n")


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    assert read_bounded(path, what="the file", advice="name another", max_bytes=4) == b"1234"
    with pytest.raises(InputError, match="has 4 bytes; at most 3"):
        read_bounded(path, what="the file", advice="name another", max_bytes=3)
    with pytest.raises(InputError, match="cannot read the file .*null byte; name another"):
        read_bounded(Path("a\0b"), what="the file", advice="name another", max_bytes=3)


def test_a_small_file_claims_little_memory_whatever_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"1234")
    tracemalloc.start()
    try:
        read_bounded(path, what="the file", advice="name another", max_bytes=2**30)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_only_what_is_not_there_is_absent(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert is_absent(tmp_path / "nothing")
    assert is_absent(tmp_path / "file" / "below")
    for name in ("file", "loop", "dangling", "x" * 300, "a\0b"):
        assert not is_absent(tmp_path / name)


BOMB = "\n".join(["a0: &a0 {k: 1}", *(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 11))])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "merge keys make over"),
        ("name: 2001-99-99", "is not YAML"),
        (f"name: {'9' * 5000}", "is not YAML"),
        ("name: a\nname: b", r"key 'name' is there twice \(line 2\)"),
        ("a: &a {b: 1}\nc: {<<: *a, b: 2, b: 3}", "key 'b' is there twice"),
        ("!!python/object/apply:os.system [true]", "could not determine a constructor"),
        ("[" * 5000, "is not YAML"),
        ("x: 1" + ":1" * 500_000, "no number that is meant here"),
        ("\xff", "wrong at the top level"),
        ("#" * (2 * 2**20 + 1), "at most 2097152 are read"),
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_cluster_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_cluster(path)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("links", 0, "latency_s"), True, "links.0.latency_s"),
        (("links", 0, "latency_s"), "100", "'100' is text: write it without quotes"),
        (("devices", 0, "memory_bytes"), "100", "devices.0.memory_bytes"),
        (("devices", 0, "memory_bytes_per_s"), "1.2e10", r"an exponent with its sign \(1.2e\+10\)"),
        (("links", 0, "one_way"), "yes", "links.0.one_way"),
        (("devices", 0, "flops_per_s"), {}, "cluster.yaml is wrong: device 'cpu' must state flops_per_s"),
    ],
)
def test_a_cluster_file_means_what_it_says(place: tuple[Any, ...], value: Any, message: str, tmp_path: Path) -> None:
    test_a_wrong_cluster_file_is_refused(place, value, message, tmp_path)


def test_anchors_and_merge_keys_are_plain_yaml(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    device = "kind: k, memory_bytes: 1, flops_per_s: {float32: 1.2e+10}, memory_bytes_per_s: 1, op_overhead_s: 0"
    link = "{from: a, to: b, bandwidth_bytes_per_s: 1, latency_s: 0}"
    path.write_text(f"name: n\ndevices:\n- &a {{name: a, {device}}}\n- {{<<: *a, name: b}}\n- {{<<: *a, name: c}}\nlinks:\n- &l {link}\n"
                    "- {<<: *l, to: c}\n- {<<: *l, from: c}\n")  # fmt: skip
    assert [device.name for device in read_cluster(path).devices] == ["a", "b", "c"]


def test_the_largest_cluster_that_is_written_is_read(tmp_path: Path) -> None:
    count = MAX_DEVICES
    cluster = Cluster(
        name="large",
        devices=tuple(dataclasses.replace(DEVICE, name=f"{number:064}") for number in range(count)),
        bandwidth_bytes_per_s=np.full((count, count), 1.2345678e10),
        latency_s=np.full((count, count), 1.2345e-5),
        channel=np.zeros((count, count), np.int32),
        channel_name=("c" * 64,),
    )
    write_cluster(tmp_path / "cluster.yaml", cluster)
    assert (tmp_path / "cluster.yaml").stat().st_size < MAX_FILE_BYTES


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("assignment", "op0"), "1", "assignment.op0"),
        (("assignment", "op0"), True, "assignment.op0"),
        (("graph", "num_ops"), 3, "says 3 ops of a graph of 4"),
        (("devices", 0, "id"), 1, "as id 1"),
        (("devices", 0, "kind"), "other", "kind 'other'"),
        (("devices", 0, "memory_bytes"), 7, "memory_bytes 7"),
        (("origin", "seed"), -5, "origin.seed"),
        (("predicted", "step_time_s"), float("nan"), "NaN is no finite number"),
    ],
)
def test_a_placement_file_means_what_it_says(place: tuple[Any, ...], value: Any, message: str, tmp_path: Path) -> None:
    test_a_wrong_placement_file_is_refused(place, value, message, tmp_path)


def test_a_placement_file_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "placement.json"
    written(path, Placement(device=np.zeros(4, np.int32), origin=Origin(placer="user")), GRAPH, CLUSTER)
    text = path.read_text()
    for change, message in (
        (('"op0": 0', '"op0": 0, "op0": 1'), "key 'op0' is there twice"),
        (('"step_time_s": 1.0', '"a": 1e999'), "finite"),
    ):
        path.write_text(text.replace(*change))
        with pytest.raises(InputError, match=message):
            read_placement(path, GRAPH, CLUSTER)


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    for path in (tmp_path / "file" / "x", tmp_path / "folder", Path("/proc/x/y"), tmp_path / ("n" * 300)):
        with pytest.raises(InputError, match="cannot write .*; name another folder, or free space"):
            write_text(path, "text")
    with pytest.raises(InputError, match="No space left on device"), replacing(tmp_path / "full") as temporary:
        temporary.unlink()
        temporary.symlink_to("/dev/full")
        temporary.write_text("text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
