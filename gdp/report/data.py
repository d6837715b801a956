"""What a report shows. Records only; the drawing is in the other files of this folder."""

import dataclasses
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float64, Int64

from gdp.candidate import Candidate
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph
from gdp.measurement import Measurement, Objective, Status


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """How one search went on."""

    name: str
    evaluations: Int64[np.ndarray, " points"]
    """placements evaluated so far, ascending."""
    best_s: Float64[np.ndarray, " points"]
    """the best objective so far; infinite before the first placement that can run."""
    mean_sampled_s: Float64[np.ndarray, " points"]
    """mean objective of the placements just sampled that can run; NaN where there is none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Level:
    """A horizontal line beside the curves: what a simple method reaches."""

    name: str
    seconds: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probe:
    """A placement, not among the candidates, whose step time was both predicted and measured."""

    name: str
    predicted_s: float
    measured_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interval:
    """A time in seconds, or a ratio of times, with its 95 % confidence interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Section:
    """One model on one cluster."""

    title: str
    graph: Graph
    cluster: Cluster
    num_groups: int
    """how many decisions a placement of this graph is, after coarsening."""
    objective: Objective
    candidates: tuple[Candidate, ...]
    best: str
    """name of the candidate that was chosen."""
    reference: str
    """name of the best candidate on one device, which the chosen one is compared with; may be the chosen one itself."""
    verdict: str
    """the result in one sentence; `gdp.learn.finalists.verdict` writes one."""
    speed_up: Interval | None = None
    """how many times as fast as `reference` the chosen placement is, from runs in turn; `None` where their separate times are all there is."""
    curves: tuple[Curve, ...] = ()
    levels: tuple[Level, ...] = ()
    probes: tuple[Probe, ...] = ()
    notes: tuple[str, ...] = ()
    """sentences that the reader must know: fallbacks taken, noise, limits."""

    def __post_init__(self) -> None:
        names = [candidate.name for candidate in self.candidates]
        if len(set(names)) != len(names):
            raise InputError(f"the report section {self.title!r} has two candidates of one name among {names}; give each its own")
        for role, name in (("best", self.best), ("reference", self.reference)):
            if name not in names:
                raise InputError(f"the {role} of the report section {self.title!r} is {name!r}; the candidates are {', '.join(names)}")
        for candidate in self.candidates:
            placed = len(candidate.placement.device)
            if placed != self.graph.num_ops:
                raise InputError(
                    f"candidate {candidate.name!r} of the report section {self.title!r} places {placed} ops; the graph has {self.graph.num_ops}"
                )

    def candidate(self, name: str) -> Candidate:
        return next(candidate for candidate in self.candidates if candidate.name == name)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ReportData:
    """One page."""

    title: str
    sections: tuple[Section, ...]
    environment: Mapping[str, str]
    """what the run can be repeated with: versions, commit, machine, command, seed, date."""


def interval(measurement: Measurement | None, objective: Objective) -> Interval | None:
    """The objective of a measurement; None where there is none or the placement cannot run."""
    if measurement is None or measurement.status != Status.OK:
        return None
    value = measurement.objective_s(objective)
    if objective == "step_time":
        return Interval(value=value, low=measurement.step_time_low_s, high=measurement.step_time_high_s)
    return Interval(value=value, low=value, high=value)
