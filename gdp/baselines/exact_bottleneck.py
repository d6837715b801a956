"""The least time of the busiest device or channel, exactly, as an integer program for graphs of up to a few hundred units (HiGHS).

    min T   subject to   sum_d x_ud = 1,   sum_u w_ud x_ud <= T and sum_u m_u x_ud <= M_d for every device,   sum of transfer seconds * z <= T for every channel,
    sum_s z_tsd >= x_cd - x_pd   and   z_tsd <= x_ps    for every tensor t from p, every consumer c, and all pairs of devices s, d,

with x in {0, 1}: the max-load program of Tarnawski et al. (NeurIPS 2020, section 4.2) on the simulator's machine, where a tensor is sent once to each device over that pair's channel, and
transfers occupy channels, not devices. The bottleneck does not depend on the order of execution. It depends on memory, of which the program knows only parameters, and which
units fit on which devices; so its bound holds for every placement, and when its best placement runs, that one is the optimum.
"""

import dataclasses

import highspy
import numpy as np
from jaxtyping import Int32

from gdp.baselines.bounds import SAFETY, lower_bound
from gdp.baselines.indivisible import indivisible
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class ExactResult:
    """What a solver proved within its time."""

    bound_s: float
    """no placement that can run takes less; infinite when none can run."""
    program_s: float
    """the objective of `device` as the program counts it; infinite when the solver found none."""
    device: Int32[np.ndarray, " ops"] | None
    """the best placement found. Its activations may not fit: only a runtime can tell."""

    @property
    def gap(self) -> float:
        """How far the placement may be from the optimum, as a share of it: `(program_s - bound_s) / program_s`."""
        return max(0.0, 1.0 - self.bound_s / self.program_s) if 0 < self.program_s < np.inf else 0.0 if self.program_s == 0 else np.inf


def exact_bottleneck(graph: Graph, cluster: Cluster, *, time_limit_s: float, relative_gap: float = 1e-6, num_threads: int = 1) -> ExactResult:
    """The optimum of the program above or, when the time runs out or the gap is reached, the proven bound and the best placement so far.

    Raises `InputError` when the time limit is not positive, or when times overflow.
    """
    if not 0 < time_limit_s < np.inf:
        raise InputError(f"the solver is given {time_limit_s} seconds; it needs a positive, finite time")
    combined = lower_bound(graph, cluster, objective="bottleneck")
    if np.isinf(combined.value_s):
        return ExactResult(bound_s=np.inf, program_s=np.inf, device=None)
    program = _program(graph, cluster, known_s=combined.value_s)
    solver = highspy.Highs()
    solver.silent()
    solver.setOptionValue("time_limit", time_limit_s)
    solver.setOptionValue("threads", num_threads)
    solver.setOptionValue("mip_rel_gap", relative_gap)
    solver.setOptionValue("mip_abs_gap", 0.0)
    solver.passModel(program.lp)
    solver.run()
    status, info = solver.getModelStatus(), solver.getInfo()
    if status == highspy.HighsModelStatus.kInfeasible:
        return ExactResult(bound_s=np.inf, program_s=np.inf, device=None)
    proven_s = float(info.mip_dual_bound) * program.scale_s * (1 - _TOLERANCE)
    bound_s = max(combined.value_s, proven_s * (1 - SAFETY)) if np.isfinite(proven_s) else combined.value_s
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return ExactResult(bound_s=bound_s, program_s=np.inf, device=None)
    values = np.array(solver.getSolution().col_value)
    placed = values[: program.num_placements].reshape(-1, cluster.num_devices).argmax(axis=1)
    units = indivisible(graph, cluster)
    return ExactResult(bound_s=bound_s, program_s=float(info.objective_function_value) * program.scale_s, device=placed[units.unit_of_op].astype(np.int32))


_TOLERANCE = 1e-5
"""The solver may break a constraint by 1e-6 and call a fraction of 1e-6 an integer; its bound is taken for this share less."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Program:
    lp: highspy.HighsLp
    num_placements: int
    scale_s: float


def _program(graph: Graph, cluster: Cluster, *, known_s: float) -> _Program:
    """Columns: x by unit and device, then z by tensor and pair, then T. Seconds are scaled so that T is about one."""
    units = indivisible(graph, cluster)
    num_devices = cluster.num_devices
    num_placements = units.num_units * num_devices
    scale_s = known_s or 1.0
    memory_scale = float(cluster.memory_bytes.max()) or 1.0
    unit_s = units.time_s[:, units.class_of_device] / scale_s
    fits = units.fits[:, units.class_of_device]
    edge = np.unique(np.stack([graph.edge_tensor, units.unit_of_op[graph.edge_consumer]], axis=1), axis=0)
    producer = units.unit_of_op[graph.tensor_producer]
    edge = edge[producer[edge[:, 0]] != edge[:, 1]]
    pairs = [(s, d) for s in range(num_devices) for d in range(num_devices) if s != d]
    sent = np.unique(edge[:, 0])
    column_of = {(int(tensor), *pair): num_placements + i * len(pairs) + j for i, tensor in enumerate(sent) for j, pair in enumerate(pairs)}
    time_column = num_placements + len(column_of)
    rows: list[tuple[list[int], list[float], float, float]] = []
    for unit in range(units.num_units):
        rows.append((list(range(unit * num_devices, (unit + 1) * num_devices)), [1.0] * num_devices, 1.0, 1.0))
    for d in range(num_devices):
        columns = list(range(d, num_placements, num_devices))
        rows.append(([*columns, time_column], [*unit_s[:, d].tolist(), -1.0], -highspy.kHighsInf, 0.0))
        weights = (units.param_bytes / memory_scale).tolist()
        rows.append((columns, weights, -highspy.kHighsInf, float(cluster.memory_bytes[d]) / memory_scale))
    for channel in range(cluster.num_channels):
        there = [(tensor, s, d) for tensor, s, d in column_of if cluster.channel[s, d] == channel]
        transfer_s = [cluster.latency_s[s, d] + graph.tensor_bytes[t] / cluster.bandwidth_bytes_per_s[s, d] for t, s, d in there]
        rows.append(([*(column_of[key] for key in there), time_column], [*(float(each) / scale_s for each in transfer_s), -1.0], -highspy.kHighsInf, 0.0))
    for tensor, s, d in column_of:
        rows.append(([column_of[tensor, s, d], int(producer[tensor]) * num_devices + s], [1.0, -1.0], -highspy.kHighsInf, 0.0))
    for tensor, consumer in edge.tolist():
        for d in range(num_devices):
            arrivals = [column_of[tensor, s, d] for s in range(num_devices) if s != d]
            ends = [int(producer[tensor]) * num_devices + d, consumer * num_devices + d]
            rows.append(([*arrivals, *ends], [*[1.0] * len(arrivals), 1.0, -1.0], 0.0, highspy.kHighsInf))
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = time_column + 1, len(rows)
    lp.col_cost_ = np.append(np.zeros(time_column), 1.0)
    lp.col_lower_ = np.zeros(time_column + 1)
    lp.col_upper_ = np.concatenate([fits.astype(np.float64).ravel(), np.ones(len(column_of)), [highspy.kHighsInf]])
    lp.row_lower_, lp.row_upper_ = np.array([row[2] for row in rows]), np.array([row[3] for row in rows])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_ = np.concatenate([[0], np.cumsum([len(row[0]) for row in rows])]).astype(np.int32)
    lp.a_matrix_.index_ = np.concatenate([row[0] for row in rows]).astype(np.int32)
    lp.a_matrix_.value_ = np.concatenate([row[1] for row in rows])
    lp.integrality_ = [highspy.HighsVarType.kInteger] * num_placements + [highspy.HighsVarType.kContinuous] * (len(column_of) + 1)
    return _Program(lp=lp, num_placements=num_placements, scale_s=scale_s)
