"""Files that are there whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

from gdp.errors import InputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`; on success it is synced and renamed onto `path`, on failure removed.

    A reader of `path` sees the old content or the new one, never a part, even when the process is killed. Raises `InputError` when the system refuses
    to make, write or rename the file.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
        os.close(descriptor)
        temporary = Path(name)
        try:
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            umask = os.umask(0)
            os.umask(umask)
            temporary.chmod(0o666 & ~umask)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Whatever the system refuses while `path` is written becomes an `InputError`: no such folder, no permission, a full disk."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}; name another folder, or free space") from error


def write_text(path: Path, text: str) -> None:
    """Writes `text` as UTF-8 to `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def append(file: FileIO, data: bytes) -> None:
    """Adds `data` to an unbuffered file, so that nothing is left to be written when it is closed. Raises `InputError` when the system refuses, a full disk say."""
    with writing(Path(str(file.name))):
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
