"""The folder of files through which a measuring process gets its program, and what becomes of those whose owners were killed.

Whoever uses a folder holds a shared lock (`flock`) on a file in it: the process that made it, and the measuring process, which may outlive that one for a moment. The kernel frees
a lock however its holder ends, so a folder whose lock is free is nobody's. The file has its name only when it is locked already, so that no new folder looks like an old one.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from gdp.atomic_file import writing

_PREFIX = "gdp-"
_LOCK = "folder-in-use"


class ProgramFolder:
    """A new folder in the system's temporary folder, in use until `close` removes it. First removes those that nobody uses any more. Raises `InputError` when there is no room."""

    def __init__(self) -> None:
        with writing(Path("a folder for the measuring process")):
            remove_abandoned(Path(tempfile.gettempdir()))
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            try:
                unnamed = self.path / f"{_LOCK}.new"
                self._lock = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_SH)
                unnamed.rename(self.path / _LOCK)
            except OSError:
                shutil.rmtree(self.path, ignore_errors=True)
                raise

    def close(self) -> None:
        """Removes the folder, and what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def use(folder: Path) -> None:
    """The folder is in use until this process ends, if it is there and has a lock."""
    with suppress(OSError):
        fcntl.flock(_opened(folder), fcntl.LOCK_SH | fcntl.LOCK_NB)


def remove_abandoned(parent: Path) -> None:
    """Removes the folders in `parent` that this user's processes made as `ProgramFolder` does and that none of them uses. What the system refuses stays."""
    with suppress(OSError):
        for folder in parent.glob(f"{_PREFIX}*"):
            with suppress(OSError):
                _remove_unless_used(folder)


def _remove_unless_used(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    lock = _opened(folder)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises when it is in use
        if stat.S_ISREG(os.fstat(lock).st_mode) and os.path.samestat(folder.lstat(), found):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _opened(folder: Path) -> int:
    return os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
