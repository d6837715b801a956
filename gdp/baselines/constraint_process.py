"""CP-SAT in a process of its own: OR-tools and highspy each carry HiGHS, under the same names.

Whichever of the two is loaded second cannot be loaded (seen with OR-tools 9.15 and highspy 1.15).
"""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from gdp.errors import InputError


def refuse_without_ortools() -> None:
    """Raises `InputError` where OR-tools is not installed."""
    if importlib.util.find_spec("ortools") is None:
        raise InputError(
            "constraint programming needs OR-tools, which is not installed; pip install 'gdp[cp-sat]', or use the integer programs on HiGHS"
        )


def solve_apart(module: str, problem: Mapping[str, Any], *, time_limit_s: float) -> Any:
    """What `python -m module` answers to the problem: JSON in, JSON out. It is given twice its solver's time and a minute.

    Raises `InputError` when the system kills it.
    """
    done = subprocess.run(
        [sys.executable, "-m", module],
        input=json.dumps(problem),
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * time_limit_s + 60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    if done.returncode == -signal.SIGKILL:
        raise InputError(
            "the process that runs CP-SAT was killed, most likely for want of memory; give it a smaller problem, or use the integer programs on HiGHS"
        )
    if done.returncode:
        raise RuntimeError(f"the process that runs CP-SAT ended with code {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)
