"""Whether a placement is one of the graph and the cluster that it is exported with."""

from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.placement import Placement


def check_fits(graph: Graph, cluster: Cluster, placement: Placement) -> None:
    """Raises `InputError` when the placement has not one device of the cluster for every op of the graph."""
    if len(placement.device) != graph.num_ops:
        raise InputError(
            f"the placement has {len(placement.device)} ops, the graph from {graph.source!r} has {graph.num_ops}; export a placement with the graph it was made for"
        )
    if placement.device.max() >= cluster.num_devices:
        raise InputError(
            f"the placement uses device number {int(placement.device.max())}, cluster {cluster.name!r} has {cluster.num_devices}; "
            "export a placement with the cluster it was made for"
        )
