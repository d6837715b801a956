"""What running a placed PyTorch program costs and gains on this machine.

    python benchmarks/runtime.py [--models NAMES] [--pairs 48] [--out benchmarks/results/runtime.json]

Overhead: the captured program as one piece on one core, in turn with the step as PyTorch users write it (`module(*inputs)`, or forward, backward and `optimizer.step()`), by
a thread pinned to the same core; both with the allocator's settings of a measuring process, without which page faults would be timed. Speed-up: the placement that local
search finds in the calibrated simulator, on two cores, in turn with the best single core; predicted beside measured. Where the simulator expects nothing of two cores, the
best placement that does use both is timed, so that it can be seen that one is right.
"""

import argparse
import dataclasses
import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from time import perf_counter

import numpy as np
import torch
from real_models import RealModel, real_models
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.single_device import single_devices
from gdp.baselines.starting_points import starting_points
from gdp.cli.report_data import environment
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.placement import Origin, Placement
from gdp.runtime.core_sets import cores_of
from gdp.runtime.exclusive import exclusively
from gdp.runtime.executor import Executor
from gdp.runtime.local import default_core_sets, local_cluster
from gdp.runtime.pieces import cut
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.restarting import ALLOCATOR
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import Comparison, Protocol, compare_times, in_turn
from gdp.runtime.values import program_values

RESULTS = Path(__file__).parent / "results" / "runtime.json"


class PinnedThread:
    """Runs steps on cores of its own, with as many of torch's threads."""

    def __init__(self, cores: Sequence[int]) -> None:
        self._steps: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._seconds: SimpleQueue[float] = SimpleQueue()
        threading.Thread(target=self._serve, args=(cores,), daemon=True).start()

    def seconds(self, step: Callable[[], object]) -> float:
        """Of one step."""
        self._steps.put(step)
        return self._seconds.get()

    def _serve(self, cores: Sequence[int]) -> None:
        os.sched_setaffinity(0, cores)
        torch.set_num_threads(len(cores))
        while True:
            step = self._steps.get()
            begin = perf_counter()
            step()
            self._seconds.put(perf_counter() - begin)


def overhead(model: RealModel, device: str, *, num_pairs: int) -> Comparison:
    """The executor's step over the plain one's."""
    program = model.captured.program
    flat = torch.utils._pytree.tree_leaves((model.inputs, {}))
    values = program_values(program, flat, generator=torch.Generator())
    results = [getattr(result, "name", result) for result in program.graph.output_node().args[0]]
    plain = PinnedThread(cores_of(device))
    protocol = Protocol(max_pairs=num_pairs, precision=0.0, clearly_slower=np.inf, max_time_s=np.inf)
    with exclusively(cores_of(device), ()), Executor([device]) as executor:
        loaded = executor.load(cut(program, {}), values=values, homes={}, results=results)
        times = in_turn(lambda: executor.step(loaded).step_time_s, lambda: plain.seconds(model.plain_step), protocol)
    return compare_times(*times)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gain:
    """What two cores are worth."""

    predicted: float
    measured: Comparison
    num_ops_away: int
    """that are on the core with fewer ops."""
    expected_one_device: bool
    """whether the simulator found nothing better than one core."""


def gain(model: RealModel, cluster: Cluster, *, num_pairs: int) -> Gain:
    """Profiles, searches and times."""
    with PyTorchRuntime(model.captured.program, model.inputs) as runtime:
        graph = model.captured.graph.with_measured_time(runtime.profile(model.captured.graph, cluster))
        simulator = Simulator(dispatch="program_order")
        alone = single_devices(graph, cluster)
        alone_s = simulator.batch(graph, cluster, alone).step_time_s
        best = int(alone_s.argmin())
        found = LocalSearch(runtime=simulator, evaluations=2000, seed=0)(graph, cluster).device
        found_s = float(simulator.batch(graph, cluster, found[np.newaxis]).step_time_s[0])
        expected_one_device = bool((found == found[0]).all() or found_s > 0.97 * alone_s[best])
        if (found == found[0]).all():
            found, found_s = best_on_two(graph, cluster, simulator)
        single = Placement(device=alone[best].copy(), origin=Origin(placer="single-device"))
        candidate = Placement(device=found, origin=Origin(placer="local-search", seed=0))
        measured = runtime.compare(graph, cluster, candidate, single, num_pairs=num_pairs)
    assert measured is not None, "a placement did not run"
    return Gain(
        predicted=float(alone_s[best]) / found_s,
        measured=measured,
        num_ops_away=int(np.bincount(found, minlength=cluster.num_devices).min()),
        expected_one_device=expected_one_device,
    )


def best_on_two(graph: Graph, cluster: Cluster, simulator: Simulator) -> tuple[np.ndarray, float]:
    """Of the simple placements that use more than one device, the one that is predicted to be fastest."""
    rows = [row for row in starting_points(graph, cluster, num_partitions=4, seed=0) if not (row == row[0]).all()]
    seconds = simulator.batch(graph, cluster, np.stack(rows)).step_time_s
    return rows[int(seconds.argmin())], float(seconds.min())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(real_models()), choices=list(real_models()))
    parser.add_argument("--pairs", type=int, default=48)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if not ALLOCATOR.items() <= os.environ.items():  # glibc reads them when a process starts
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})
    console = Console(width=150)
    cluster = local_cluster(default_core_sets()[:2])
    table = Table()
    for column in ("model", "ops", "plain step ms", "overhead", "two cores over one, predicted", "measured", "said"):
        table.add_column(column, justify="left" if column in ("model", "said") else "right")
    rows = []
    for name in options.models:
        console.print(f"{name} ...")
        model = real_models()[name]()
        cost = overhead(model, cluster.devices[0].name, num_pairs=options.pairs)
        worth = gain(model, cluster, num_pairs=options.pairs)
        speed_up = worth.measured.speed_up
        table.add_row(
            name,
            str(model.captured.graph.num_ops),
            f"{cost.incumbent_s * 1e3:.1f}",
            f"{cost.ratio - 1:+.1%} [{cost.low - 1:+.1%}, {cost.high - 1:+.1%}]",
            f"{worth.predicted:.2f}",
            f"{speed_up.median:.2f} [{speed_up.low:.2f}, {speed_up.high:.2f}]",
            "one device is enough" if worth.expected_one_device else f"{worth.num_ops_away} ops beside the others",
        )
        rows.append({"model": name, "branches": model.branches, "overhead": dataclasses.asdict(cost), "gain": dataclasses.asdict(worth)})
    console.print(table)
    write_text(options.out, json.dumps({"environment": environment(), "models": rows}, indent=1) + "\n")
    console.print(f"wrote {options.out}", markup=False)


if __name__ == "__main__":
    main()
