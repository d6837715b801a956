"""One order for all devices: total on each, without circles, with oneDNN's neighbours side by side."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gdp.runtime.tensorflow_order import SOURCES, Order, at_their_convolutions, device_order


@dataclasses.dataclass
class Node:
    """As much of a `NodeDef` as matters."""

    name: str
    op: str
    input: list[str]


def reaches(edges: set[tuple[str, str]], names: list[str]) -> np.ndarray:
    """`[a, b]` whether a path leads from a to b."""
    place = {name: number for number, name in enumerate(names)}
    paths = np.zeros((len(names), len(names)), bool)
    for a, b in edges:
        paths[place[a], place[b]] = True
    for middle in range(len(names)):
        paths |= np.outer(paths[:, middle], paths[middle])
    return paths


def all_edges(nodes: list[Node], order: Order) -> set[tuple[str, str]]:
    edges = {(one.removeprefix("^").partition(":")[0], node.name) for node in nodes for one in node.input}
    edges |= {(before, name) for name, waits in order.waits.items() for before in waits}
    for gate in order.gates:
        edges |= {(before, name) for name in gate.consumers for before in gate.waits}
    return edges


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_every_device_has_one_order_and_nothing_waits_in_a_circle(seed: int) -> None:
    generator = np.random.default_rng(seed)
    count = int(generator.integers(2, 25))
    nodes = [
        Node(
            name=f"n{number}",
            op=str(generator.choice(["MatMul", "Const"])),
            input=[
                f"{'^' * int(generator.integers(0, 2))}n{producer}"
                for producer in generator.permutation(number)[: generator.integers(0, 3)]
            ],
        )
        for number in range(count)
    ]
    device = generator.integers(0, 3, count).tolist()
    order = device_order(nodes, device, merges=[True] * 3)
    paths = reaches(all_edges(nodes, order), [node.name for node in nodes])
    assert not paths.diagonal().any() and not order.gates
    for place in range(3):
        own = [number for number in range(count) if device[number] == place and nodes[number].op not in SOURCES]
        assert all(paths[a, b] for a, b in zip(own, own[1:], strict=False))  # in the program's order


def convolution() -> list[Node]:
    """`y = relu(conv(pad(x), w) + b)` and an op between the convolution and its bias."""
    return [
        Node("x", "Read", []),
        Node("pad", "Pad", ["x"]),
        Node("w", "Read", []),
        Node("conv", "Conv2D", ["pad", "w"]),
        Node("b", "Read", []),
        Node("other", "MatMul", ["x"]),
        Node("sum", "BiasAdd", ["conv", "b"]),
        Node("y", "Relu", ["sum"]),
    ]


def test_nothing_comes_between_what_onednn_merges() -> None:
    order = device_order(convolution(), [0] * 8, merges=[True])
    assert {"pad", "conv", "sum"}.isdisjoint(order.waits)  # they have no control edges of their own
    (gate,) = order.gates
    assert (gate.tensor, gate.consumers, gate.waits) == ("x", ("pad",), ("other",))
    assert order.waits["y"] == ("pad", "conv")  # it takes `sum` anyway
    assert order.waits["other"] == ("b",) and order.waits["b"] == ("w",)


def test_a_neighbour_on_another_device_or_a_gpu_is_an_op_like_any_other() -> None:
    order = device_order(convolution(), [0, 1, 0, 0, 0, 0, 1, 1], merges=[True, True])
    assert not order.gates and order.waits["sum"] == ("pad",) and order.waits["conv"] == () and order.waits["b"] == ("conv",)
    assert not device_order(convolution(), [0] * 8, merges=[False]).gates


def test_gradients_of_filter_and_bias_pass_one_gate() -> None:
    nodes = [
        Node("g", "Read", []),
        Node("x", "Read", []),
        Node("bias", "BiasAddGrad", ["g"]),
        Node("between", "MatMul", ["x"]),
        Node("filter", "Conv2DBackpropFilter", ["x", "between", "g"]),
    ]
    order = device_order(nodes, [0] * 5, merges=[True])
    (gate,) = order.gates
    assert (gate.tensor, set(gate.consumers), gate.waits) == ("g", {"bias", "filter"}, ("between",))


def test_neighbours_that_cannot_be_merged_are_no_unit() -> None:
    """Between them stands an op that needs the one and feeds the other."""
    nodes = [
        Node("x", "Read", []),
        Node("conv", "Conv2D", ["x", "x"]),
        Node("mean", "Mean", ["conv"]),
        Node("sum", "BiasAdd", ["conv", "mean"]),
    ]
    order = device_order(nodes, [0] * 4, merges=[True])
    assert not order.gates and not reaches(all_edges(nodes, order), [node.name for node in nodes]).diagonal().any()


@pytest.mark.parametrize("merges", [True, False])
def test_no_nodes_have_no_order(merges: bool) -> None:
    assert device_order([], [], merges=[merges]) == Order(waits={}, gates=())


def test_the_time_of_a_merged_op_is_its_convolution_s() -> None:
    nodes = convolution()
    assert at_their_convolutions({"pad": 1.0, "sum": 5.0, "y": 2.0}, nodes) == {"pad": 1.0, "conv": 5.0, "y": 2.0}
    apart = {"pad": 1.0, "conv": 4.0, "sum": 1.0}
    assert at_their_convolutions(apart, nodes) == apart
    gradients = [Node("g", "Read", []), Node("bias", "BiasAddGrad", ["g"]), Node("filter", "Conv2DBackpropFilter", ["g", "g", "g"])]
    assert at_their_convolutions({"bias": 3.0}, gradients) == {"filter": 3.0}
    assert at_their_convolutions({"filter": 3.0}, gradients) == {"filter": 3.0}
