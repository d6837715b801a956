"""Phases of small training steps drawn by hand."""

import numpy as np

from gdp.capture.tensorflow_phases import phases
from gdp.graph import Phase

F, B, U, NONE = Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE, Phase.OTHER

STEP = [
    # name, type, writes, producers, phase
    ("x", "Placeholder", False, [], F),
    ("w", "VarHandleOp", False, [], F),
    ("w/read", "ReadVariableOp", False, ["w"], F),
    ("y", "MatMul", False, ["x", "w/read"], F),
    ("mean/axis", "Const", False, [], F),
    ("loss", "Mean", False, ["y", "mean/axis"], F),
    ("ones", "Const", False, [], B),  # where the gradient starts
    ("gradient_tape/tile", "Tile", False, ["ones"], B),
    ("gradient_tape/y/a", "MatMul", False, ["x", "gradient_tape/tile"], B),
    ("gradient_tape/y/b", "MatMul", False, ["y", "gradient_tape/tile"], B),
    ("AddN", "AddN", False, ["gradient_tape/y/a", "gradient_tape/y/b"], B),
    ("rate", "VarHandleOp", False, [], U),
    ("rate/read", "ReadVariableOp", False, ["rate"], U),
    ("scaled", "Mul", False, ["AddN", "rate/read"], U),
    ("assign", "AssignSubVariableOp", True, ["w", "scaled"], U),
    ("steps", "VarHandleOp", False, [], U),
    ("steps/read", "ReadVariableOp", False, ["steps"], U),
    ("one", "Const", False, [], U),
    ("steps/next", "AddV2", False, ["steps/read", "one"], U),
    ("steps/assign", "AssignVariableOp", True, ["steps", "steps/next"], U),
    ("average", "VarHandleOp", False, [], F),  # as of batch normalisation
    ("average/next", "Mul", False, ["y"], F),
    ("average/assign", "AssignVariableOp", True, ["average", "average/next"], F),
    ("returned", "Identity", False, ["AddN"], B),
    ("group", "NoOp", False, [], NONE),
]


def found(step: list[tuple[str, str, bool, list[str], Phase]]) -> dict[str, Phase]:
    place = {name: number for number, (name, *_) in enumerate(step)}
    edges = [(place[producer], number) for number, (_, _, _, producers, _) in enumerate(step) for producer in producers]
    answer = phases(
        [kind for _, kind, *_ in step],
        [name for name, *_ in step],
        np.array([writes for _, _, writes, *_ in step]),
        np.array(edges, np.int64).reshape(-1, 2),
    )
    return {name: Phase(value) for name, value in zip(place, answer.tolist(), strict=True)}


def test_every_op_of_a_training_step_has_its_phase() -> None:
    assert found(STEP) == {name: phase for name, *_, phase in STEP}


def test_sum_on_the_way_back_is_backward() -> None:
    step = STEP[:11] + [("gradient_tape/x", "MatMul", False, ["AddN"], B), ("norm", "Mul", False, ["gradient_tape/x"], B)]
    assert found(step)["AddN"] == found(step)["norm"] == B


def test_what_lies_between_gradients_is_backward_though_it_leads_to_an_update() -> None:
    clipped = [
        ("w", "VarHandleOp", False, [], U),
        ("gradient_tape/y", "MatMul", False, [], B),
        ("clip", "Minimum", False, ["gradient_tape/y"], B),
        ("gradient_tape/x", "MatMul", False, ["clip"], B),
        ("norm", "Mul", False, ["gradient_tape/x"], U),
        ("assign", "AssignSubVariableOp", True, ["w", "norm"], U),
    ]
    assert found(clipped) == {name: phase for name, *_, phase in clipped}


def test_inference_is_forward() -> None:
    step = STEP[:6]
    assert set(found(step).values()) == {F}


def test_scopes_of_tensorflow_1_count_as_gradients() -> None:
    step = [
        (name.replace("gradient_tape/", "gradients_1/"), kind, writes, [p.replace("gradient_tape/", "gradients_1/") for p in ps], phase)
        for name, kind, writes, ps, phase in STEP
    ]
    assert found(step) == {name: phase for name, *_, phase in step}
    assert found([("my_gradients/y", "Mul", False, [], F)]) == {"my_gradients/y": F}
