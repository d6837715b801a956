import csv
from pathlib import Path

import numpy as np
import pytest

from gdp.cluster import Cluster, Device
from gdp.errors import InputError
from gdp.export.csv import placement_csv, write_placement_csv
from gdp.graph import Graph
from gdp.placement import Origin, Placement


def graph(*names: str) -> Graph:
    ops = len(names)
    return Graph(
        op_type=("Identity",) * ops,
        name=names,
        module_path=("",) * ops,
        flops=np.zeros(ops),
        accessed_bytes=np.zeros(ops, np.int64),
        param_bytes=np.zeros(ops, np.int64),
        temp_bytes=np.zeros(ops, np.int64),
        phase=np.zeros(ops, np.int8),
        colocation_group=np.full(ops, Graph.NO_GROUP, np.int32),
        tensor_producer=np.zeros(0, np.int32),
        tensor_bytes=np.zeros(0, np.int64),
        tensor_shape=(),
        tensor_dtype=(),
        edge_tensor=np.zeros(0, np.int32),
        edge_consumer=np.zeros(0, np.int32),
        source="by hand",
    )


def device(name: str) -> Device:
    return Device(name=name, kind="gpu", memory_bytes=2**30, flops_per_s={"float32": 1e12}, memory_bytes_per_s=1e11, op_overhead_s=0.0)


PAIR = Cluster(
    name="pair",
    devices=(device("cuda:0"), device("cuda:1")),
    bandwidth_bytes_per_s=np.full((2, 2), 1e10),
    latency_s=np.zeros((2, 2)),
    channel=np.full((2, 2), Cluster.NO_CHANNEL, np.int32),
    channel_name=(),
)


def place(*devices: int) -> Placement:
    return Placement(device=np.array(devices, np.int32), origin=Origin(placer="user"))


def test_a_row_per_op_in_order() -> None:
    assert placement_csv(graph("a", "scope/b"), PAIR, place(1, 0)) == "node_name,device\na,cuda:1\nscope/b,cuda:0\n"


def test_names_that_need_quotes_come_back(tmp_path: Path) -> None:
    names = ("plain", 'a,"b"', "two\nlines", "naïve/β")
    write_placement_csv(tmp_path / "placement.csv", graph(*names), PAIR, place(0, 1, 0, 1))
    with (tmp_path / "placement.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["node_name"], row["device"]) for row in rows] == list(zip(names, ["cuda:0", "cuda:1"] * 2, strict=True))


def test_placement_of_another_graph_or_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="the placement has 1 ops, the graph from 'by hand' has 2"):
        placement_csv(graph("a", "b"), PAIR, place(0))
    with pytest.raises(InputError, match="uses device number 2, cluster 'pair' has 2"):
        placement_csv(graph("a"), PAIR, place(2))
