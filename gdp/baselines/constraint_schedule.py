"""The least step time over all placements and all orders of execution, by constraint programming (CP-SAT of OR-tools, an optional package).

Each op is an interval that is on exactly one of the devices, each tensor an interval on the channel of every pair of devices that it is sent over; intervals on one
device, and on one channel, do not overlap. A consumer starts when its inputs have ended or arrived; parameters fit into memory; heads and tails (`longest_path.py`) bound
every start and end. This is the simulator's step but for two things, both relaxations: devices and channels take ops and transfers in any order and may wait, where the
simulator's follow a dispatch rule and the order of requests; and of memory only parameters, and which units fit where, are known. So the bound holds for every
dispatch rule, and is the optimum where some simulated placement reaches it.

Seconds are counted in whole millionths of the horizon, rounded down, so that the solver's exact arithmetic proves a bound; rounding costs it less than a millionth for each op and
transfer on the critical path.
"""

import numpy as np

from gdp.baselines.bounds import SAFETY, lower_bound
from gdp.baselines.constraint_model import Answer, Problem
from gdp.baselines.constraint_process import refuse_without_ortools, solve_apart
from gdp.baselines.exact_bottleneck import ExactResult
from gdp.baselines.indivisible import indivisible
from gdp.baselines.longest_path import paths
from gdp.cluster import Cluster
from gdp.errors import InputError
from gdp.graph import Graph

_TICKS = 1_000_000


def constraint_schedule(
    graph: Graph, cluster: Cluster, *, horizon_s: float, time_limit_s: float, seed: int = 0, num_threads: int = 1
) -> ExactResult:
    """The optimum of the model above or, when the time runs out, the proven bound and the best placement so far.

    Args:
        graph: of up to about a hundred ops.
        cluster: of a few devices.
        horizon_s: the simulated step time of some placement that runs: only schedules that are no longer are looked for.
        time_limit_s: seconds for the solver, positive.
        seed: of the solver.
        num_threads: for the solver.

    Raises:
        InputError: when OR-tools is not installed, the horizon or the time limit is not positive and finite, the horizon is shorter than a lower bound, or times overflow.
    """
    refuse_without_ortools()
    known = lower_bound(graph, cluster)
    if np.isinf(known.value_s):
        return ExactResult(bound_s=np.inf, program_s=np.inf, device=None)
    if not max(known.value_s, 1e-300) <= horizon_s < np.inf or not 0 < time_limit_s < np.inf:
        raise InputError(
            f"the horizon of the schedule is {horizon_s} s, the solver's time {time_limit_s} s; both must be positive, and the horizon the step time of a "
            f"placement that runs, so at least {known.value_s} s"
        )
    problem = _problem(graph, cluster, known.value_s, horizon_s, time_limit_s, seed, num_threads)
    answer: Answer = solve_apart("gdp.baselines.constraint_model", problem, time_limit_s=time_limit_s)
    if answer["status"] == "INFEASIBLE":  # nothing is shorter than the horizon
        return ExactResult(bound_s=horizon_s * (1 - SAFETY), program_s=np.inf, device=None)
    if answer["status"] == "MODEL_INVALID":
        raise AssertionError("CP-SAT calls the model invalid")
    bound_s = min(horizon_s, max(known.value_s, answer["bound_ticks"] / _TICKS * horizon_s * (1 - SAFETY)))
    if not answer["unit_device"]:
        return ExactResult(bound_s=bound_s, program_s=np.inf, device=None)
    device = np.array(answer["unit_device"], np.int32)[indivisible(graph, cluster).unit_of_op]
    return ExactResult(bound_s=bound_s, program_s=answer["value_ticks"] / _TICKS * horizon_s, device=device)


def _problem(graph: Graph, cluster: Cluster, known_s: float, horizon_s: float, time_limit_s: float, seed: int, num_threads: int) -> Problem:
    units = indivisible(graph, cluster)
    found = paths(graph, cluster, units)
    last = _TICKS + 1

    def ticks(seconds: np.ndarray) -> np.ndarray:
        return np.asarray(np.minimum(np.where(np.isfinite(seconds), seconds, np.inf) / horizon_s * _TICKS, last).astype(np.int64))

    consumers: dict[int, set[int]] = {}
    for tensor, op in zip(graph.edge_tensor.tolist(), graph.edge_consumer.tolist(), strict=True):
        consumers.setdefault(tensor, set()).add(op)
    used = sorted(consumers)
    distance = np.where(np.eye(cluster.num_devices, dtype=bool), 1.0, cluster.bandwidth_bytes_per_s)
    transfer_s = cluster.latency_s + graph.tensor_bytes[used, np.newaxis, np.newaxis] / distance
    return Problem(
        num_ticks=last,
        known_ticks=int(known_s / horizon_s * _TICKS),
        unit_of_op=units.unit_of_op.tolist(),
        op_ticks=ticks(units.op_time_s[:, units.class_of_device]).tolist(),
        head_ticks=ticks(found.head_s).tolist(),
        tail_ticks=ticks(found.tail_s).tolist(),
        fits=units.fits[:, units.class_of_device].tolist(),
        param_bytes=units.param_bytes.tolist(),
        memory_bytes=cluster.memory_bytes.tolist(),
        uses=[(int(graph.tensor_producer[tensor]), sorted(consumers[tensor])) for tensor in used],
        transfer_ticks=ticks(transfer_s).tolist(),
        channel=cluster.channel.tolist(),
        num_channels=cluster.num_channels,
        time_limit_s=time_limit_s,
        seed=seed,
        num_threads=num_threads,
    )
