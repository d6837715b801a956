"""The house rules that no linter knows, held by reading the source."""

import ast
import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import gdp

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted((ROOT / "gdp").rglob("*.py"))
UNITS = re.compile(r"(_s|_bytes|_flops|_bytes_per_s|flops_per_s|flops)$")
RECORDS = (gdp.Graph, gdp.Device, gdp.Cluster, gdp.Measurement, gdp.MeasurementBatch, gdp.Timeline)


def violations(source: str) -> list[str]:
    """What a file does that the house forbids."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.args.kwarg and not node.name.startswith("_"):
            found.append(f"line {node.lineno}: {node.name} takes **{node.args.kwarg.arg}")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
            found.append(f"line {node.lineno}: hasattr")
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name | ast.Call):
            name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(name, ast.Name) and name.id == "NotImplementedError":
                found.append(f"line {node.lineno}: NotImplementedError")
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_source_keeps_the_house_rules(path: Path) -> None:
    assert violations(path.read_text()) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_file_holds_one_idea(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= 350
    assert path.stem not in ("utils", "common", "base", "manager", "helpers")
    assert ast.get_docstring(ast.parse(source)), "a file says first what it is"


def test_the_rules_can_fail() -> None:
    assert len(violations("def f(**options):\n    hasattr(f, 'x')\n    raise NotImplementedError\n")) == 3


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_real_number_of_a_record_names_its_unit(record: type) -> None:
    for field in dataclasses.fields(record):
        text = str(field.type)
        if field.type is float or "Float64" in text:
            assert UNITS.search(field.name), f"{record.__name__}.{field.name} has no unit in its name"


@pytest.mark.parametrize("folder", ["conf", "datasets", "checkpoints"])
def test_data_folders_hold_no_python(folder: str) -> None:
    assert list((ROOT / folder).rglob("*.py")) == []


def test_arrays_of_records_are_read_only() -> None:
    placement = gdp.Placement(device=np.zeros(2, np.int32), origin=gdp.Origin(placer="user"))
    with pytest.raises(ValueError, match="read-only"):
        placement.device[0] = 1
