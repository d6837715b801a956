"""Expressions evaluated in a process of their own, which knows the hub of the test: the Hub's address is read when its library is imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

ANSWER = """
import json, sys
import gdp.hub
from gdp.errors import InputError
from pathlib import Path
answers = []
for line in sys.argv[1:]:
    try:
        answers.append(["ok", str(eval(line))])
    except InputError as error:
        answers.append(["refused", str(error)])
print(json.dumps(answers))
"""


def scene(address: str, home: Path, *lines: str, token: str | None = "hf_test", offline: bool = False) -> list[tuple[str, str]]:
    """What each expression yields in a process that knows the hub at `address`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    settings = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    settings |= {"HF_TOKEN": token} if token else {}
    settings |= {"HF_HUB_OFFLINE": "1"} if offline else {}
    done = subprocess.run(
        [sys.executable, "-c", ANSWER, *lines], capture_output=True, text=True, timeout=120, cwd=home.parent,
        env=kept | settings | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [tuple(answer) for answer in json.loads(done.stdout.splitlines()[-1])]
