"""Where the simulator's time goes, in nanoseconds per op.

The kernel's parts can be run alone, so each one's time is a difference: `begin` (the check of the placement, the copy of the plan), `routes` (what goes where), and the rest, the
events. Two more differences say what the hardware adds: the same placement over and over, whose branches the processor learns when the graph is small, against another in each
row; and graphs that outgrow the caches against one that does not. On the cluster of `simulator.py`. All are taken in turn, in seconds of this thread, the fastest counts.
"""

import time
from collections.abc import Callable

import numba
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.simulator import bert_encoder, bert_placements, four_on_one_bus, layered_graph, random_placements
from gdp.graph import Graph
from gdp.runtime.event_kernel import begin, is_placement
from gdp.runtime.event_queue import READY_ORDER
from gdp.runtime.event_routes import route
from gdp.runtime.plan import plan_of
from gdp.runtime.scratch import lent_scratch
from gdp.runtime.simulator import Simulator

SECONDS_PER_CASE = 8.0
OPS_PER_BATCH = 40_000


@numba.njit(nogil=True, error_model="numpy", _nrt=False)  # type: ignore[untyped-decorator]
def _run_parts(device, with_routes, priority, plan, scratch):  # type: ignore[no-untyped-def]
    for row in range(len(device)):
        if is_placement(device[row], plan):
            begin(device[row], READY_ORDER, priority, plan, scratch)
            if with_routes:
                route(0, len(scratch.device_of), 0, 0, 0, plan, scratch)


def least_s_per_op(graph: Graph, device: np.ndarray) -> dict[str, float]:
    """Seconds per op of `begin`, of `begin` and `routes`, and of `all`."""
    cluster = four_on_one_bus()
    plan, priority, simulator = plan_of(graph, cluster), np.zeros(0), Simulator()
    with lent_scratch(plan) as scratch:
        runs: dict[str, Callable[[], object]] = {
            "begin": lambda: _run_parts(device, False, priority, plan, scratch),
            "begin and routes": lambda: _run_parts(device, True, priority, plan, scratch),
            "all": lambda: simulator.batch(graph, cluster, device),
        }
        least = dict.fromkeys(runs, np.inf)
        for run in runs.values():
            run()
        stop = time.perf_counter() + SECONDS_PER_CASE
        while time.perf_counter() < stop:
            for name, run in runs.items():
                start = time.thread_time()
                run()
                least[name] = min(least[name], time.thread_time() - start)
    return {name: seconds / device.size for name, seconds in least.items()}


def main() -> None:
    """Measures every case and prints the table."""
    cases: dict[str, tuple[Graph, np.ndarray]] = {}
    for num_ops in (783, 10_000, 500_000):
        graph = layered_graph(np.random.default_rng(num_ops), num_ops=num_ops)
        device = random_placements(np.random.default_rng(0), graph, batch=max(1, OPS_PER_BATCH // num_ops))
        cases[f"layered {num_ops:,}, random"] = graph, device
        if num_ops < 1_000:
            cases[f"layered {num_ops:,}, one random placement again and again"] = graph, np.repeat(device[:1], len(device), axis=0)
            cases[f"layered {num_ops:,}, one device"] = graph, np.zeros_like(device)
    bert = bert_encoder()
    for name, device in bert_placements(bert, four_on_one_bus(), batch=OPS_PER_BATCH // bert.num_ops).items():
        cases[f"BERT encoder 783, {name}"] = bert, device
    table = Table("ns per op", "begin", "routes", "events", "all")
    for name, (graph, device) in cases.items():
        seconds = least_s_per_op(graph, device)
        parts = (
            seconds["begin"],
            seconds["begin and routes"] - seconds["begin"],
            seconds["all"] - seconds["begin and routes"],
            seconds["all"],
        )
        table.add_row(name, *(f"{part * 1e9:.1f}" for part in parts))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
