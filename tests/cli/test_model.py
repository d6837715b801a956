"""A user's file is run without letting it change the command around it."""

import os
import sys
from pathlib import Path

import pytest

from gdp.cli.model import resolve_model
from gdp.errors import InputError

PROGRAM = """
import os, sys
import numpy as np
from gdp.workloads.synthetic import layered

def build():
    print("hello from the model")
    os.chdir("/")
    sys.path.clear()
    return layered(np.random.default_rng(0), num_ops=20)

def leaves():
    sys.exit(0)
"""


def test_what_a_program_prints_and_changes_stays_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    assert resolve_model("program.py:build").graph.num_ops > 1
    assert os.getcwd() == str(tmp_path) and sys.path == before
    out, err = capsys.readouterr()
    assert out == "" and "hello from the model" in err


def test_a_program_that_leaves_and_a_file_without_a_function_are_mistakes(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with pytest.raises(InputError, match="raised SystemExit"):
        resolve_model(f"{tmp_path / 'program.py'}:leaves")
    with pytest.raises(InputError, match=r"program\.py:FUNCTION"):
        resolve_model(str(tmp_path / "program.py"))


TRAINING = """
import torch
from torch import nn
from gdp.capture.torch_training import TrainingStep

def build():
    module = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(module.parameters())
    return TrainingStep(module=module, inputs=(torch.ones(4, 3),), targets=(torch.ones(4, 2),), loss=nn.MSELoss(), optimizer=optimizer)
"""


def test_a_training_step_is_captured_with_its_updates_and_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TRAINING)
    model = resolve_model(f"{tmp_path / 'program.py'}:build")
    assert model.graph.op_type.count("aten._fused_adam.default") == 2
    assert model.dispatch == "program_order"
    assert model.program is not None
    loss = model.program.graph_signature.user_outputs
    assert len(loss) == 1 and len(model.example_inputs) == 2
