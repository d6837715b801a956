"""Checkpoint folders to the Hugging Face Hub."""

from pathlib import Path

from gdp.errors import InputError
from gdp.hub.checkpoint import CARD, files_of, load_checkpoint
from gdp.hub.repository import Repository, upload


def push(folder: Path, repository: str, *, private: bool = False, create_pr: bool = False, dry_run: bool = False) -> str:
    """Checks a checkpoint folder by loading it, uploads its files, and returns one sentence saying what was sent where.

    Makes the repository when it is not there. With `create_pr` it opens a pull request; with `dry_run` it sends nothing. Other files in the folder stay
    where they are. Raises `InputError` when the checkpoint is wrong, has no card, or the Hub refuses.
    """
    load_checkpoint(folder)
    if not (folder / CARD).is_file():
        raise InputError(f"the checkpoint {folder} has no card {CARD}; nobody can judge a policy without one: save it with gdp.hub.save")
    target = Repository.named(repository, "model")
    paths = files_of(folder)
    files, size = [path.name for path in paths], sum(path.stat().st_size for path in paths)
    sent = f"{len(files)} files, {size} bytes ({', '.join(files)})"
    if dry_run:
        return f"would send {sent} from {folder} to {repository}"
    where = upload(target, folder, files, message=f"Policy {folder.resolve().name}", private=private, create_pr=create_pr)
    return f"sent {sent} to {where}"
