"""A placement written into a GraphDef: the device string of every node, as TensorFlow's placer reads it.

`tf.device` around Keras layers does not move their computation, so devices are written into the traced graph, after the fact.
"""

from typing import Any

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.export.fits import check_fits
from gdp.graph import Graph
from gdp.placement import Placement


def tensorflow_devices(cluster: Cluster) -> tuple[str, ...]:
    """TensorFlow's name of each device of a cluster.

    `cuda:i` is `/device:GPU:i`. Sets of cores (`cpu:...`) are the logical devices `/device:CPU:0`, `/device:CPU:1`, ... in the order of the cluster. Devices of other
    names, which are only simulated, are GPUs in the order of the cluster.

    Raises:
        InputError: when the cluster holds both `cuda:i` and simulated devices, whose numbers could clash.
    """
    names = [device.name for device in cluster.devices]
    cores = [name for name in names if name.startswith("cpu:")]
    real = [name for name in names if name.startswith("cuda:")]
    simulated = [name for name in names if name not in cores and name not in real]
    if real and simulated:
        raise InputError(
            f"cluster {cluster.name!r} mixes real GPUs ({', '.join(real)}) with simulated ones ({', '.join(simulated)}), which TensorFlow cannot number; "
            "name the devices cuda:0, cuda:1, ..."
        )
    number = {name: f"/device:CPU:{place}" for place, name in enumerate(cores)}
    number |= {name: f"/device:GPU:{place}" for place, name in enumerate(simulated)}
    for name in real:
        index = name.removeprefix("cuda:")
        if not index.isdecimal():
            raise InputError(f"device {name!r} of cluster {cluster.name!r} names no GPU; write cuda:0, cuda:1, ...")
        number[name] = f"/device:GPU:{int(index)}"
    return tuple(number[name] for name in names)


def with_devices(graph_def: Any, graph: Graph, cluster: Cluster, placement: Placement) -> Any:
    """A copy of a GraphDef in which every op of the graph carries its device.

    Nodes that the capture left out, because nothing needs them, lose the device they had. Colocation constraints (`_class`) are dropped: the placement honours
    them, and TensorFlow would look for the nodes they name.

    Args:
        graph_def: the GraphDef that was captured; for a concrete function `lower(concrete_function).graph_def`.
        graph: captured from it.
        cluster: that the placement is for.
        placement: of the graph.

    Raises:
        InputError: when an op of the graph is no node of the GraphDef, or the placement is not one of this graph and cluster.
    """
    check_fits(graph, cluster, placement)
    names = tensorflow_devices(cluster)
    device = {name: names[number] for name, number in zip(graph.name, placement.device.tolist(), strict=True)}
    missing = device.keys() - {node.name for node in graph_def.node}
    if missing:
        raise InputError(
            f"{len(missing)} ops of the graph from {graph.source!r}, {min(missing)!r} among them, are no nodes of the GraphDef; "
            "give the GraphDef that was captured (for a concrete function, the lowered one)"
        )
    placed = type(graph_def)()
    placed.CopyFrom(graph_def)
    for node in placed.node:
        node.device = device.get(node.name, "")
        node.attr.pop("_class", None)
    return placed
