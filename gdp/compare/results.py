"""What a comparison found, and its file.

The file may be one that somebody else wrote: it is checked field by field.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gdp.atomic_file import write_text
from gdp.bounded_file import read_bounded
from gdp.errors import InputError
from gdp.measurement import Objective
from gdp.plain_json import parse_json
from gdp.runtime.verdict import Dispatch

MAX_FILE_BYTES = 2**27
_ROUNDING = 1e-6
"""Relative, by which a bound out of a linear program may be off."""

Name = Annotated[str, Field(min_length=1, max_length=4096)]
Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e30)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Settings(_Record):
    """What every row of a comparison has in common."""

    policy: Name
    samples: Count
    """samples of `zero-shot`."""
    budget: Count
    """evaluations of every other anytime placer."""
    objective: Objective
    dispatch: Dispatch | None
    """`None`: as the framework of each graph has it."""


class Cell(_Record):
    """One graph on one cluster, and what holds for every placement of it."""

    workload: Name
    cluster: Name
    graph_sha256: Digest
    cluster_sha256: Digest
    """names stay where a file changes; these do not."""
    num_ops: Count
    bound_s: Seconds | None
    """the best lower bound; `None` when it proves that nothing can run."""
    bound: Name
    """which one."""
    serial_s: Seconds
    """all ops one after the other on the device that is fastest in this."""
    longest_path_s: Seconds
    """of ops, each on its fastest device, without transfers."""

    @property
    def key(self) -> tuple[str, str]:
        return self.workload, self.cluster


class Row(_Record):
    """One placer's answer in one cell."""

    workload: Name
    cluster: Name
    placer: Name
    seed: Count
    status: Literal["ok", "out_of_memory", "invalid", "failed", "timed_out", "unknown"]
    """`unknown`: the placer has nothing to say of this workload."""
    detail: str
    """why it does not run; empty where it does."""
    seconds: Seconds | None
    """the objective; `None` where the placement does not run."""
    evaluations: Count
    """placements that the placer had simulated, as the simulator counted them."""
    wall_s: Seconds
    """for the placer to answer, its evaluations among it."""
    devices_used: Count
    transfers: Count
    transferred_bytes: Count
    busy_share: Annotated[float, Field(ge=0, le=1.0 + 1e-9)]
    """seconds that devices run over the step time of all devices; 0 where the placement does not run."""
    improved_at: list[Count]
    """the evaluations, counted from 1, that were better than all before."""
    best_s: list[Seconds]
    """the objective of each of these."""
    revision: Name | None = None
    """of the policy, as placements have it; `None` where the placer has none."""

    @model_validator(mode="after")
    def _one_curve(self) -> "Row":
        if len(self.improved_at) != len(self.best_s):
            raise ValueError(
                f"improved_at has {len(self.improved_at)} values and best_s {len(self.best_s)}; there is one of each an improvement"
            )
        earlier = zip([0, *self.improved_at], [float("inf"), *self.best_s], self.improved_at, self.best_s, strict=False)
        if not all(at < later and best_s > better_s for at, best_s, later, better_s in earlier):
            raise ValueError("improved_at must count up from 1 and best_s go down with every improvement")
        if self.improved_at and self.improved_at[-1] > self.evaluations:
            raise ValueError(f"improved_at tells of evaluation {self.improved_at[-1]}, but there were {self.evaluations}")
        if (self.status == "ok") != (self.seconds is not None):
            raise ValueError(f"the status is {self.status} and seconds {self.seconds}; what runs takes seconds, and nothing else does")
        return self

    @property
    def cell(self) -> tuple[str, str]:
        return self.workload, self.cluster

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.workload, self.cluster, self.placer, self.seed


def policy_revisions(rows: Iterable[Row]) -> list[str]:
    """Of all policies that gave these answers, each once."""
    return sorted({row.revision for row in rows if row.revision is not None})


def check_bound(row: Row, cell: Cell) -> None:
    """Raises `ValueError` when a row is faster than can be: then the bound is none, or the simulator is wrong."""
    if row.seconds is not None and cell.bound_s is not None and row.seconds < cell.bound_s * (1 - _ROUNDING):
        raise ValueError(f"the row {row.key} takes {row.seconds} s, less than the lower bound, {cell.bound_s} s")


class Results(BaseModel):
    """All of it. Rows and cells come in any order."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal[3] = 3
    settings: Settings
    environment: dict[str, str]
    cells: list[Cell]
    rows: list[Row]

    @model_validator(mode="after")
    def _each_once(self) -> "Results":
        both: tuple[tuple[str, Sequence[Cell | Row]], ...] = (("cell", self.cells), ("row", self.rows))
        for what, records in both:
            key, times = Counter(record.key for record in records).most_common(1)[0] if records else ((), 1)
            if times > 1:
                raise ValueError(f"the {what} {key} is there twice")
        cells = {cell.key: cell for cell in self.cells}
        for row in self.rows:
            if row.cell in cells:
                check_bound(row, cells[row.cell])
        return self


def continued_environment(now: dict[str, str], before: dict[str, str]) -> dict[str, str]:
    """That of the command that adds rows; under `earlier rows`, the versions and dates of those that found the rows before, where the version was another."""
    earlier = [before["earlier rows"]] if "earlier rows" in before else []
    if "gdp" in before and before["gdp"] != now["gdp"]:
        earlier.append(f"{before['gdp']}, until {before.get('date', 'an unknown date')}")
    return {**now, "earlier rows": "; ".join(earlier)} if earlier else dict(now)


def write_results(path: Path, results: Results) -> None:
    """As JSON, one line a record."""
    head = {"format": results.format, "settings": results.settings.model_dump(), "environment": results.environment}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for name, records in (("cells", results.cells), ("rows", results.rows)):
        lines.append(f'"{name}": [\n' + ",\n".join(json.dumps(record.model_dump(), allow_nan=False) for record in records) + "\n]")
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read_results(path: Path) -> Results:
    """Raises `InputError` for a file that is missing, too large, or no results of `gdp compare`."""
    data = read_bounded(path, what="the comparison", advice="`gdp compare --out` writes one", max_bytes=MAX_FILE_BYTES)
    try:
        return Results.model_validate(parse_json(data))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the top level"
        raise InputError(f"{path} is no file of `gdp compare`: at {place}: {first['msg']}; name another") from error
    except ValueError as error:
        raise InputError(f"{path} is no file of `gdp compare`: {error}; name another") from error
