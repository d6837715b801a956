"""Snapshots: the exact state of a run, private to it, from which a killed run continues to the same result (bit for bit on a CPU).

Not a checkpoint: a checkpoint (`gdp.hub`) is the policy alone, for others. A snapshot is one file, replaced atomically, read with `weights_only`.
"""

import dataclasses
import fcntl
import hashlib
import io
import json
import os
import pickle
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from gdp.atomic_file import replacing, writing
from gdp.bounded_file import read_bounded
from gdp.errors import InputError
from gdp.learn.advantage import History, Trials
from gdp.learn.learner import Incumbent, Learner
from gdp.measurement import measurement_document, measurement_of

_FORMAT = 5
_MAX_BYTES = 2**32


def save_snapshot(path: Path, learner: Learner, *, run: str, extra: Mapping[str, Any]) -> None:
    """Writes the learner's whole state to `path`; `run` names the configuration it belongs to, `extra` is JSON of the caller's own."""
    document = {
        "format": _FORMAT,
        "run": run,
        "extra": dict(extra),
        "imitation_step": learner.imitation_step,
        "update": learner.update,
        "evaluations": learner.evaluations,
        "last_improvement": learner.last_improvement,
        "curve": learner.curve,
        "numpy_generator": learner.numpy_generator.bit_generator.state,
        "history": {name: dataclasses.asdict(history) for name, history in learner.history.items()},
        "incumbent": {name: _incumbent_document(best) for name, best in learner.incumbent.items()},
        "found": {name: _incumbent_document(best) for name, best in learner.found.items()},
    }
    content = {
        "document": json.dumps(document),
        "policy": learner.policy.state_dict(),
        "optimizer": learner.optimizer.state_dict(),
        "torch_generator": learner.torch_generator.get_state(),
        "incumbent": {name: _incumbent_tensors(best) for name, best in learner.incumbent.items()},
        "found": {name: _incumbent_tensors(best) for name, best in learner.found.items()},
    }
    data = io.BytesIO()
    torch.save(content, data)  # into memory, because torch has its own errors for a disk that is full
    digest = hashlib.sha256(data.getbuffer()).digest()
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(digest)
        file.write(data.getbuffer())


def restore_snapshot(path: Path, learner: Learner, *, run: str) -> dict[str, Any]:
    """Puts the learner into the state that `save_snapshot` wrote, and returns its `extra`.

    Raises `InputError` when the file is damaged or belongs to a run of another configuration.
    """
    try:
        return _restore(path, learner, run=run)
    except InputError:
        raise
    except _DAMAGED as error:
        raise InputError(
            f"the snapshot {path} cannot be read: {type(error).__name__}: {error}; delete the run folder and start anew"
        ) from error


_DAMAGED = (
    OSError,
    EOFError,
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    MemoryError,
    pickle.UnpicklingError,
)
"""What reading a file raises that is no snapshot, or a damaged one."""


def _restore(path: Path, learner: Learner, *, run: str) -> dict[str, Any]:
    content = read_snapshot(path)
    document = json.loads(content["document"])
    if document["format"] != _FORMAT:
        raise InputError(
            f"the snapshot {path} has format {document['format']}, this version reads {_FORMAT}; start the run anew in another run_dir"
        )
    if document["run"] != run:
        raise InputError(f"the run folder {path.parent} holds a run of another configuration (see its config.yaml); name another run_dir")
    learner.policy.load_state_dict(content["policy"])
    learner.optimizer.load_state_dict(content["optimizer"])
    learner.torch_generator.set_state(content["torch_generator"])
    learner.numpy_generator.bit_generator.state = document["numpy_generator"]
    learner.imitation_step = _count(document["imitation_step"])
    learner.update = _count(document["update"])
    learner.evaluations = _count(document["evaluations"])
    learner.last_improvement = _count(document["last_improvement"])
    learner.curve = [(float(spent), float(best), float(mean)) for spent, best, mean in document["curve"]]
    learner.history = {
        name: History(trials=Trials(**both["trials"]), valid=Trials(**both["valid"])) for name, both in document["history"].items()
    }
    learner.incumbent = {name: _restored(best, content["incumbent"][name]) for name, best in document["incumbent"].items()}
    learner.found = {name: _restored(best, content["found"][name]) for name, best in document["found"].items()}
    for parameter, state in learner.optimizer.state.items():
        if any(value.shape not in (parameter.shape, ()) for value in state.values()):
            raise ValueError("the optimiser's state is not that of the policy's weights")
    return dict(document["extra"])


def read_snapshot(path: Path) -> dict[str, Any]:
    """What `save_snapshot` wrote. Raises `ValueError` when the file is not whole, `InputError` when it is no file or too large."""
    data = read_bounded(path, what="the snapshot", advice="delete the run folder and start anew", max_bytes=_MAX_BYTES)
    digest, content = data[: hashlib.sha256().digest_size], data[hashlib.sha256().digest_size :]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("its content has changed since it was written")
    loaded: dict[str, Any] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return loaded


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Holds a run folder for this process alone; the lock goes with the process, however it ends.

    Raises `InputError` when another run holds it, or when its lock is no file of its own. What the file holds is left alone.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{folder / '.lock'} is not a regular file; delete it")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"another run is at work in {folder}; wait for it to end, or name another run_dir") from error
        yield
    finally:
        os.close(descriptor)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError(f"{str(value)[:40]!r} is no count")
    return value


def _incumbent_document(best: Incumbent) -> dict[str, Any]:
    return {"update": best.update, "measurement": measurement_document(best.measurement)}


def _incumbent_tensors(best: Incumbent) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(best.device.copy()), best.group_device


def _restored(document: Mapping[str, Any], tensors: tuple[torch.Tensor, torch.Tensor]) -> Incumbent:
    device, group_device = tensors
    measurement = measurement_of(document["measurement"])
    return Incumbent(device=device.numpy(), group_device=group_device, measurement=measurement, update=document["update"])
