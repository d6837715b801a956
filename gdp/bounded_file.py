"""Reading a file that may come from anywhere: a regular one, of bounded size."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from gdp.errors import InputError


def read_bounded(path: Path, *, what: str, advice: str, max_bytes: int) -> bytes:
    """The content of `path`. A link is followed; what it leads to is held to the same rule.

    Raises `InputError`, which calls the file `what` and ends with `advice`, when it cannot be read, is no regular file (a pipe would wait for ever, a
    device never ends), or has over `max_bytes`.
    """
    with _opened(path, what=what, advice=advice, max_bytes=max_bytes) as (file, num_bytes):
        data = file.read(num_bytes + 1)  # a buffer of `max_bytes` would be claimed at once
    if len(data) > num_bytes:
        raise InputError(f"{what} {path} grew while it was read; try again")
    return data


def check_bounded(path: Path, *, what: str, advice: str, max_bytes: int) -> None:
    """Raises `InputError` as `read_bounded` does, without reading: for a library that opens the file by its name."""
    with _opened(path, what=what, advice=advice, max_bytes=max_bytes):
        pass


def is_absent(path: Path) -> bool:
    """Whether nothing has this name. A name that cannot be looked up (too long, a loop of links, no permission) is not absent: reading it says why."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False


@contextmanager
def _opened(path: Path, *, what: str, advice: str, max_bytes: int) -> Iterator[tuple[BufferedReader, int]]:
    """The file and how many bytes it has."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{what} {path} is not a regular file; {advice}")
            if status.st_size > max_bytes:
                raise InputError(f"{what} {path} has {status.st_size} bytes; at most {max_bytes} are read")
            with open(descriptor, "rb", closefd=False) as file:
                yield file, status.st_size
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(f"cannot read {what} {path}: {error.strerror or error}; {advice}") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {what} {str(path)!r}: {error}; {advice}") from error
