"""`import gdp` stays light, and TensorFlow users need no PyTorch program nor the reverse."""

import subprocess
import sys

import pytest

HEAVY = (
    "tensorflow",
    "keras",
    "hydra",
    "omegaconf",
    "wandb",
    "ray",
    "onnx",
    "transformers",
    "accelerate",
    "torch",
    "torch_geometric",
    "numba",
)


def loaded_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*(name for name in {HEAVY!r} if name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


def test_import_gdp_is_light() -> None:
    assert loaded_after("import gdp") == set()


def test_the_check_can_fail() -> None:
    assert loaded_after("import numba") == {"numba"}


@pytest.mark.parametrize(
    "module", ["gdp.capture.torch", "gdp.policy.policy", "gdp.learn", "gdp.hub", "gdp.runtime.simulator", "gdp.workloads.catalog"]
)
def test_the_core_loads_no_other_framework(module: str) -> None:
    # torch-geometric imports transformers by itself where that is installed
    assert not loaded_after(f"import {module}") & {"tensorflow", "keras", "hydra", "wandb", "ray", "onnx"}
