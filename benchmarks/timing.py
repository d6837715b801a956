"""What verdicts on timed placements are worth: false alarms between equals, and the smallest difference that is told.

First on synthetic noise, through the very code that times placements (`in_turn`, `in_two_looks`): thousands of comparisons for every kind of noise, of equal placements and of
ones that differ by 1 to 10 %. Then on this machine: one placement of a captured network on two pinned cores against itself, and against itself with so much more work.
Writes `benchmarks/results/timing.json`.

    python benchmarks/timing.py [--comparisons 4000] [--equals 200] [--out benchmarks/results/timing.json]
"""

import argparse
import dataclasses
import json
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.capture.torch import Captured, capture
from gdp.cli.report_data import environment
from gdp.cluster import Cluster
from gdp.placement import Origin, Placement
from gdp.runtime.local import default_core_sets, local_cluster
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.timing import Comparison, Protocol, Times, compare_times, in_turn, in_two_looks
from gdp.workloads.branching import branching_network

RESULTS = Path(__file__).parent / "results" / "timing.json"
DIFFERENCES = (0.01, 0.02, 0.03, 0.05, 0.10)
NOISE = 0.05
"""Standard deviation of the logarithm of a step's time, of every synthetic noise before what makes it special."""
NUM_PAIRS = 48

SPREAD_S = 0.25
"""Of the comparisons on this machine, a sixth of what a run takes (`gdp.runtime.measuring.SPREAD_S`): there are hundreds of them."""
TOLD = 0.8
"""A difference counts as told when so many comparisons tell it."""

Noise = Callable[[np.random.Generator, int], np.ndarray]
"""Logarithms by which the machine slows successive steps."""


def white(generator: np.random.Generator, steps: int) -> np.ndarray:
    return generator.normal(0, NOISE, steps)


def autoregressive(correlation: float) -> Noise:
    """Noise that correlates so much with that of the step before."""

    def noise(generator: np.random.Generator, steps: int) -> np.ndarray:
        values = generator.normal(0, NOISE * math.sqrt(1 - correlation**2), steps)
        values[0] = generator.normal(0, NOISE)
        for i in range(1, steps):
            values[i] += correlation * values[i - 1]
        return values

    return noise


def drifting(generator: np.random.Generator, steps: int) -> np.ndarray:
    """A fifth faster or slower in a hundred steps."""
    return white(generator, steps) + generator.choice([-0.002, 0.002]) * np.arange(steps)


def periodic(period: int) -> Noise:
    """A stall of 20 % in every step of that number."""

    def noise(generator: np.random.Generator, steps: int) -> np.ndarray:
        return white(generator, steps) + 0.2 * ((np.arange(steps) + generator.integers(period)) % period == 0)

    return noise


def spiking(generator: np.random.Generator, steps: int) -> np.ndarray:
    """One step in ten is slower by a Pareto-distributed amount without variance."""
    return white(generator, steps) + np.where(generator.random(steps) < 0.1, 0.1 * generator.pareto(1.5, steps), 0.0)


def switching(generator: np.random.Generator, steps: int) -> np.ndarray:
    """Two clock frequencies, 20 % apart, each kept for twenty steps on average."""
    return white(generator, steps) + 0.2 * ((np.cumsum(generator.random(steps) < 0.05) + generator.integers(2)) % 2)


NOISES: dict[str, Noise] = {
    "white": white,
    "autoregressive, 0.5": autoregressive(0.5),
    "autoregressive, 0.8": autoregressive(0.8),
    "drift": drifting,
    "stall in every 4th step": periodic(4),
    "stall in every 7th step": periodic(7),
    "heavy-tailed spikes": spiking,
    "two frequencies": switching,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Errors:
    """Shares of all comparisons under one noise, of equal placements but for `told`."""

    noise: str
    false_alarms: float
    """verdicts `faster` or `slower`."""
    coverage: float
    """intervals with the true ratio, over all differences."""
    drift_reported: float
    """the machine's speed was said to have moved; where it stays for several steps, it did."""
    told: dict[str, float]
    """by true difference, verdicts that were right about its direction."""
    tellable: float
    """median of what the comparisons of equals said that they could tell."""
    mean_pairs: float
    search_false_alarms: float
    """the same of the quick comparison that chooses what is measured next."""
    search_coverage: float
    search_mean_pairs: float


class Machine:
    """Steps of a candidate and of an incumbent under one noise; the candidate takes longer by `difference`, relatively."""

    def __init__(self, noise: Noise, generator: np.random.Generator, *, difference: float, max_pairs: int) -> None:
        self._times = iter(np.exp(noise(generator, 2 * max_pairs)).tolist())
        self._difference = difference

    def candidate(self) -> float:
        return next(self._times) * (1 + self._difference)

    def incumbent(self) -> float:
        return next(self._times)


def looked_twice(noise: Noise, generator: np.random.Generator, *, difference: float) -> Comparison:
    """A verdict as `PyTorchRuntime.compare` comes to one."""
    machine = Machine(noise, generator, difference=difference, max_pairs=4 * NUM_PAIRS)

    def pairs(count: int) -> Times:
        seed = int(generator.integers(2**31))
        protocol = Protocol(max_warm_up=0, max_pairs=count, precision=0.0, clearly_slower=math.inf, seed=seed)
        return in_turn(machine.candidate, machine.incumbent, protocol, clock=lambda: 0.0)

    comparison = in_two_looks(pairs, num_pairs=NUM_PAIRS)
    assert comparison is not None
    return comparison


def searched(noise: Noise, generator: np.random.Generator) -> Comparison:
    """A comparison of equals as a search makes it: the default protocol, which stops when the interval is narrow."""
    protocol = Protocol(max_warm_up=0, seed=int(generator.integers(2**31)))
    machine = Machine(noise, generator, difference=0.0, max_pairs=protocol.max_pairs)
    return compare_times(*in_turn(machine.candidate, machine.incumbent, protocol, clock=lambda: 0.0))


def errors_of(name: str, noise: Noise, *, comparisons: int, seed: int) -> Errors:
    """`comparisons` of equals in each way, and a quarter as many for each difference."""
    generator = np.random.default_rng(seed)
    equal = [looked_twice(noise, generator, difference=0.0) for _ in range(comparisons)]
    different = {one: [looked_twice(noise, generator, difference=one) for _ in range(comparisons // 4)] for one in DIFFERENCES}
    found = [searched(noise, generator) for _ in range(comparisons)]
    covered = [one.low <= 1 <= one.high for one in equal]
    covered += [one.low <= 1 + difference <= one.high for difference, seen in different.items() for one in seen]
    return Errors(
        noise=name,
        false_alarms=share(one.verdict in ("faster", "slower") for one in equal),
        coverage=share(covered),
        drift_reported=share(one.drift != 0 for one in equal),
        told={f"{difference:g}": share(one.verdict == "slower" for one in seen) for difference, seen in different.items()},
        tellable=float(np.median([one.tellable for one in equal])),
        mean_pairs=float(np.mean([one.num_pairs for one in equal])),
        search_false_alarms=share(one.verdict in ("faster", "slower") for one in found),
        search_coverage=share(one.low <= 1 <= one.high for one in found),
        search_mean_pairs=float(np.mean([one.num_pairs for one in found])),
    )


def share(hits: Sequence[bool] | object) -> float:
    return float(np.mean(list(hits)))  # type: ignore[call-overload]


class WithMoreWork(torch.nn.Module):
    """A network and, beside it, equal small pieces of work, which a placement puts on the device that everybody waits for, or on the other one."""

    def __init__(self, network: torch.nn.Module, *, num_pieces: int) -> None:
        super().__init__()
        self.network, self.num_pieces = network, num_pieces

    def forward(self, x: torch.Tensor, square: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.network(x), *[torch.mm(square, square) for _ in range(self.num_pieces)])


NUM_PIECES = 48


def network_with_more_work() -> tuple[Captured, tuple[torch.Tensor, ...]]:
    """The branching network, small, with pieces of work of less than a percent of its step each, yet so long that Python's lock is free meanwhile: many tiny ops on one core
    slow the other one by more than they are worth."""
    generator = torch.Generator().manual_seed(0)
    network = branching_network(generator, num_blocks=2, width=64)
    inputs = torch.randn((8, 3, 32, 32), generator=generator), torch.randn((128, 128), generator=generator) / 16
    return capture(WithMoreWork(network.eval(), num_pieces=NUM_PIECES).eval(), inputs), inputs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """A true difference on this machine, and how often it was told."""

    aimed: float
    true: float
    true_low: float
    true_high: float
    """by one long comparison."""
    comparisons: int
    told: float


def placement(captured: Captured, *, pieces_on_first: int) -> Placement:
    """The network on the first core, which ends last; so many pieces of work there, too, the others on the second core, beside the network."""
    graph = captured.graph
    pieces = [number for number, name in enumerate(graph.op_type) if "mm" in name and "addmm" not in name]
    assert len(pieces) == NUM_PIECES
    assert (graph.colocation_group[pieces] == graph.NO_GROUP).all()
    device = np.zeros(graph.num_ops, np.int32)
    device[pieces[pieces_on_first:]] = 1
    return Placement(device=device, origin=Origin(placer="benchmark"))


def on_this_machine(console: Console, *, equals: int, per_difference: int, calibration_pairs: int) -> dict[str, object]:
    """Verdicts on real steps."""
    begin, load = time.perf_counter(), os.getloadavg()[0]
    captured, inputs = network_with_more_work()
    graph, cluster = captured.graph, two_cores()
    base = placement(captured, pieces_on_first=0)
    with PyTorchRuntime(captured.program, inputs, protocol=Protocol(spread_s=SPREAD_S)) as runtime:

        def compared(candidate: Placement, num_pairs: int = NUM_PAIRS) -> Comparison:
            comparison = runtime.compare(graph, cluster, candidate, base, num_pairs=num_pairs)
            assert comparison is not None
            return comparison

        all_pieces = compared(placement(captured, pieces_on_first=NUM_PIECES), calibration_pairs)
        same = [compared(base) for _ in range(equals)]
        differences = []
        for aimed in DIFFERENCES:
            pieces = round(aimed / max(all_pieces.ratio - 1, aimed) * NUM_PIECES)
            slower = placement(captured, pieces_on_first=pieces)
            true = compared(slower, calibration_pairs)
            seen = [compared(slower) for _ in range(per_difference)]
            told = share(one.verdict == "slower" for one in seen)
            differences.append(
                Difference(
                    aimed=aimed, true=true.ratio - 1, true_low=true.low - 1, true_high=true.high - 1, comparisons=per_difference, told=told
                )
            )
    verdicts = {name: sum(one.verdict == name for one in same) for name in ("equal", "too_noisy", "faster", "slower")}
    console.print(
        f"this machine, {equals} comparisons of a placement with itself: {', '.join(f'{count} {name}' for name, count in verdicts.items())}"
    )
    table = Table("true difference", "told")
    for one in differences:
        table.add_row(f"{one.true:.1%} [{one.true_low:.1%}, {one.true_high:.1%}]", f"{one.told:.0%} of {one.comparisons}")
    console.print(table)
    smallest = next((one.true for one in differences if all(later.told >= TOLD for later in differences if later.aimed >= one.aimed)), None)
    console.print(f"smallest difference told in {TOLD:.0%} of comparisons: {'none' if smallest is None else f'{smallest:.1%}'}")
    return {
        "step_ms": 1e3 * float(np.median([one.incumbent_s for one in same])),
        "num_pairs": NUM_PAIRS,
        "equals": equals,
        "all_pieces": all_pieces.ratio - 1,
        "verdicts_on_equals": verdicts,
        "median_tellable": float(np.median([one.tellable for one in same])),
        "largest_ratio_error": max(abs(one.ratio - 1) for one in same),
        "drift_reported": sum(one.drift != 0 for one in same),
        "differences": [dataclasses.asdict(one) for one in differences],
        "smallest_told": smallest,
        "seconds": time.perf_counter() - begin,
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }


def two_cores() -> Cluster:
    return local_cluster(default_core_sets()[:2])


def main() -> None:
    """Measures, prints the tables, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--comparisons", type=int, default=4000, help="of equals under each synthetic noise")
    parser.add_argument(
        "--equals", type=int, default=200, help="comparisons of a placement with itself on this machine; a fifth as many of each difference"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    console = Console(width=160)
    table = Table(
        *("noise", "false alarms", "coverage", "speed moved", *(f"told {one:.0%}" for one in DIFFERENCES), "tellable", "pairs"),
        *("search: false alarms", "coverage", "pairs"),
        title=f"synthetic noise, {options.comparisons:,} comparisons of equals each",
    )
    errors = []
    for seed, (name, noise) in enumerate(NOISES.items()):
        found = errors_of(name, noise, comparisons=options.comparisons, seed=seed)
        errors.append(found)
        table.add_row(
            *(name, f"{found.false_alarms:.1%}", f"{found.coverage:.1%}", f"{found.drift_reported:.1%}"),
            *(f"{told:.0%}" for told in found.told.values()),
            *(f"{found.tellable:.1%}", f"{found.mean_pairs:.0f}"),
            *(f"{found.search_false_alarms:.1%}", f"{found.search_coverage:.1%}", f"{found.search_mean_pairs:.0f}"),
        )
    console.print(table)
    real = on_this_machine(console, equals=options.equals, per_difference=max(1, options.equals // 5), calibration_pairs=10 * NUM_PAIRS)
    document = {
        "environment": environment(),
        "synthetic": {"comparisons": options.comparisons, "noise": NOISE, "errors": [dataclasses.asdict(one) for one in errors]},
        "real": real,
    }
    write_text(options.out, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
