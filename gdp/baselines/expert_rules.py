"""How experts placed a model, as data (format: docs/formats.md): which modules go to which share of the devices."""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gdp.bounded_file import read_bounded
from gdp.cluster import MAX_DEVICES
from gdp.errors import InputError

MAX_FILE_BYTES = 2**22
"""The most bytes of an expert file that are read."""


class ExpertRule(BaseModel):
    """Ops of a module are on a device."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    module: Annotated[str, Field(max_length=1000)]
    """names at the beginning of the module path or scope; empty for all ops. The rule with most names wins."""
    share: Annotated[float, Field(ge=0, lt=1)]
    """where among the devices: of `n`, number `floor(share * n)`. Layer `i` of `L` is at `i / L`, so one file serves 2, 4 and 8 devices."""


class ExpertPlacement(BaseModel):
    """One way to place the model."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    devices: Annotated[list[Annotated[int, Field(ge=1, le=MAX_DEVICES)]], Field(min_length=1)] | None = None
    """the numbers of devices that it is meant for; any where left out."""
    rules: Annotated[list[ExpertRule], Field(min_length=1, max_length=10_000)]


class ExpertRules(BaseModel):
    """What an expert file holds."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)

    format: Annotated[Literal[1], Field(alias="schema")]
    source: Annotated[str, Field(min_length=1, max_length=2000)]
    """who placed the model so, and where that is written."""
    placements: Annotated[list[ExpertPlacement], Field(min_length=1, max_length=100)]
    """the first that is meant for a number of devices is the expert's choice."""


def read_expert_rules(path: Path) -> ExpertRules:
    """Reads an expert file. Raises `InputError` when it is missing or wrong."""
    data = read_bounded(path, what="the expert file", advice="name a JSON file as docs/formats.md describes it", max_bytes=MAX_FILE_BYTES)
    try:
        raw = json.loads(data, object_pairs_hook=_without_repetition)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the expert file {path} is not JSON: {error}; see docs/formats.md") from error
    try:
        return ExpertRules.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the top level"
        raise InputError(f"the expert file {path} is wrong at {place}: {first['msg']}; see docs/formats.md") from error


def _without_repetition(pairs: list[tuple[str, object]]) -> dict[str, object]:
    for place, (name, _) in enumerate(pairs):
        if any(name == other for other, _ in pairs[:place]):
            raise ValueError(f"the key {name!r} is there twice")
    return dict(pairs)
