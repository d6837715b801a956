"""Reading a file that may come from anywhere: a regular one, of bounded size."""

import os
import stat
from pathlib import Path

from gdp.errors import InputError


def read_bounded(path: Path, *, what: str, advice: str, max_bytes: int) -> bytes:
    """The content of `path`. A link is followed; what it leads to is held to the same rule.

    Raises `InputError`, which calls the file `what` and ends with `advice`, when it cannot be read, is no regular file (a pipe would wait for ever, a
    device never ends), or has over `max_bytes`.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise InputError(f"{what} {path} is not a regular file; {advice}")
            if status.st_size > max_bytes:
                raise InputError(f"{what} {path} has {status.st_size} bytes; at most {max_bytes} are read")
            data = file.read(max_bytes + 1)
    except OSError as error:
        raise InputError(f"cannot read {what} {path}: {error.strerror or error}; {advice}") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"cannot read {what} {str(path)!r}: {error}; {advice}") from error
    if len(data) > max_bytes:
        raise InputError(f"{what} {path} grew beyond {max_bytes} bytes while it was read; try again")
    return data
