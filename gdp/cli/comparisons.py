"""Final comparisons of a run, kept in its folder, so that a run that continues does not time them again."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from gdp.atomic_file import write_text
from gdp.errors import InputError
from gdp.placement import Placement
from gdp.runtime.timing import Comparison


def kept_in(path: Path, occasion: str, placements: Sequence[Placement], compare: Callable[[], Comparison | None]) -> Comparison | None:
    """What `compare` answers, or answered when the same placements were compared on the same occasion before. Raises `InputError` when the file holds anything else."""
    known = _read(path)
    key = hashlib.sha256(occasion.encode() + b"".join(placement.device.tobytes() for placement in placements)).hexdigest()
    if key in known:
        return known[key]
    comparison = compare()
    if comparison is not None:
        known[key] = comparison
        write_text(path, json.dumps({name: dataclasses.asdict(one) for name, one in known.items()}, indent=1) + "\n")
    return comparison


def _read(path: Path) -> dict[str, Comparison]:
    if not path.exists():
        return {}
    try:
        known = {str(name): Comparison(**fields) for name, fields in json.loads(path.read_bytes()).items()}
        for one in known.values():
            if not (isinstance(one.low, int | float) and 0 <= one.low <= one.ratio <= one.high <= math.inf and 0 < one.ratio < math.inf):
                raise ValueError(f"a ratio of {one.ratio} cannot lie in the interval from {one.low} to {one.high}")
            if not all(0 < value < math.inf for value in (one.num_pairs, one.candidate_s, one.incumbent_s, one.resolution)):
                raise ValueError("a number is not positive")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"the comparisons {path} cannot be read: {error}; delete the file and they are timed again") from error
    return known
