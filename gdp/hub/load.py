"""Policies by name: bundled with gdp, in a folder, or on the Hugging Face Hub."""

import dataclasses
import os
from pathlib import Path

from gdp.bounded_file import read_bounded
from gdp.bundled import bundled
from gdp.errors import InputError, nearest_name_hint
from gdp.hub.checkpoint import CARD, CONFIG, FILES, MAX_CONFIG_BYTES, load_checkpoint, read_config
from gdp.hub.repository import Repository, download
from gdp.policy.policy import Policy


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resolved:
    """Where a policy lies on this machine, and what exactly it is."""

    folder: Path
    name: str
    """as a placement file should name it: `gdp-tiny`, `org/name`, or the folder."""
    revision: str
    """the commit on the Hub, else the sha256 of `config.json`, which holds that of the weights."""


def available() -> tuple[str, ...]:
    """Names of the bundled policies."""
    folder = bundled("checkpoints")
    return tuple(sorted(path.parent.name for path in folder.glob(f"*/{CONFIG}")))


def load(name_or_path: str | Path) -> Policy:
    """The policy that a bundled name, a folder, `org/name@revision` or `hf://org/name@revision` names. Raises `InputError` as `resolve` and `load_checkpoint` do."""
    return load_checkpoint(resolve(name_or_path).folder)


def pull(name_or_path: str | Path) -> Resolved:
    """Where a policy lies, downloaded if need be and checked by loading it. Raises `InputError` as `load` does."""
    resolved = resolve(name_or_path)
    load_checkpoint(resolved.folder)
    return resolved


def card(name_or_path: str | Path) -> str:
    """The card of a policy, Markdown. Raises `InputError` when there is no such policy, or it has none."""
    path = resolve(name_or_path).folder / CARD
    return read_bounded(path, what="the card", advice="a policy without one can still be loaded", max_bytes=MAX_CONFIG_BYTES).decode(
        errors="replace"
    )


def resolve(name_or_path: str | Path) -> Resolved:
    """Finds a policy, downloading it where it is on the Hub and not in the cache.

    A bundled name comes first, then a folder that exists, then the Hub. Raises `InputError` when there is no such policy, or when it cannot be had offline.
    """
    name = str(name_or_path)
    if not name:
        raise InputError("the policy's name is empty; give a bundled name, a folder, or org/name for the Hugging Face Hub")
    if isinstance(name_or_path, str) and name in available():
        return _local(bundled("checkpoints") / name, name)
    if not name.startswith("hf://") and os.path.isdir(name):
        return _local(Path(name), name)
    if isinstance(name_or_path, str) and (name.startswith("hf://") or _looks_like_repository(name)):
        return _from_hub(name)
    if isinstance(name_or_path, Path) or os.sep in name or name.startswith("."):
        raise InputError(f"there is no checkpoint folder {name}; give the folder that holds {CONFIG}")
    hint = nearest_name_hint(name, available())
    known = ", ".join(available()) or "none"
    raise InputError(f"no policy is named {name!r}; {hint}bundled are: {known}; or give a folder, or org/name for the Hugging Face Hub")


def _local(folder: Path, name: str) -> Resolved:
    return Resolved(folder=folder, name=name, revision=read_config(folder).revision)


def _looks_like_repository(name: str) -> bool:
    repository = name.partition("@")[0]
    return repository.count("/") == 1 and not repository.startswith((".", "/", "~")) and not repository.endswith("/")


def _from_hub(name: str) -> Resolved:
    """Looks at `config.json` before the weights are fetched, so that another program's model is refused at once, and of the weights no more is taken than it promises."""
    repository = Repository.named(name, "model")
    folder = download(repository, files=[CONFIG], max_bytes=MAX_CONFIG_BYTES)
    if not os.path.isfile(folder / CONFIG):
        raise InputError(f"the repository {repository.id} has no {CONFIG}: it holds no gdp policy, or another program's")
    config, commit = read_config(folder), dataclasses.replace(repository, revision=folder.name)
    folder = download(commit, files=FILES, max_bytes=config.facts.weights_bytes + len(FILES) * MAX_CONFIG_BYTES)
    return Resolved(folder=folder, name=repository.id, revision=folder.name)
