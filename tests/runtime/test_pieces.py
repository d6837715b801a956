from functools import cache

import pytest
import torch
from branching_net import branching_input, branching_program
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gdp.capture.torch import capture
from gdp.errors import InputError
from gdp.runtime.pieces import Piece, cut, cut_every_op
from gdp.runtime.values import program_values

NUM_DEVICES = 3


@cache
def program() -> torch.export.ExportedProgram:
    return branching_program().program


def op_names() -> list[str]:
    return [node.name for node in program().graph.nodes if node.op == "call_function"]


placements = st.lists(st.integers(0, NUM_DEVICES - 1), min_size=len(op_names()), max_size=len(op_names())).map(
    lambda devices: dict(zip(op_names(), devices, strict=True))
)


@given(placements)
@settings(max_examples=25, deadline=None)
def test_pieces_run_in_their_order_compute_the_program(device_of_op):
    values = program_values(program(), [branching_input()], generator=torch.Generator())
    expected = program().graph_module(*values.values())
    pieces = cut(program(), device_of_op)
    assert sorted(op for piece in pieces for op in piece.ops) == sorted(op_names())
    for piece in pieces:
        outputs = piece.module(*[values[name] for name in piece.inputs])
        values |= dict(zip(piece.outputs, outputs, strict=True))
    results = [node.name for node in program().graph.output_node().args[0]]
    # the same kernels on the same values: equal to the last bit
    assert all(torch.equal(values[name], value) for name, value in zip(results, expected, strict=True))


@given(placements, st.randoms(use_true_random=False))
@settings(max_examples=50, deadline=None)
def test_pieces_end_a_step_as_early_as_single_ops_would(device_of_op, random):
    """A device that runs its ops one by one, each as soon as its inputs are there, is never ahead of one that runs pieces."""
    seconds = {name: 0 if name.startswith("getitem") else random.randint(1, 20) for name in op_names()}
    pieces = cut(program(), device_of_op)
    device = {op: piece.device for piece in pieces for op in piece.ops}
    nodes = [node for node in program().graph.nodes if node.op == "call_function"]
    end, free = {}, [0] * NUM_DEVICES
    for node in nodes:
        inputs = [end[value.name] for value in node.all_input_nodes if value.name in end]
        end[node.name] = free[device[node.name]] = max([free[device[node.name]], *inputs]) + seconds[node.name]
    assert max(end_of_pieces(pieces, seconds)) == max(end.values())


def end_of_pieces(pieces: list[Piece], seconds: dict[str, int]) -> list[int]:
    ends: dict[str, int] = {}
    free = [0] * NUM_DEVICES
    for piece in pieces:
        start = max([free[piece.device], *(ends.get(name, 0) for name in piece.inputs)])
        free[piece.device] = start + sum(seconds[op] for op in piece.ops)
        ends |= {op: free[piece.device] for op in piece.ops}
    return free


def test_one_device_is_one_piece_without_a_break():
    (piece,) = cut(program(), dict.fromkeys(op_names(), 1))
    assert piece.device == 1
    assert list(piece.ops) == op_names()


def test_two_branches_and_a_join():
    class TwoBranches(nn.Module):
        def forward(self, x):
            left = x.sin().cos()
            right = x.exp().log()
            return left + right

    exported = capture(TwoBranches(), (torch.ones(2),)).program
    pieces = cut(exported, {"sin": 0, "cos": 0, "exp": 1, "log": 1, "add": 0})
    assert [(piece.device, piece.ops, piece.inputs, piece.outputs) for piece in pieces] == [
        (0, ("sin", "cos"), ("x",), ("cos",)),
        (1, ("exp", "log"), ("x",), ("log",)),
        (0, ("add",), ("cos", "log"), ("add",)),
    ]


def test_results_of_a_multi_output_op_stay_with_it_and_unnamed_nodes_with_their_inputs():
    named = {name: 1 for name in op_names() if name.startswith(("split", "max"))}
    device = {op: piece.device for piece in cut(program(), named | {"getitem": 0}) for op in piece.ops}
    picked = [node for node in program().graph.nodes if node.name.startswith("getitem")]
    assert picked and all(device[node.name] == device[node.args[0].name] for node in picked)
    assert device["mean"] == 1  # its only input is a part of the split


def test_every_op_alone():
    pieces = cut_every_op(program())
    assert [piece.ops[0] for piece in pieces] == [name for name in op_names() if not name.startswith("getitem")]


def test_programs_that_write_into_their_inputs_are_refused():
    exported = torch.export.export(nn.ReLU(inplace=True), (torch.ones(2),))
    with pytest.raises(InputError, match="writes into its input"):
        cut(exported, {})
