"""A run's folder: whose it is, that one process has it, and how the run is asked to stop."""

import copy
import hashlib
import json
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import yaml

import gdp
from gdp.atomic_file import write_text
from gdp.errors import InputError

SNAPSHOT = "snapshot.pt"
_STARTED = ("cluster.yaml", "profile.json", "journal.jsonl", "metrics.jsonl")
"""What a run keeps from its start on."""
_FREE = (("run_dir",), ("resume",), ("tracker",), ("snapshot_every_updates",), ("learner", "updates"), ("runtime", "num_threads"))
"""Keys that may change between the parts of a run that was stopped: they do not touch what an update does."""


def identity(config: dict[str, Any]) -> str:
    """Names what a run computes: two configurations with the same name may continue each other."""
    kept = copy.deepcopy(config)
    for path in _FREE:
        inner: Any = kept
        for key in path[:-1]:
            inner = inner.get(key) or {}
        inner.pop(path[-1], None)
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()


def begin(folder: Path, config: dict[str, Any], *, resume: Literal["auto", "never"]) -> None:
    """Makes a run folder ready for a run of this configuration, new or continued, and writes `config.yaml`.

    What a run left behind that ended before its first snapshot is removed when its configuration was another one. Raises `InputError` when the folder holds a run
    that this one cannot continue.
    """
    path = folder / "config.yaml"
    same = path.exists() and identity(yaml.safe_load(path.read_text(encoding="utf-8"))) == identity(config)
    if (folder / SNAPSHOT).exists():
        if resume == "never":
            raise InputError(f"the run folder {folder} holds a run already; name another run_dir, or continue it with resume=auto")
        if not same:
            raise InputError(f"the run folder {folder} holds a run of another configuration (see its config.yaml); name another run_dir")
    elif not same:
        for name in _STARTED:
            (folder / name).unlink(missing_ok=True)
    write_text(path, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))


def run_id(folder: Path) -> str:
    """The run's name at W&B: drawn once, kept in the folder."""
    path = folder / "run_id"
    if not path.exists():
        write_text(path, secrets.token_hex(6) + "\n")
    return path.read_text().strip()


@contextmanager
def stop_signal() -> Iterator[Callable[[], int]]:
    """Yields a function that tells which signal (SIGINT or SIGTERM) asked the run to stop, 0 if none did. A second one stops at once."""
    asked = [0]

    def handle(number: int, frame: FrameType | None) -> None:
        if asked[0]:
            raise KeyboardInterrupt
        asked[0] = number
        print("stopping after this update; once more to stop at once", file=sys.stderr)

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked[0]
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def how_to_continue(script: str, folder: Path) -> str:
    """The command line that continues this run."""
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("run_dir=")]
    return shlex.join(["python", script, *arguments, f"run_dir={folder}"])


def source_commit() -> str:
    """The commit of the source checkout that runs, `+` added where it has been changed since; the version where there is no checkout."""
    root = Path(gdp.__file__).resolve().parent.parent
    if not (root / ".git").exists() or shutil.which("git") is None:
        return f"gdp {gdp.__version__}"
    commit = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    changed = subprocess.run(
        ["git", "-C", str(root), "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=False
    )
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "") if commit.returncode == 0 else f"gdp {gdp.__version__}"
