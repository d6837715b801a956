import dataclasses
import json

import numpy as np
import pytest
import torch
from feature_examples import cluster, diamond, slower

from gdp.capture.coarsening import Grouping
from gdp.errors import InputError
from gdp.features import FeatureConfig, GraphTensors, featurize
from gdp.features.config import CONTEXT_FEATURES, DEVICE_FEATURES, EDGE_FEATURES, GROUP_FEATURES, PAIR_FEATURES

CONFIG = FeatureConfig(op_vocabulary=("aten.add", "aten.mm", "aten.relu"), num_hash_buckets=1)


def grouped(*group_of_op: int) -> Grouping:
    return Grouping(group_of_op=np.array(group_of_op, np.int32), num_groups=max(group_of_op) + 1)


def column(x: GraphTensors, name: str) -> list[float]:
    return x.group[:, GROUP_FEATURES.index(name)].tolist()


def numbers(x: GraphTensors) -> list[np.ndarray]:
    """All of `x`, what it holds of the ops behind the groups too."""
    tensors = [getattr(x, field.name).numpy() for field in dataclasses.fields(GraphTensors) if field.name != "ops"]
    return [*tensors, *map(np.asarray, x.ops)]


def same(a: GraphTensors, b: GraphTensors) -> bool:
    return all(np.array_equal(*pair) for pair in zip(numbers(a), numbers(b), strict=True))


def test_the_diamond_by_hand():
    x = featurize(diamond(), cluster(), grouped(0, 1, 2, 3), CONFIG)
    # 11 ms of work on two devices: the unit is 5.5 ms
    torch.testing.assert_close(x.time, torch.tensor([[1.0, 2.0, 5.0, 3.0]]).T.expand(4, 2) / 5.5)
    assert x.ops.latency == pytest.approx(np.array([[0.0, 0.1], [0.1, 0.0]]) / 5.5)
    assert x.ops.time_per_byte == pytest.approx(np.array([[0.0, 1e-3], [1e-3, 0.0]]) / 5.5)
    assert list(zip(x.edge_producer.tolist(), x.edge_consumer.tolist(), x.edge_bytes.tolist(), strict=True)) == [
        (0, 1, 400),
        (0, 2, 400),
        (1, 3, 100),
        (2, 3, 200),
    ]
    assert column(x, "t_level") == pytest.approx([0, 1 / 9, 1 / 9, 6 / 9])
    assert column(x, "b_level") == pytest.approx([9 / 9, 5 / 9, 8 / 9, 3 / 9])
    assert column(x, "slack") == pytest.approx([0, 3 / 9, 0, 0], abs=1e-6)
    assert column(x, "backward") == [0, 0, 1, 0] and column(x, "update") == [0, 0, 0, 1]
    assert column(x, "log_time_over_device_share") == pytest.approx([np.log1p(t / 5.5) for t in (1, 2, 5, 3)])
    assert x.type_id.tolist() == [1, 2, 3, 0] and x.type_share.tolist() == [1, 1, 1, 1]
    shapes = x.group[:, len(GROUP_FEATURES) :]
    assert shapes[0].tolist() == pytest.approx([np.log(11) / 10, np.log(11) / 10, 0, 0])
    assert shapes[2].tolist() == pytest.approx([0, np.log(6) / 10, 0, 0])  # an unknown extent shows as nothing
    assert shapes[3].tolist() == [0, 0, 0, 0]


def test_groups_add_up():
    x = featurize(diamond(), cluster(), grouped(0, 1, 1, 1), CONFIG)
    torch.testing.assert_close(x.time[:, 0], torch.tensor([1.0, 10.0]) / 5.5)
    # the tensor of op 0 has two consumers in group 1, and crosses once
    assert (x.edge_bytes.tolist(), x.edge_messages.tolist()) == ([400], [1])
    assert x.type_group.tolist() == [0, 1, 1, 1]
    assert x.type_id.tolist() == [1, 0, 2, 3]
    assert x.type_share.tolist() == pytest.approx([1, 0.3, 0.2, 0.5])


def test_every_feature_has_its_column():
    x = featurize(diamond(), cluster(), grouped(0, 1, 2, 3), CONFIG)
    widths = [x.group.shape[1], x.edge.shape[1], x.device.shape[1], x.pair.shape[2], len(x.context)]
    assert widths == [CONFIG.num_group_features, len(EDGE_FEATURES), len(DEVICE_FEATURES), len(PAIR_FEATURES), len(CONTEXT_FEATURES)]


def test_times_are_relative():
    fast = featurize(diamond(), cluster(), grouped(0, 1, 2, 3), CONFIG)
    slow = featurize(diamond(), slower(cluster(), 1024.0), grouped(0, 1, 2, 3), CONFIG)
    assert same(fast, slow)  # bit by bit: scaled by a power of two


def test_order_of_edges_does_not_matter():
    graph = diamond()
    shuffled = [2, 0, 3, 1]
    other = dataclasses.replace(graph, edge_tensor=graph.edge_tensor[shuffled], edge_consumer=graph.edge_consumer[shuffled])
    assert same(*(featurize(each, cluster(), grouped(0, 1, 2, 3), CONFIG) for each in (graph, other)))


def test_a_group_that_cannot_fit_is_not_allowed():
    # op 2 needs its 700 bytes of parameters, 400 of input and 200 of output at once
    x = featurize(diamond(), cluster(memory_bytes=(1300, 1299)), grouped(0, 1, 2, 3), CONFIG)
    assert x.allowed.tolist() == [[True, True], [True, True], [True, False], [True, True]]


def test_a_group_that_fits_nowhere_is_allowed_everywhere():
    x = featurize(diamond(), cluster(memory_bytes=(600, 600)), grouped(0, 1, 2, 3), CONFIG)
    assert x.allowed.all()


def test_unequal_devices_show():
    x = featurize(diamond(), cluster(speed=(1e12, 5e11)), grouped(0, 1, 2, 3), CONFIG)
    assert x.pair[:, :, PAIR_FEATURES.index("log_slowness")].tolist() == [pytest.approx([0, np.log(2)])] * 4
    assert x.device[:, DEVICE_FEATURES.index("log_slowness")].tolist() == pytest.approx([0, np.log(2)])


def test_no_work_no_edges_one_device():
    graph = dataclasses.replace(diamond(), flops=np.zeros(4), edge_tensor=np.zeros(0, np.int32), edge_consumer=np.zeros(0, np.int32))
    x = featurize(graph, cluster(memory_bytes=(0,), speed=(1e12,)), grouped(0, 1, 2, 3), CONFIG)
    assert all(np.isfinite(values).all() for values in numbers(x))


def test_a_grouping_of_another_graph_is_refused():
    with pytest.raises(InputError, match="3 ops"):
        featurize(diamond(), cluster(), grouped(0, 1, 2), CONFIG)


def test_the_config_survives_json():
    document = json.loads(json.dumps(dataclasses.asdict(CONFIG)))
    assert FeatureConfig(**{**document, "op_vocabulary": tuple(document["op_vocabulary"])}) == CONFIG


@pytest.mark.parametrize("wrong", [{"schema_version": 1}, {"num_hash_buckets": 0}, {"shape_slots": -1}, {"op_vocabulary": ("a", "a")}])
def test_a_wrong_config_cannot_exist(wrong):
    with pytest.raises(InputError):
        FeatureConfig(**wrong)
