"""A run's folder: whose it is, what it computes, and that one process has it.

A run is named by its configuration, the program, the cluster and the policy that it starts from (`identity.json`): the folder continues it, and no other.
"""

import copy
import dataclasses
import hashlib
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml

import gdp
from gdp.atomic_file import write_text, writing
from gdp.bounded_file import is_absent, read_bounded
from gdp.cli.quoted import quoted
from gdp.cluster import Cluster, write_cluster
from gdp.errors import InputError
from gdp.learn.snapshots import lock_folder
from gdp.plain_json import parse_json
from gdp.tracking.jsonl import METRICS, TABLES

SNAPSHOT = "snapshot.pt"
CLUSTER = "cluster.yaml"
TARGETS = "targets"
"""Searched placements to imitate, which a run may be given beforehand."""
JUDGE = "judge"
"""What the judge of a policy is taught from, and its weights after every round."""
_RUN_ID, _IDENTITY, _CONFIG = "run_id", "identity.json", "config.yaml"
_STARTED = (_IDENTITY, CLUSTER, "profile.json", "journal.jsonl", "comparisons.json", METRICS, TABLES)
"""What a run keeps from its start on."""
_MAX_IDENTITY_BYTES = 2**16
_FREE = (
    ("run_dir",),
    ("resume",),
    ("tracker",),
    ("snapshot_every_updates",),
    ("num_threads",),
    ("runtime", "num_threads"),
    ("workload", "cached_tasks"),
)
"""Keys that may change between the parts of a run that was stopped: they do not touch what an update does."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """Names what a run computes: two runs of one identity may continue each other."""

    configuration: str
    """sha256 of the configuration, without what may change on the way."""
    program: str | None
    """sha256 of the graph; `None` where the configuration names the graphs."""
    cluster: str | None
    """sha256 of the cluster; `None` where the configuration names the clusters."""
    policy: str | None
    """revision of the checkpoint that it starts from; `None` for a new policy."""

    @property
    def name(self) -> str:
        """All of it, for a snapshot."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()


def identity(config: dict[str, Any], *, program: str | None, cluster: str | None, policy: str | None) -> Identity:
    """The identity of a run of this resolved configuration."""
    return Identity(configuration=_configuration(config), program=program, cluster=cluster, policy=policy)


def holds_run_of(folder: Path, config: dict[str, Any], *, resume: Literal["auto", "never"]) -> bool:
    """Whether the folder holds a run of this configuration, started or done. Changes nothing.

    Raises `InputError` when the folder holds what no run wrote, or a run that this configuration cannot continue.
    """
    if not os.path.exists(folder):
        return False
    if not os.path.isdir(folder):
        raise InputError(f"run_dir is {folder}, which is a file; name a folder")
    if not _is_ours(folder):
        others = sorted(
            path.name
            for path in folder.iterdir()
            if path.name not in (".lock", TARGETS, JUDGE) and not path.name.startswith(f".{_RUN_ID}.")
        )
        if others:
            raise InputError(f"the folder {folder} holds files that no run wrote ({', '.join(others[:3])}); name another run_dir")
        return False
    kept = _stored(folder)
    if (folder / SNAPSHOT).exists():
        if resume == "never":
            raise InputError(f"the run folder {folder} holds a run already; name another run_dir, or continue it with resume=auto")
        if kept is None:
            raise InputError(f"the run folder {folder} holds a run, but its {_IDENTITY} is missing or damaged; name another run_dir")
        if kept.configuration != _configuration(config):
            raise InputError(f"the run folder {folder} holds a run of another configuration (see its {_CONFIG}); name another run_dir")
    return kept is not None and kept.configuration == _configuration(config)


@contextmanager
def run_folder(
    folder: Path, config: dict[str, Any], own: Identity, *, cluster: Cluster | None, resume: Literal["auto", "never"]
) -> Iterator[None]:
    """Holds the folder, made if need be, for a run of this identity, new or continued; `config.yaml` and `cluster.yaml` are written.

    What a run of another identity left behind that ended before its first snapshot is removed. A new run that is refused before it has logged anything leaves
    nothing. Raises `InputError` when the folder holds a run that this one cannot continue, or another process is at work in it.
    """
    was_there = os.path.exists(folder)
    with lock_folder(folder):
        holds_run_of(folder, config, resume=resume)
        kept = _stored(folder) if _is_ours(folder) else None
        if (folder / SNAPSHOT).exists():
            assert kept is not None
            _refuse_changes(folder, kept, own)
        elif kept != own:
            _remove(folder, _STARTED)
        try:
            run_id(folder)
            if cluster is not None and not (folder / CLUSTER).exists():
                write_cluster(folder / CLUSTER, cluster)
            write_text(folder / _CONFIG, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
            write_text(folder / _IDENTITY, json.dumps(dataclasses.asdict(own), indent=1) + "\n")
            yield
        except InputError:
            if kept != own and not (folder / METRICS).exists() and not (folder / SNAPSHOT).exists():
                _remove(folder, (*_STARTED, _CONFIG, _RUN_ID))
                if not was_there and [path.name for path in folder.iterdir()] == [".lock"]:
                    (folder / ".lock").unlink()
                    folder.rmdir()
            raise


def run_id(folder: Path) -> str:
    """The run's name at W&B, which marks the folder as a run's: drawn once, kept in the folder."""
    if not _is_ours(folder):
        write_text(folder / _RUN_ID, secrets.token_hex(6) + "\n")
    return (folder / _RUN_ID).read_text(encoding="ascii").strip()


def how_to_continue(typed: Sequence[str], folder: Path) -> str:
    """The command line that continues this run; `typed` is the one that began it."""
    return shlex.join([*without_run_dir(typed), f"run_dir={quoted(str(folder))}"])


def without_run_dir(typed: Sequence[str]) -> list[str]:
    """A command line without its `run_dir=`."""
    return [argument for argument in typed if not argument.startswith("run_dir=")]


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


def _configuration(config: dict[str, Any]) -> str:
    kept = copy.deepcopy(config)
    learner = kept.get("learner") or {}
    constant_rate = learner.get("learning_rate") == learner.get("final_learning_rate")
    may_be_longer = (
        constant_rate and "finetune" not in kept
    )  # a rate that falls does so over all updates, and so does a search's temperature
    for path in (*_FREE, ("learner", "updates")) if may_be_longer else _FREE:
        inner: Any = kept
        for key in path[:-1]:
            inner = inner.get(key) or {}
        inner.pop(path[-1], None)
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()


def _is_ours(folder: Path) -> bool:
    path = folder / _RUN_ID
    if is_absent(path) or not path.is_file():
        return False
    return re.fullmatch(rb"[0-9a-f]{12}\s?", read_bounded(path, what="the file", advice="move it away", max_bytes=100)) is not None


def _remove(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        with writing(folder / name):
            (folder / name).unlink(missing_ok=True)


def _stored(folder: Path) -> Identity | None:
    path = folder / _IDENTITY
    try:
        return Identity(**parse_json(read_bounded(path, what="the file", advice="move it away", max_bytes=_MAX_IDENTITY_BYTES)))
    except (ValueError, TypeError):
        return None


def _refuse_changes(folder: Path, kept: Identity, own: Identity) -> None:
    changed = [name for name in ("program", "cluster", "policy") if getattr(kept, name) != getattr(own, name)]
    if changed:
        raise InputError(f"the {' and the '.join(changed)} changed since the run in {folder} began; name another run_dir")
