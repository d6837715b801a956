"""A user's file is run without letting it change the command around it."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from gdp.capture.tensorflow_program import TensorFlowProgram
from gdp.cli.measured import measured_runtime, refuse_other_programs
from gdp.cli.model import resolve_model
from gdp.errors import InputError
from gdp.runtime.tensorflow import TensorFlowRuntime

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


TENSORFLOW = """
import numpy as np
import tensorflow as tf
from gdp.capture.tensorflow_program import function_program

def build():
    weight = tf.Variable(tf.ones((3, 2)))
    call = tf.function(lambda x: tf.matmul(x, weight)).get_concrete_function(tf.TensorSpec((4, 3)))
    return function_program(call, [np.ones((4, 3), np.float32)], source="a product", owner=weight)

def save(folder):
    module = tf.Module()
    module.weight = tf.Variable(tf.ones((3, 2)))
    module.call = tf.function(lambda x: {"y": tf.matmul(x, module.weight)}, input_signature=[tf.TensorSpec((None, 3), name="x")])
    tf.saved_model.save(module, folder, signatures=module.call)
"""


@pytest.mark.tensorflow
def test_tensorflow_programs_and_saved_models_can_be_run(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TENSORFLOW)
    model = resolve_model(f"{tmp_path / 'program.py'}:build")
    assert isinstance(model.program, TensorFlowProgram) and model.dispatch == "program_order"
    assert [value.shape for value in model.program.example_inputs] == [(4, 3)] and "MatMul" in model.graph.op_type
    scope: dict[str, Any] = {}
    exec(TENSORFLOW, scope)
    scope["save"](str(tmp_path / "saved"))
    for text in (f"{tmp_path / 'saved'}", f"{tmp_path / 'saved'}:serving_default"):
        saved = resolve_model(text)
        assert isinstance(saved.program, TensorFlowProgram) and saved.program.example_inputs[0].shape == (1, 3)
    with pytest.raises(InputError, match="no signature 'other'"):
        resolve_model(f"{tmp_path / 'saved'}:other")


@pytest.mark.tensorflow
def test_a_program_is_run_by_the_runtime_of_its_framework(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TENSORFLOW)
    model = resolve_model(f"{tmp_path / 'program.py'}:build")
    refuse_other_programs(model, "tensorflow")
    with pytest.raises(InputError, match="'a product', which is a tensorflow program; use runtime=tensorflow"):
        refuse_other_programs(model, "pytorch")
    with measured_runtime(model) as runtime:
        assert isinstance(runtime, TensorFlowRuntime)
    (tmp_path / "other.py").write_text(PROGRAM)
    with pytest.raises(InputError, match="is a graph alone"):
        refuse_other_programs(resolve_model(f"{tmp_path / 'other.py'}:build"), "tensorflow")


def test_tensorflow_in_a_program_takes_the_gpu_s_memory_as_it_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow reads the variable when it first sees a GPU, which may be while the user's file builds its model."""
    monkeypatch.chdir(tmp_path)
    for given, seen in ((None, "true"), ("false", "false")):
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", given or "")
        if given is None:
            monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH")
        (tmp_path / "own.py").write_text(f"import os\nassert os.environ['TF_FORCE_GPU_ALLOW_GROWTH'] == {seen!r}\n" + PROGRAM)
        assert resolve_model("own.py:build").graph.num_ops > 1
