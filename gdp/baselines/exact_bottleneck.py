"""The least time of the busiest device or channel, exactly, as an integer program for graphs of up to a few hundred units (HiGHS).

    min T   subject to   sum_d x_ud = 1,   sum_u w_ud x_ud <= T   and   sum_u m_u x_ud <= M_d   for every device,   sum of transfer seconds * z <= T for every channel,
            sum_s z_tsd >= x_cd - x_pd   and   z_tsd <= x_ps   for every tensor t from p, every consumer c, and all pairs of devices s, d,

with x in {0, 1}: the max-load program of Tarnawski et al. (NeurIPS 2020, section 4.2) on the simulator's machine, where a tensor is sent once to each device over that
pair's channel, and transfers occupy channels, not devices. The bottleneck does not depend on the order of execution. It depends on memory, of which the program knows only
parameters, and which units fit on which devices; so its bound holds for every placement, and when its best placement runs, that one is the optimum.
"""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Int32, Int64

from gdp.baselines.bounds import SAFETY, lower_bound
from gdp.baselines.indivisible import Indivisible, indivisible
from gdp.baselines.integer_program import IntegerProgram, Solved
from gdp.cluster import Cluster
from gdp.graph import Graph

_RANGE = 1e-6
"""Seconds are counted in the best known bound, but for numbers that the solver can bear not in less than this share of the longest unit's time."""

_PROVEN = 3e-5
"""Relative: a bound this near to the objective proves it, as far as solvers in floating point, and rounding, can tell."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ExactResult:
    """What a solver proved within its time."""

    bound_s: float
    """no placement that can run takes less; infinite when none can run."""
    program_s: float
    """the objective of `device` as the program counts it; infinite when the solver found none."""
    device: Int32[np.ndarray, " ops"] | None
    """the best placement found. Its activations may not fit, and its order may not be what the devices would do: only a runtime can tell."""

    def gap(self, measured_s: float) -> float:
        """How far a placement of this time may be from the optimum, as a share of its time."""
        return max(0.0, 1.0 - self.bound_s / measured_s) if 0 < measured_s < np.inf else 0.0 if measured_s == 0 else np.inf

    @property
    def status(self) -> Literal["optimal", "not proven", "infeasible", "nothing found"]:
        """Of the program, in a word. `not proven` is what the time limit leaves; `nothing found` too, or a horizon that no schedule undercuts."""
        if self.device is None:
            return "infeasible" if np.isinf(self.bound_s) else "nothing found"
        return "optimal" if self.program_s - self.bound_s <= _PROVEN * self.program_s else "not proven"


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PlacementProgram:
    """The program above, for others to build on."""

    program: IntegerProgram
    scale_s: float
    """seconds of one unit of T."""
    time: int
    """the column of T."""
    place: Int64[np.ndarray, "units devices"]
    """the columns of x."""


def exact_bottleneck(
    graph: Graph, cluster: Cluster, *, time_limit_s: float, relative_gap: float = 1e-6, num_threads: int = 1
) -> ExactResult:
    """The optimum of the program above or, when the time runs out or the gap is reached, the proven bound and the best placement so far.

    Raises `InputError` when the time limit is not positive, or when times overflow.
    """
    known = lower_bound(graph, cluster, objective="bottleneck")
    if np.isinf(known.value_s):
        return ExactResult(bound_s=np.inf, program_s=np.inf, device=None)
    units = indivisible(graph, cluster)
    scale_s = max(known.value_s, _RANGE * float(units.time_s.max())) or 1.0
    built = placement_program(graph, cluster, units, known_s=known.value_s, scale_s=scale_s)
    solved = built.program.minimise(built.time, time_limit_s=time_limit_s, relative_gap=relative_gap, num_threads=num_threads)
    return exact_result(units, built, solved, known_s=known.value_s)


def exact_result(units: Indivisible, built: PlacementProgram, solved: Solved, *, known_s: float) -> ExactResult:
    """The solver's answer in seconds and devices, with `known_s`, a bound proven otherwise."""
    bound_s = max(known_s, solved.bound * built.scale_s * (1 - SAFETY))
    if solved.columns is None:
        return ExactResult(bound_s=bound_s, program_s=np.inf, device=None)
    device = solved.columns[built.place].argmax(axis=1)[units.unit_of_op].astype(np.int32)
    return ExactResult(bound_s=bound_s, program_s=solved.value * built.scale_s, device=device)


def placement_program(graph: Graph, cluster: Cluster, units: Indivisible, *, known_s: float, scale_s: float) -> PlacementProgram:
    """The program above; `known_s` is a lower bound of T."""
    program, num_devices = IntegerProgram(), cluster.num_devices
    time = program.column(known_s / scale_s * (1 - SAFETY), np.inf)
    fits = units.fits[:, units.class_of_device]
    place = np.array([[program.column(0.0, float(fit), integer=True) for fit in row] for row in fits.tolist()], np.int64)
    for columns in place.tolist():
        program.row(columns, [1.0] * num_devices, low=1.0, high=1.0)
    unit_s = units.time_s[:, units.class_of_device] / scale_s
    memory_scale = float(cluster.memory_bytes.max()) or 1.0
    for d in range(num_devices):
        program.row([*place[:, d].tolist(), time], [*unit_s[:, d].tolist(), -1.0], high=0.0)
        program.row(place[:, d].tolist(), (units.param_bytes / memory_scale).tolist(), high=float(cluster.memory_bytes[d]) / memory_scale)
    _transfers(program, graph, cluster, units, place, time, scale_s)
    return PlacementProgram(program=program, scale_s=scale_s, time=time, place=place)


def _transfers(
    program: IntegerProgram,
    graph: Graph,
    cluster: Cluster,
    units: Indivisible,
    place: Int64[np.ndarray, "units devices"],
    time: int,
    scale_s: float,
) -> None:
    """The columns z and their rows."""
    producer = units.unit_of_op[graph.tensor_producer]
    used = np.unique(np.stack([graph.edge_tensor, units.unit_of_op[graph.edge_consumer]], axis=1), axis=0)
    used = used[producer[used[:, 0]] != used[:, 1]]
    devices = range(cluster.num_devices)
    sent: dict[tuple[int, int], list[int]] = {}  # columns of z by tensor and destination
    load: list[list[tuple[int, float]]] = [[] for _ in cluster.channel_name]
    for tensor in np.unique(used[:, 0]).tolist():
        for d in devices:
            sent[tensor, d] = []
            for s in devices:
                if s == d:
                    continue
                column = program.column(0.0, 1.0)
                sent[tensor, d].append(column)
                program.row([column, int(place[producer[tensor], s])], [1.0, -1.0], high=0.0)
                if cluster.channel[s, d] != Cluster.NO_CHANNEL:
                    transfer_s = float(cluster.latency_s[s, d] + graph.tensor_bytes[tensor] / cluster.bandwidth_bytes_per_s[s, d])
                    load[cluster.channel[s, d]].append((column, transfer_s / scale_s))
    for tensor, consumer in used.tolist():
        for d in devices:
            arrivals = sent[tensor, d]
            ends = [int(place[producer[tensor], d]), int(place[consumer, d])]
            program.row([*arrivals, *ends], [*[1.0] * len(arrivals), 1.0, -1.0], low=0.0)
    for there in load:
        program.row([*(column for column, _ in there), time], [*(seconds for _, seconds in there), -1.0], high=0.0)
