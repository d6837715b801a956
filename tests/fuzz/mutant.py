"""One hostile input: the files of a valid one after a change, and where to read it."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

Files = Mapping[str, bytes]
"""Contents by name, all in one folder."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mutant:
    """A changed input. What is read is the first of its files, or the folder of all where the reader takes a folder."""

    files: Files
    how: str
    """what was changed, for the report."""
    wrong: bool = False
    """whether no reader may accept it: the change makes any document of the format invalid, a key that is there twice, say."""

    def lay(self, folder: Path) -> None:
        """Writes the files into `folder`, which must be empty."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)


HOSTILE_PATHS = ("missing", "folder", "pipe", "loop", "dangling", "endless", "long", "nul", "surrogate", "newline", "deep", "empty")
"""Names that no reader can read, by what they are."""


def hostile_path(kind: str, folder: Path, suffix: str) -> Path:
    """Makes one of `HOSTILE_PATHS` in `folder`, which must be empty, and returns its path; nothing there can be read as a file with content."""
    path = folder / f"x{suffix}"
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "loop":
            path.symlink_to(path.name)
        case "dangling":
            path.symlink_to("nowhere")
        case "endless":
            path.symlink_to("/dev/zero")
        case "long":
            path = folder / ("x" * 5000 + suffix)
        case "nul":
            path = Path(f"{folder}/a\0b{suffix}")
        case "surrogate":
            path = folder / f"a\udce4b{suffix}"
        case "newline":
            path = folder / f"a\nb{suffix}"
        case "deep":
            path = Path("/".join([str(folder), *["a"] * 3000, f"x{suffix}"]))
        case "empty":
            path.write_bytes(b"")
        case "missing":
            pass
        case _:
            raise AssertionError(kind)
    return path
