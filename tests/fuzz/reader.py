"""What the fuzzer knows of a reader: valid inputs, how to read, how to write back what was read, and changes that suit the format."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutant import Files, Mutant
from tests.fuzz.record import form


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reader:
    """One reader under test. What it accepts is written again and read again, and must be the same record."""

    name: str
    target: str
    """the file in an input's folder that is read; empty where the folder itself is."""
    samples: Callable[[], Sequence[Files]]
    """valid inputs."""
    read: Callable[[Path], Any]
    """reads a path, or raises `InputError`."""
    write: Callable[[Path, Any], None]
    """writes a record so that `read` finds an equal one."""
    mutate: Callable[[Sequence[Files], Random], Mutant]
    """a changed sample."""
    may_be_absent: bool = False
    """whether a file that is not there, or is empty and to be added to, is a record without entries."""
    form: Callable[[Any], Any] = form
    """what two equal records have in common."""
    lost: Callable[[Files, Any], str] = lambda files, record: ""
    """what an accepted input holds, by an independent and lenient parser, that its record lacks; empty when nothing."""
