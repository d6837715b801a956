"""Final comparisons of a run, kept in its folder, so that a run that continues does not time them again."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from gdp.atomic_file import write_text
from gdp.bounded_file import is_absent, read_bounded
from gdp.errors import InputError
from gdp.placement import Placement
from gdp.plain_json import parse_json
from gdp.runtime.timing import Comparison

_MAX_FILE_BYTES = 2**20


def kept_in(path: Path, occasion: str, placements: Sequence[Placement], compare: Callable[[], Comparison | None]) -> Comparison | None:
    """What `compare` answers, or answered when the same placements were compared on the same occasion before. Raises `InputError` when the file holds anything else."""
    known = read_comparisons(path)
    key = hashlib.sha256(occasion.encode() + b"".join(placement.device.tobytes() for placement in placements)).hexdigest()
    if key in known:
        return known[key]
    comparison = compare()
    if comparison is not None:
        known[key] = comparison
        write_comparisons(path, known)
    return comparison


class _Kept(BaseModel):
    """A `Comparison` as the file holds it; an unknown upper bound is null."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ratio: Annotated[float, Field(ge=1e-9, le=1e9)]
    low: Annotated[float, Field(ge=0, le=1e9)]
    high: Annotated[float, Field(ge=0, le=1e9)] | None
    num_pairs: Annotated[int, Field(ge=1, lt=2**31)]
    candidate_s: Annotated[float, Field(gt=0, le=1e9)]
    incumbent_s: Annotated[float, Field(gt=0, le=1e9)]
    resolution: Annotated[float, Field(gt=0, le=1)]
    drift: Annotated[float, Field(gt=-1, le=1e9)] = 0.0

    @model_validator(mode="after")
    def _ordered(self) -> "_Kept":
        if not self.low <= self.ratio <= (math.inf if self.high is None else self.high):
            raise ValueError(f"a ratio of {self.ratio} cannot lie in the interval from {self.low} to {self.high}")
        return self


_FILE = TypeAdapter(dict[str, _Kept])


def write_comparisons(path: Path, known: Mapping[str, Comparison]) -> None:
    """Writes comparisons by their keys, whole or not at all."""
    write_text(path, json.dumps({name: _document(one) for name, one in known.items()}, indent=1) + "\n")


def read_comparisons(path: Path) -> dict[str, Comparison]:
    """The comparisons in a file by their keys; none where there is no file. Raises `InputError` when it holds anything else."""
    if is_absent(path):
        return {}
    content = read_bounded(path, what="the comparisons", advice="delete it and they are timed again", max_bytes=_MAX_FILE_BYTES)
    try:
        kept = _FILE.validate_python(parse_json(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part)[:20] for part in first["loc"]) or "the top level"
        raise InputError(
            f"the comparisons {path} are wrong at {place}: {first['msg']}; delete the file and they are timed again"
        ) from error
    except ValueError as error:
        raise InputError(f"the comparisons {path} are not JSON: {error}; delete the file and they are timed again") from error
    return {name: Comparison(**{**one.model_dump(), "high": math.inf if one.high is None else one.high}) for name, one in kept.items()}


def _document(comparison: Comparison) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in dataclasses.asdict(comparison).items()}
