"""A repository on the Hugging Face Hub: its files fetched within bounds, sent, and what the Hub refuses said in a sentence.

The transport is huggingface-hub's: its environment variables, cache, offline mode, tokens, retries and progress bars hold here as everywhere.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from gdp.errors import InputError

Kind = Literal["model", "dataset"]
_ADDRESS = {"model": "", "dataset": "datasets/"}
_NOUN = {"model": "policy", "dataset": "corpus"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Repository:
    """Whose, and which state of it."""

    kind: Kind
    id: str
    """`org/name`."""
    revision: str | None
    """a branch, tag or commit; `None`: the newest of the main branch."""

    def __str__(self) -> str:
        return self.id if self.revision is None else f"{self.id}@{self.revision}"

    @classmethod
    def named(cls, name: str, kind: Kind) -> "Repository":
        """From `org/name`, `org/name@revision`, `hf://org/name@revision`, or `hf://datasets/org/name`. Raises `InputError` for anything else."""
        from huggingface_hub import parse_hf_uri
        from huggingface_hub.errors import HfUriError, HFValidationError

        advice = "write org/name or org/name@revision"
        try:
            uri = parse_hf_uri(name if name.startswith("hf://") else f"hf://{_ADDRESS[kind]}{name}")
        except (HfUriError, HFValidationError) as error:
            raise InputError(f"{name!r} does not name a {kind} on the Hugging Face Hub ({error}); {advice}") from error
        if uri.type != kind or uri.path_in_repo:
            raise InputError(f"{name!r} does not name a {kind} repository as a whole; {advice}")
        return cls(kind=kind, id=uri.id, revision=uri.revision)


def download(repository: Repository, *, files: Sequence[str], max_bytes: int) -> Path:
    """The folder in the cache with those of these files (names or patterns) that the repository has; the folder's name is the commit.

    What arrives is counted, whatever a server says beforehand: more than `max_bytes` in all, and it ends. Raises `InputError`.
    """
    from huggingface_hub import snapshot_download

    with _told(repository, "downloaded"):
        return Path(
            snapshot_download(
                repository.id,
                repo_type=repository.kind,
                revision=repository.revision,
                allow_patterns=list(files),
                tqdm_class=_counting(repository, max_bytes),
            )
        )


def upload(repository: Repository, folder: Path, files: Sequence[str], *, message: str, private: bool, create_pr: bool) -> str:
    """Sends these files of a folder in one commit, to a new repository where there is none; returns the address of the pull request, or the commit. Raises `InputError`."""
    from huggingface_hub import HfApi

    api = HfApi()
    with _told(repository, "sent"):
        api.create_repo(repository.id, repo_type=repository.kind, private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repository.id,
            repo_type=repository.kind,
            revision=repository.revision,
            folder_path=folder,
            allow_patterns=list(files),
            create_pr=create_pr,
            commit_message=message,
        )
    return commit.pr_url if create_pr and commit.pr_url else f"{repository.id} at revision {commit.oid}"


@contextmanager
def _told(repository: Repository, done: Literal["downloaded", "sent"]) -> Iterator[None]:
    """What the Hub, the way there or the disk refuses, as an `InputError` that says what to do."""
    from huggingface_hub import constants, errors

    what = f"the {_NOUN[repository.kind]} {repository}"
    login = "log in with `hf auth login`, or set HF_TOKEN"
    try:
        yield
    except InputError:
        raise
    except errors.LocalTokenNotFoundError as error:
        raise InputError(f"you are not logged in to the Hugging Face Hub; {login}") from error
    except errors.RevisionNotFoundError as error:
        raise InputError(
            f"the {_NOUN[repository.kind]} {repository.id} has no revision {repository.revision!r} on the Hugging Face Hub; look up its branches and tags there"
        ) from error
    except errors.GatedRepoError as error:
        raise InputError(f"{what} is gated; ask for access on its page on the Hugging Face Hub, then {login}") from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"there is no {_NOUN[repository.kind]} {repository.id} on the Hugging Face Hub, or you may not see it; check the name, or {login}"
        ) from error
    except errors.LocalEntryNotFoundError as error:
        pull = "pull" if repository.kind == "model" else "pull-corpus"
        raise InputError(
            f"{what} is not in the cache {constants.HF_HUB_CACHE} and the Hugging Face Hub cannot be reached; "
            f"run `gdp hub {pull} {repository}` on a connected machine and copy that folder here, or give a folder on this machine"
        ) from error
    except errors.HfHubHTTPError as error:
        raise InputError(_refusal(error, what, done)) from error
    except Exception as error:  # what the transport raises is of a type that changes with the library's version
        if isinstance(error, OSError) and error.errno is not None:
            raise InputError(
                f"{what} cannot be {done}: {error.strerror or error}; free space, or set HF_HOME to a folder where you may write"
            ) from error
        raise InputError(
            f"{what} cannot be {done}: {_first_line(error)}; the Hugging Face Hub cannot be reached, try again when connected"
        ) from error


def _refusal(error: Any, what: str, done: str) -> str:
    match error.response.status_code:
        case 401:
            advice = "the token is wrong or has expired: log in anew with `hf auth login`, or set HF_TOKEN"
        case 403:
            advice = "this token may not do that: `hf auth login` as someone who may, with a token that may write"
        case 429:
            advice = f"too many requests: wait {error.response.headers.get('Retry-After', '300')} s, or log in, which raises the limit"
        case status if status >= 500:
            advice = "the Hub itself has failed: try again later"
        case _:
            advice = "log in with `hf auth login` as someone who may, or check the name"
    return f"{what} cannot be {done}: the Hugging Face Hub says {_first_line(error)}; {advice}"


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else repr(error)[:300]


def _counting(repository: Repository, most: int) -> type:
    """The progress bar of huggingface-hub, which ends a transfer that has brought more than was declared: a server may go on for ever."""
    from huggingface_hub.utils import tqdm  # type: ignore[attr-defined]  # documented, but not in its __all__

    class Counting(tqdm):
        def update(self, n: float | None = 1) -> bool | None:
            self.arrived = getattr(self, "arrived", 0) + (n or 0)
            if self.arrived > most:
                raise InputError(f"{repository} sends more than the {most} bytes that may be; it is no repository of gdp's")
            shown: bool | None = super().update(n)
            return shown

    return Counting
