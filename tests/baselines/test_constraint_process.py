"""A solver in a process of its own: its answer, and what becomes of one that fails or is killed."""

from pathlib import Path

import pytest

from gdp.baselines.constraint_process import solve_apart
from gdp.errors import InputError


def _solver(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> str:
    (folder / "planted_solver.py").write_text(f"import json, os, signal, sys\nproblem = json.load(sys.stdin)\n{body}\n")
    monkeypatch.syspath_prepend(str(folder))
    return "planted_solver"


def test_the_answer_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _solver(tmp_path, monkeypatch, "json.dump({'twice': 2 * problem['number']}, sys.stdout)")
    assert solve_apart(module, {"number": 21}, time_limit_s=1.0) == {"twice": 42}


def test_one_that_is_killed_is_the_user_s_to_mend_and_one_that_fails_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = _solver(tmp_path, monkeypatch, "os.kill(os.getpid(), problem['signal']) if 'signal' in problem else sys.exit('a fault')")
    with pytest.raises(InputError, match="want of memory"):
        solve_apart(module, {"signal": 9}, time_limit_s=1.0)
    with pytest.raises(RuntimeError, match="code 1: a fault"):
        solve_apart(module, {}, time_limit_s=1.0)
