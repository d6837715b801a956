"""Experts' placements: where each part of a model goes, by hand."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gdp.baselines.expert import Expert, ExpertRules, expert_families, expert_rules, read_expert_rules
from gdp.cluster import Cluster, preset
from gdp.errors import InputError
from gdp.graph import Graph, Phase
from gdp.workloads.catalog import CATALOG, Workload, workload
from gdp.workloads.papers_suite import PAPERS_SUITE
from gdp.workloads.torch_suite import TORCH_SUITE
from tests.contracts import check_placer

RULES = ExpertRules.model_validate(
    {
        "schema": 1,
        "family": "chain",
        "source": "by hand",
        "method": "layers",
        "rules": [
            {"scope": "embedding", "stage": "first"},
            {"scope": "layer_{layer}", "stage": "layer"},
            {"scope": "softmax", "stage": "last"},
        ],
    }
)


def chain(paths: list[str], *, groups: dict[int, int] | None = None, types: list[str] | None = None) -> Graph:
    """Ops in a row, each reading the one before; `groups` holds colocation groups by op."""
    count = len(paths)
    return Graph(
        op_type=tuple(types or ["MatMul"] * count),
        name=tuple(f"{path}/op_{number}" for number, path in enumerate(paths)),
        module_path=tuple(paths),
        flops=np.ones(count),
        accessed_bytes=np.ones(count, np.int64),
        param_bytes=np.zeros(count, np.int64),
        temp_bytes=np.zeros(count, np.int64),
        phase=np.zeros(count, np.int8),
        colocation_group=np.array([(groups or {}).get(op, Graph.NO_GROUP) for op in range(count)], np.int32),
        tensor_producer=np.arange(count, dtype=np.int32),
        tensor_bytes=np.full(count, 8, np.int64),
        tensor_shape=((2,),) * count,
        tensor_dtype=("float32",) * count,
        edge_tensor=np.arange(count - 1, dtype=np.int32),
        edge_consumer=np.arange(1, count, dtype=np.int32),
        source="a chain by hand",
    )


def devices(paths: list[str], cluster: str, *, rules: ExpertRules = RULES, groups: dict[int, int] | None = None) -> list[int]:
    return list(Expert(rules=rules)(chain(paths, groups=groups), preset(cluster)).device.tolist())


LAYERS = ["embedding", *(f"layer_{layer}/step_0" for layer in range(4)), "softmax"]


def test_layers_are_spread_in_order() -> None:
    assert devices(LAYERS, "p100x2") == [0, 0, 0, 1, 1, 1]
    assert devices(LAYERS, "p100x4") == [0, 0, 1, 2, 3, 3]
    # More devices than layers: the others stay idle.
    assert devices(LAYERS, "p100x8") == [0, 0, 1, 2, 3, 3]


def test_gradients_are_with_their_layers() -> None:
    assert devices([*LAYERS, "gradient_tape/layer_2/step_0/MatMul", "gradient_tape/layer_0"], "p100x4")[-2:] == [2, 0]


def test_a_scope_is_whole_components() -> None:
    assert devices(["layer_0", "layer_1x", "layer_10"], "p100x2") == [0, 0, 1]
    assert devices(["layer_0", "other/layer_1", "layer_1"], "p100x2") == [0, 0, 1]


def test_what_no_rule_names_follows_its_input_or_else_its_consumer() -> None:
    assert devices(["", "layer_0", "", "layer_1", ""], "p100x2") == [0, 0, 0, 1, 1]
    assert devices(["", "layer_1", "layer_0"], "p100x2") == [1, 1, 0]


def test_a_colocation_group_is_where_its_first_named_op_is() -> None:
    assert devices(["layer_0", "layer_1", "update", "layer_0"], "p100x2", groups={1: 0, 2: 0, 3: 0}) == [0, 1, 1, 1]


def test_equally_many_layers_a_part() -> None:
    rules = ExpertRules.model_validate({"schema": 1, "family": "cnn", "source": "by hand", "method": "depth"})
    paths = [f"net/conv_{number}" for number in range(4)] + [f"gradient_tape/net/conv_{number}/Conv2D" for number in (3, 2, 1, 0)]
    assert devices(paths, "p100x2", rules=rules) == [0, 0, 1, 1, 1, 1, 0, 0]
    assert devices(paths, "p100x4", rules=rules) == [0, 1, 2, 3, 3, 2, 1, 0]


def test_the_fastest_devices_are_used_in_the_order_of_the_cluster() -> None:
    cluster = preset("unequal")
    swapped = Cluster(
        name="swapped",
        devices=(cluster.devices[1], cluster.devices[0]),
        bandwidth_bytes_per_s=cluster.bandwidth_bytes_per_s.T.copy(),
        latency_s=cluster.latency_s.copy(),
        channel=cluster.channel.copy(),
        channel_name=cluster.channel_name,
    )
    one_layer = chain(["layer_0", "layer_0"])
    first, second = (Expert(rules=RULES)(one_layer, one).device[0] for one in (cluster, swapped))
    assert first != second


def test_rules_of_another_family_are_refused() -> None:
    with pytest.raises(InputError, match="name no layer of the graph"):
        devices(["conv1", "conv2"], "p100x2")


def test_every_family_of_the_suite_has_rules() -> None:
    """Of PyTorch's those that have a common practice."""
    pytorch = {"decoder-transformer", "mixture-of-experts", "t5", "whisper", "u-net"}
    assert set(expert_families()) == {family for family, _, _ in PAPERS_SUITE} | pytorch
    assert pytorch < {family for family, _, _ in TORCH_SUITE}
    with pytest.raises(InputError, match="no expert's placement is known for the family 'rnnl'"):
        expert_rules("rnnl")


STORED = [one for one in CATALOG if one.capture is not None and one.family in expert_families()]


@pytest.mark.parametrize("entry", STORED, ids=lambda entry: entry.name)
def test_rules_fit_the_stored_graphs(entry: Workload) -> None:
    """Every device of as many as there are layers gets a fair share of the work, and the backward pass is where the forward pass is."""
    graph, rules = entry.build(), expert_rules(entry.family)
    assert rules.family == entry.family
    for num_devices in (2, 4, 8):
        device = Expert(rules=rules)(graph, preset(f"p100x{num_devices}")).device
        work = {phase: np.bincount(device[graph.phase == phase], graph.flops[graph.phase == phase], num_devices) for phase in Phase}
        used = work[Phase.FORWARD] > 0
        if rules.method == "single-device":
            assert used.sum() == 1
            continue
        if rules.method == "depth":
            assert used.all()
        if Phase.BACKWARD in graph.phase:
            np.testing.assert_allclose(work[Phase.BACKWARD][used] / work[Phase.FORWARD][used], 2.0, rtol=0.25)
        assert work[Phase.FORWARD].max() < 0.85 * work[Phase.FORWARD].sum()


def test_gnmt_of_eight_layers_on_eight_devices() -> None:
    """Wu et al.: layer n of the encoder and of the decoder on device n; the attention with the decoder's first layer; the softmax at the end."""
    graph = workload("gnmt-8-training").build()
    device = Expert(rules=expert_rules("gnmt"))(graph, preset("p100x8")).device
    where: dict[str, set[int]] = {}
    for path, kind, one in zip(graph.module_path, graph.op_type, device.tolist(), strict=True):
        if kind in ("MatMul", "VarHandleOp"):
            parts = path.removeprefix("gradient_tape/").split("/")
            where.setdefault("/".join(parts[: 2 if parts[0] in ("encoder", "decoder") else 1]), set()).add(one)
    for layer in range(8):
        assert where[f"encoder/layer_{layer}"] == where[f"decoder/layer_{layer}"] == {layer}
    assert where["attention"] == where["encoder/embedding"] == where["decoder/embedding"] == {0}
    assert where["softmax"] == {7}
    updates = Counter(device[np.array(graph.op_type) == "ResourceApplyGradientDescent"].tolist())
    # A kernel and a bias for each cell: three cells on the first device beside the attention's three weights, the softmax on the last.
    assert updates == {0: 3 * 2 + 3, **{layer: 4 for layer in range(1, 7)}, 7: 4 + 1}


@pytest.mark.parametrize("name", ["rnnlm-2-training", "inception-v3-training", "vgg-16-training"])
def test_it_is_a_placer(name: str) -> None:
    entry = workload(name)
    check_placer(lambda runtime, seed: Expert(rules=expert_rules(entry.family)), entry.build(), preset("p100x4"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2", "is not YAML"),
        ("3", "wrong at the top level"),
        ("schema: 2\nfamily: a\nsource: b\nmethod: depth\n", "wrong at schema"),
        ("schema: 1\nfamily: a\nsource: b\nmethod: depht\n", "wrong at method"),
        ("schema: 1\nfamily: a\nsource: b\nmethod: depth\nstages: 3\n", "wrong at stages"),
        ("schema: 1\nfamily: a\nsource: b\nmethod: layers\n", "belong to the method 'layers'"),
        ("schema: 1\nfamily: a\nsource: b\nmethod: depth\nrules: [{scope: 'l_{layer}', stage: layer}]\n", "and to no other"),
        ("schema: 1\nfamily: a\nsource: b\nmethod: layers\nrules: [{scope: l, stage: layer}]\n", "wrong at rules.0"),
        ("schema: 1\nfamily: a\nsource: b\nmethod: layers\nrules: [{scope: 'l_{layer}', stage: first}]\n", "wrong at rules.0"),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_expert_rules(path)
    with pytest.raises(InputError, match="cannot read"):
        read_expert_rules(tmp_path / "none.yaml")
