"""Devices in a GraphDef, and TensorFlow itself running it there."""

from typing import Any

import numpy as np
import pytest

from gdp.capture.tensorflow import capture_graph_def
from gdp.cluster import Cluster, Device
from gdp.errors import InputError
from gdp.export.tensorflow import tensorflow_devices, with_devices
from gdp.graph import Graph
from gdp.placement import Origin, Placement


def cluster(*names: str) -> Cluster:
    count = len(names)
    return Cluster(
        name="some",
        devices=tuple(
            Device(name=name, kind="any", memory_bytes=2**30, flops_per_s={"float32": 1e12}, memory_bytes_per_s=1e11, op_overhead_s=0.0)
            for name in names
        ),
        bandwidth_bytes_per_s=np.full((count, count), 1e10),
        latency_s=np.zeros((count, count)),
        channel=np.full((count, count), Cluster.NO_CHANNEL, np.int32),
        channel_name=(),
    )


def place(*devices: int) -> Placement:
    return Placement(device=np.array(devices, np.int32), origin=Origin(placer="user"))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("cuda:1", "cuda:0"), ("/device:GPU:1", "/device:GPU:0")),
        (("cpu:0", "cpu:1-3", "cuda:0"), ("/device:CPU:0", "/device:CPU:1", "/device:GPU:0")),
        (("gpu4", "gpu5"), ("/device:GPU:0", "/device:GPU:1")),
    ],
)
def test_names_of_devices(names: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert tensorflow_devices(cluster(*names)) == expected


@pytest.mark.parametrize(("names", "message"), [(("cuda:0", "gpu0"), "mixes real GPUs"), (("cuda:x",), "'cuda:x' .* names no GPU")])
def test_names_that_tensorflow_cannot_number_are_refused(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tensorflow_devices(cluster(*names))


@pytest.fixture(scope="module")
def traced() -> tuple[Any, Graph]:
    """`c = exp(a) + a`, and a node that nobody needs."""
    from gdp.capture.tensorflow_import import import_tensorflow

    tf = import_tensorflow()
    with tf.Graph().as_default() as graph, tf.device("/device:CPU:9"):
        a = tf.compat.v1.placeholder(tf.float32, (4,), name="a")
        b = tf.exp(a, name="b")
        with tf.compat.v1.colocate_with(b):
            tf.add(a, b, name="c")
        tf.sin(a, name="unused")
    graph_def = graph.as_graph_def()
    return graph_def, capture_graph_def(graph_def, keep=["c:0"], source="a sum")


@pytest.mark.tensorflow
def test_every_op_carries_its_device(traced: tuple[Any, Graph]) -> None:
    graph_def, graph = traced
    placed = with_devices(graph_def, graph, cluster("cuda:0", "cuda:1"), place(0, 1, 1))
    assert {node.name: node.device for node in placed.node} == {
        "a": "/device:GPU:0",
        "b": "/device:GPU:1",
        "c": "/device:GPU:1",
        "unused": "",
    }
    assert all("_class" not in node.attr for node in placed.node)
    assert {node.device for node in graph_def.node} == {"/device:CPU:9"}  # the original is as it was


@pytest.mark.tensorflow
def test_tensorflow_runs_every_op_where_it_is_placed(traced: tuple[Any, Graph]) -> None:
    """Two logical CPUs; the executor's own partition of the graph says where the ops went."""
    import tensorflow as tf

    graph_def, graph = traced
    placed = with_devices(graph_def, graph, cluster("cpu:0", "cpu:1"), place(0, 1, 1))
    with tf.Graph().as_default() as imported:
        tf.graph_util.import_graph_def(placed, name="")
    config = tf.compat.v1.ConfigProto(allow_soft_placement=False, device_count={"CPU": 2})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    metadata = tf.compat.v1.RunMetadata()
    options = tf.compat.v1.RunOptions(output_partition_graphs=True)
    x = np.arange(4, dtype=np.float32)
    with tf.compat.v1.Session(graph=imported, config=config) as session:
        answer = session.run("c:0", {"a:0": x}, options=options, run_metadata=metadata)
    np.testing.assert_allclose(answer, np.exp(x) + x, rtol=1e-6)
    went = {node.name: node.device for part in metadata.partition_graphs for node in part.node}
    assert went["b"].endswith("/device:CPU:1") and went["c"].endswith("/device:CPU:1")
    assert any(node.op == "_Recv" and node.device.endswith("CPU:1") for part in metadata.partition_graphs for node in part.node)


@pytest.mark.tensorflow
def test_graph_def_of_another_program_is_refused(traced: tuple[Any, Graph]) -> None:
    graph_def, graph = traced
    with pytest.raises(InputError, match="3 ops of the graph from 'a sum', 'a' among them, are no nodes"):
        with_devices(type(graph_def)(), graph, cluster("cuda:0"), place(0, 0, 0))
