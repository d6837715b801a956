"""Where the data that travels with the package lies: `conf/`, `checkpoints/` and `datasets/`.

In a source checkout they are the folders at the top; in an installed wheel they are inside the package.
"""

from pathlib import Path
from typing import Literal

_PACKAGE = Path(__file__).resolve().parent


def bundled(folder: Literal["conf", "checkpoints", "datasets"]) -> Path:
    """Path of a bundled data folder."""
    inside = _PACKAGE / folder
    return inside if inside.is_dir() else _PACKAGE.parent / folder
