"""The first screen of the README runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def python_blocks(markdown: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", markdown, flags=re.DOTALL | re.MULTILINE)


def test_python_of_the_readme_runs(tmp_path: Path) -> None:
    (block,) = python_blocks((ROOT / "README.md").read_text())
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ops, milliseconds = re.fullmatch(r"(\d+) ops, predicted step ([\d.]+) ms", done.stdout.strip()).groups()
    assert int(ops) > 50 and 0 < float(milliseconds) < 1000


def test_files_that_the_readme_names_exist() -> None:
    text = (ROOT / "README.md").read_text()
    named = re.findall(r"`((?:gdp|conf|docs|benchmarks|checkpoints|tests)/[\w./-]+)`", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
