"""Whether the locks of cores can be had."""

from collections.abc import Sequence
from pathlib import Path

from gdp.errors import InputError
from gdp.runtime.exclusive import Exclusive


def come_free(cores: Sequence[int], *, within_s: float, folder: Path | None = None) -> bool:
    locks = Exclusive(cores, wait_s=within_s, folder=folder, tell=lambda line: None)
    try:
        with locks.held():
            return True
    except InputError:
        return False
    finally:
        locks.close()
