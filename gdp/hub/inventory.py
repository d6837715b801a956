"""The policies at hand: those that travel with gdp, and those in the Hugging Face cache."""

import dataclasses
from pathlib import Path
from typing import Literal

from gdp.bundled import bundled
from gdp.errors import InputError
from gdp.hub.checkpoint import read_config
from gdp.hub.load import available


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listed:
    """A policy that can be loaded without network."""

    name: str
    """as `gdp.hub.load` takes it: of the cache with its commit."""
    where: Literal["bundled", "cache"]
    folder: Path
    num_parameters: int
    weights_bytes: int


def inventory() -> tuple[Listed, ...]:
    """The bundled policies, then those of the cache by name and commit. What another program has in the cache is passed over."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        cached = [repository for repository in scan_cache_dir().repos if repository.repo_type == "model"]
    except CacheNotFound:
        cached = []
    found = [_listed(name, "bundled", bundled("checkpoints") / name) for name in available()]
    for repository in sorted(cached, key=lambda one: one.repo_id):
        for revision in sorted(repository.revisions, key=lambda one: one.commit_hash):
            found.append(_listed(f"{repository.repo_id}@{revision.commit_hash}", "cache", revision.snapshot_path))
    return tuple(one for one in found if one is not None)


def _listed(name: str, where: Literal["bundled", "cache"], folder: Path) -> Listed | None:
    try:
        facts = read_config(folder).facts
    except InputError:
        return None
    return Listed(name=name, where=where, folder=folder, num_parameters=facts.num_parameters, weights_bytes=facts.weights_bytes)
