"""Checkpoint folders to the Hugging Face Hub."""

import re
from pathlib import Path

from gdp.errors import InputError
from gdp.hub.checkpoint import CARD, FILES, load_checkpoint


def push(folder: Path, repository: str, *, private: bool = False, create_pr: bool = False, dry_run: bool = False) -> str:
    """Checks a checkpoint folder by loading it, uploads its files, and returns one sentence saying what was sent where.

    Makes the repository when it is not there. With `create_pr` it opens a pull request; with `dry_run` it sends nothing. Other files in the folder stay
    where they are. Raises `InputError` when the checkpoint is wrong, has no card, or the Hub refuses.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError

    load_checkpoint(folder)
    if not (folder / CARD).is_file():
        raise InputError(
            f"the checkpoint {folder} has no card {CARD}; nobody can judge a policy without one: save it with gdp.hub.save_checkpoint"
        )
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}", repository, re.ASCII):
        raise InputError(f"{repository!r} is not the name of a repository; write org/name")
    files = [name for name in FILES if (folder / name).is_file()]
    size = sum((folder / name).stat().st_size for name in files)
    sent = f"{len(files)} files, {size} bytes ({', '.join(files)})"
    if dry_run:
        return f"would send {sent} from {folder} to {repository}"
    api = HfApi()
    try:
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            allow_patterns=files,
            create_pr=create_pr,
            commit_message=f"Policy {folder.resolve().name}",
        )
    except LocalTokenNotFoundError as error:
        raise InputError("you are not logged in to the Hugging Face Hub; run `hf auth login`, or set HF_TOKEN") from error
    except (HfHubHTTPError, HFValidationError) as error:
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise InputError(
            f"the Hugging Face Hub refused {repository}: {reason}; log in with `hf auth login` as someone who may write there"
        ) from error
    except Exception as error:  # the Hub's library passes on what its transport raises, of a type that changes from version to version
        reason = str(error).splitlines()[0] if str(error) else repr(error)
        raise InputError(
            f"{repository} cannot be sent, because the Hugging Face Hub cannot be reached: {reason}; try again when connected"
        ) from error
    where = commit.pr_url if create_pr and commit.pr_url else f"{repository} at revision {commit.oid}"
    return f"sent {sent} to {where}"
