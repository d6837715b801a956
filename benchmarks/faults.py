"""Faults of the measuring process, fifty of every kind, injected at random moments into a run of measurements: each must become its status, and the run must go on as before.

A fault is survived when its measurement has the expected status, the worker was replaced, the cores are free, the next measurement is right (its outputs are checked against those
of the unplaced program), and no process, open file, thread or temporary file is left. Whether the next step time is within noise of the one before is counted by itself.
As many runs go on side by side as there are cores, each on a core of its own and with its part of the faults. Exit code 1 when one fault is not survived.

    python benchmarks/faults.py [--faults 50] [--seed 0] [--cores 0 1] [--out benchmarks/results/faults.json]
"""

import argparse
import dataclasses
import functools
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.cli.report_data import environment
from gdp.measurement import Measurement, Status
from gdp.placement import Origin, Placement
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.timing import Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "runtime"))
from branching_net import branching_input, branching_program, core_cluster
from faults import FAULTS, FaultyRun, Left

RESULTS = Path(__file__).parent / "results" / "faults.json"


@dataclasses.dataclass(kw_only=True)
class Tally:
    """What became of the faults of one kind."""

    fault: str
    status: str
    injected: int = 0
    survived: int = 0
    overlapping: int = 0
    """step times whose 95 % intervals before and after the fault overlap."""
    seconds: float = 0.0
    """from the fault to the end of the next measurement, on average: with a fresh worker."""
    wrong: list[str] = dataclasses.field(default_factory=list)
    """what was not survived, in a sentence each."""


def injected(run: FaultyRun, tally: Tally, before: Measurement, files: Path) -> Measurement:
    """One fault, and the measurement after it, into the tally."""
    was, begin = Left.now(), time.perf_counter()
    failed, replaced = run.with_fault(tally.fault)
    free = run.is_free()
    after = run.measure()
    took_s, left, fault = time.perf_counter() - begin, Left.now(), FAULTS[tally.fault]
    wrong = [
        sentence
        for sentence, is_so in (
            (f"the status is {failed.status.name}: {failed.detail}", failed.status != fault.status or fault.detail not in failed.detail),
            ("the worker was not replaced", not replaced),
            ("a core stayed locked", not free),
            (f"the next measurement is {after.status.name}: {after.detail}", after.status != Status.OK),
            (f"{len(left.processes)} processes instead of {len(was.processes)}", len(left.processes) != len(was.processes)),
            (f"{left.descriptors} open files instead of {was.descriptors}", left.descriptors != was.descriptors),
            (f"{left.threads} threads instead of {was.threads}", left.threads != was.threads),
            ("temporary files are left", len(list(files.iterdir())) != 1),
        )
        if is_so
    ]
    tally.injected += 1
    tally.survived += not wrong
    tally.overlapping += after.step_time_low_s <= before.step_time_high_s and before.step_time_low_s <= after.step_time_high_s
    tally.seconds += (took_s - tally.seconds) / tally.injected
    tally.wrong += wrong
    return after if after.status == Status.OK else before


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ran:
    """What became of the faults of one run."""

    tallies: dict[str, Tally]
    left: str
    """what is left of the run at its end; empty when nothing is."""


def run_on(core: int, order: list[str], seed: int, share: float) -> Ran:
    """Injects the faults, in this order, into a run of measurements on one core; the worker may take this share of the memory."""
    console, captured = Console(width=160), branching_program()
    cluster, placement = core_cluster([f"cpu:{core}"]), np.zeros(captured.graph.num_ops, np.int32)
    tallies = {name: Tally(fault=name, status=fault.status.name) for name, fault in FAULTS.items()}
    with tempfile.TemporaryDirectory() as files:
        tempfile.tempdir = files
        nothing, protocol = Left.now(), Protocol(max_warm_up=10, max_pairs=12)
        with PyTorchRuntime(captured.program, (branching_input(),), timeout_s=60.0, protocol=protocol, memory_share=share) as runtime:
            runtime._worker._module = "faulty_worker"
            one = Placement(device=placement, origin=Origin(placer="benchmark"))
            run = FaultyRun(lambda: runtime(captured.graph, cluster, one), runtime._worker, [core], np.random.default_rng(seed))
            last = run.measure()
            for number, name in enumerate(order, start=1):
                said = len(tallies[name].wrong)
                last = injected(run, tallies[name], last, Path(files))
                for sentence in tallies[name].wrong[said:]:
                    console.print(f"{name}: {sentence}", markup=False)
                if number % 25 == 0:
                    survived = sum(tally.survived for tally in tallies.values())
                    console.print(f"core {core}: {number} of {len(order)} faults, {survived} survived")
        tempfile.tempdir = None
        left = [str(path) for path in Path(files).iterdir()]
        now = Left.now()
    return Ran(tallies=tallies, left="" if now == nothing and not left else f"{now} {left} instead of {nothing}")


def together(first: Tally, second: Tally) -> Tally:
    """The tallies of one kind in two runs."""
    count = first.injected + second.injected
    return Tally(
        fault=first.fault,
        status=first.status,
        injected=count,
        survived=first.survived + second.survived,
        overlapping=first.overlapping + second.overlapping,
        seconds=(first.seconds * first.injected + second.seconds * second.injected) / max(1, count),
        wrong=[*first.wrong, *second.wrong],
    )


def main() -> None:
    """Injects, prints the table, writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--faults", type=int, default=50, help="of every kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cores", type=int, nargs="+", default=sorted(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    console = Console(width=160)
    order = np.random.default_rng(options.seed).permutation(np.repeat(list(FAULTS), options.faults)).tolist()
    begin, load, count = time.perf_counter(), os.getloadavg()[0], len(options.cores)
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as processes:
        parts = [order[number::count] for number in range(count)]
        seeds = range(options.seed, options.seed + count)
        ran = list(processes.map(run_on, options.cores, parts, seeds, [1 / count] * count))
    tallies = [functools.reduce(together, (one.tallies[name] for one in ran)) for name in FAULTS]
    table = Table("fault", "status", "injected", "survived", "step time as before", "s to the next time")
    for one in tallies:
        table.add_row(one.fault, one.status, str(one.injected), str(one.survived), str(one.overlapping), f"{one.seconds:.1f}")
    console.print(table)
    left = [one.left for one in ran if one.left]
    console.print("nothing is left of the runs" if not left else f"left of the runs: {left}")
    document = {
        "environment": environment(),
        "faults": [dataclasses.asdict(one) for one in tallies],
        "cores": options.cores,
        "nothing_left": not left,
        "seconds": time.perf_counter() - begin,
        "load_before": load,
        "load_after": os.getloadavg()[0],
    }
    write_text(options.out, json.dumps(document, indent=1) + "\n")
    raise SystemExit(bool(left) or any(one.survived < one.injected for one in tallies))


if __name__ == "__main__":
    main()
