"""Bounds and exact solvers against brute force on many small random cases: how many, the largest deviation, and that none is on the wrong side.

A bound must not be above the least of all placements under all dispatch rules, a search not below it, and an exact solver must give it. Writes
`benchmarks/results/agreement.json`; exit code 1 when a case is wrong.
"""

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.bounds import lower_bounds
from gdp.baselines.exact_bottleneck import exact_bottleneck
from gdp.baselines.exact_schedule import exact_schedule
from gdp.baselines.tarnawski.annealing import annealed_max_load
from gdp.baselines.tarnawski.contiguous_dp import contiguous_optimum
from gdp.baselines.tarnawski.cost import ON_CPU, latency_s, max_load_s
from gdp.baselines.tarnawski.latency_ip import least_latency
from gdp.baselines.tarnawski.throughput_ip import least_max_load
from gdp.capture.tarnawski_instance import TarnawskiInstance
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective
from gdp.runtime.simulator import Simulator

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.strategies import seeded_cluster, seeded_graph

RESULTS = Path(__file__).parent / "results" / "agreement.json"
TOLERANCE = 3e-5
"""Relative, of a solver's optimum: what is taken off for its tolerance."""


@dataclasses.dataclass(kw_only=True)
class Agreement:
    """One line of the table: values against brute force's."""

    what: Literal["bound", "optimum", "search"]
    cases: int = 0
    infeasible: int = 0
    """cases of which both say that nothing can run."""
    equal: int = 0
    most_below: float = 0.0
    """the largest share by which a value is below the optimum."""
    most_above: float = 0.0
    wrong: int = 0

    def add(self, value: float, optimum: float) -> None:
        """Counts a case."""
        self.cases += 1
        if np.isinf(optimum):
            self.infeasible += bool(np.isinf(value))
            self.wrong += self.what != "bound" and not np.isinf(value)
            return
        off = 0.0 if value == optimum else (value - optimum) / optimum if optimum > 0 else np.inf
        self.equal += abs(off) <= TOLERANCE
        self.most_below, self.most_above = max(self.most_below, -off), max(self.most_above, off)
        above = {"bound": 0.0, "optimum": TOLERANCE, "search": np.inf}[self.what]
        self.wrong += off > above or (self.what != "bound" and off < -TOLERANCE)


def main() -> None:
    """Draws the cases, prints the table, writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    found: dict[str, Agreement] = {}

    def line(name: str, what: Literal["bound", "optimum", "search"]) -> Agreement:
        return found.setdefault(name, Agreement(what=what))

    for number in range(asked.cases):
        _graphs(np.random.default_rng([asked.seed, number]), line)
        _instances(np.random.default_rng([asked.seed, number]), line)
    table = Table(title="against brute force")
    for head in ("what", "cases", "infeasible", "equal", "most below", "most above", "wrong"):
        table.add_column(head, justify="left" if head == "what" else "right")
    for name, one in found.items():
        table.add_row(
            name, str(one.cases), str(one.infeasible), str(one.equal), f"{one.most_below:.2%}", f"{one.most_above:.2%}", str(one.wrong)
        )
    Console(width=140).print(table)
    document = {"cases": asked.cases, "seed": asked.seed, "tolerance": TOLERANCE}
    write_text(
        asked.out, json.dumps({**document, "lines": {name: dataclasses.asdict(one) for name, one in found.items()}}, indent=1) + "\n"
    )
    sys.exit(any(one.wrong for one in found.values()))


def _graphs(generator: np.random.Generator, line: Callable[..., Agreement]) -> None:
    """gdp's own bounds and solvers: up to six ops on up to three devices, with groups, unequal devices, shared channels and tight memory."""
    graph = seeded_graph(generator, num_ops=int(generator.integers(1, 7)))
    cluster = seeded_cluster(generator, num_devices=int(generator.integers(1, 4)))
    for objective in ("step_time", "bottleneck"):
        optimum = _least_s(graph, cluster, objective, generator)
        for bound in lower_bounds(graph, cluster, objective=objective):
            line(f"{objective}: {bound.bound} bound", "bound").add(bound.value_s, optimum)
        if objective == "bottleneck":
            line("bottleneck: integer program's bound", "bound").add(exact_bottleneck(graph, cluster, time_limit_s=30.0).bound_s, optimum)
        elif 0 < optimum < np.inf:
            solved = exact_schedule(graph, cluster, horizon_s=optimum, time_limit_s=30.0)
            line("step_time: schedule program's bound", "bound").add(solved.bound_s, optimum)


def _least_s(graph: Graph, cluster: Cluster, objective: Objective, generator: np.random.Generator) -> float:
    device = np.array(list(itertools.product(range(cluster.num_devices), repeat=graph.num_ops)), np.int32)
    rules = (Simulator(), Simulator(dispatch="program_order"), Simulator(dispatch="priority", rank=generator.random(graph.num_ops)))
    return min(float(each.batch(graph, cluster, device).objective_s(objective).min()) for each in rules)


def _instances(generator: np.random.Generator, line: Callable[..., Agreement]) -> None:
    """Tarnawski's programs: up to five nodes on up to three devices."""
    instance = _instance(generator)
    splits = [np.array(each, np.int32) for each in itertools.product(range(instance.num_devices), repeat=instance.num_nodes)]
    loads = [max_load_s(instance, split) for split in splits]
    optimum = min(loads)
    contiguous = min((load for load, split in zip(loads, splits, strict=True) if _in_order(instance, split)), default=np.inf)
    line("max-load: dynamic program, contiguous", "optimum").add(contiguous_optimum(instance, time_limit_s=30.0).objective_s, contiguous)
    line("max-load: integer program, contiguous", "optimum").add(
        least_max_load(instance, contiguous=True, time_limit_s=30.0).objective_s, contiguous
    )
    free = least_max_load(instance, contiguous=False, time_limit_s=30.0)
    line("max-load: integer program", "optimum").add(free.objective_s, optimum)
    line("max-load: its bound", "optimum").add(free.bound_s, optimum)
    if np.isfinite(optimum):
        start = splits[int(np.argmax(np.isfinite(loads)))]
        annealed = annealed_max_load(instance, start, evaluations=2000, generator=generator)
        line("max-load: annealing", "search").add(annealed.objective_s, optimum)
    choices = range(ON_CPU if instance.num_cpus else 0, instance.num_accelerators)
    least = min(
        (latency_s(instance, np.array(split, np.int32)) for split in itertools.product(choices, repeat=instance.num_nodes)), default=np.inf
    )
    line("latency: integer program", "optimum").add(least_latency(instance, time_limit_s=30.0).objective_s, least)


def _instance(generator: np.random.Generator) -> TarnawskiInstance:
    count, num_cpus = int(generator.integers(1, 6)), int(generator.integers(0, 2))
    num_accelerators = int(generator.integers(1 - num_cpus, 4 - num_cpus))
    edges = [(one, other) for other in range(count) for one in range(other) if generator.random() < 0.4]
    sends = np.isin(np.arange(count), [one for one, _ in edges])
    return TarnawskiInstance(
        source="a random instance",
        num_accelerators=num_accelerators,
        num_cpus=num_cpus,
        accelerator_memory_bytes=float(generator.choice([2.0, 4.0, 100.0])),
        node_id=np.arange(count),
        cpu_time_s=generator.choice([0.5, 1.0, 4.0, 8.0], count),
        accelerator_time_s=generator.choice([0.5, 1.0, 2.0, 2.5], count),
        runs_on_accelerator=(generator.random(count) < 0.9) | (num_cpus == 0),
        backward=np.zeros(count, np.bool_),
        colour=generator.choice([-1, -1, -1, 0, 1], count).astype(np.int32),
        size_bytes=generator.choice([0.0, 1.0, 1.0, 2.0], count),
        transfer_s=np.where(sends, generator.choice([0.0, 0.25, 0.5, 1.0], count), 0.0),
        edge_from=np.array([one for one, _ in edges], np.int32),
        edge_to=np.array([other for _, other in edges], np.int32),
    )


def _in_order(instance: TarnawskiInstance, device: np.ndarray) -> bool:
    """Whether the devices can be put in an order in which no edge goes back."""
    arcs = {(int(device[one]), int(device[other])) for one, other in zip(instance.edge_from, instance.edge_to, strict=True)}
    orders = itertools.permutations(range(instance.num_devices))
    return any(all(one == other or order.index(one) < order.index(other) for one, other in arcs) for order in orders)


if __name__ == "__main__":
    main()
