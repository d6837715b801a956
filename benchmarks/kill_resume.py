"""Kills `finetune.py` at random moments and lets the same command continue: the result must be that of a run which was never killed.

In the simulator the two are compared bit by bit: placement, result, and every number in the last snapshot. With real timing (`--real`) a step takes
another time whenever it is measured, so the run that was killed is compared with an unbroken one that is handed its journal of measurements.

    python benchmarks/kill_resume.py [--kills 5] [--real] [--seed 0] [--out benchmarks/results/kill_resume.json]
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.cli.report_data import environment
from gdp.learn.snapshots import read_snapshot

ROOT = Path(__file__).resolve().parent.parent
SIMULATED = ["workload=series-parallel-600-training-0", "cluster=p100x4", "finetune.evaluations=640", "finetune.search_evaluations=200"]
REAL = ["workload=branching", "cluster=local", "runtime=pytorch", "finetune.evaluations=48", "finetune.search_evaluations=50"]
REAL += ["runtime.measured_per_update=2", "runtime.max_time_s=2.0"]


def command(folder: Path, *, real: bool) -> list[str]:
    return [sys.executable, str(ROOT / "finetune.py"), *(REAL if real else SIMULATED), "snapshot_every_updates=1", f"run_dir={folder}"]


def finish(folder: Path, *, real: bool) -> float:
    """Runs to the end; returns the seconds it took."""
    begin = time.perf_counter()
    done = subprocess.run(command(folder, real=real), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - begin


def kill_after(folder: Path, seconds: float, *, real: bool) -> bool:
    """Starts the run and kills it (SIGKILL) after so many seconds; whether it was still going on."""
    process = subprocess.Popen(command(folder, real=real), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two finished runs."""
    found = []
    for name in ("placement.json", "result.json"):
        if json.loads((one / name).read_text()) != json.loads((other / name).read_text()):
            found.append(name)
    ours, theirs = (read_snapshot(folder / "snapshot.pt") for folder in (one, other))
    found += [f"weights {key}" for key, value in ours["policy"].items() if not torch.equal(value, theirs["policy"][key])]
    if not torch.equal(ours["torch_generator"], theirs["torch_generator"]):
        found.append("generator")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    generator, console = np.random.default_rng(options.seed), Console()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        unbroken = Path(temporary) / "unbroken"
        whole_s = finish(unbroken, real=options.real)
        console.print(f"unbroken run: {whole_s:.1f} s")
        for number in range(options.kills):
            folder = Path(temporary) / f"killed-{number}"
            after_s = float(generator.uniform(0.1, 0.95) * whole_s)
            killed = kill_after(folder, after_s, real=options.real)
            had_snapshot = (folder / "snapshot.pt").exists()
            finish(folder, real=options.real)
            reference = unbroken
            if options.real:
                reference = Path(temporary) / f"replayed-{number}"
                reference.mkdir()
                for name in ("journal.jsonl", "comparisons.json", "profile.json", "cluster.yaml", "identity.json", "run_id"):
                    shutil.copy(folder / name, reference / name)
                finish(reference, real=True)
            differs = differences(folder, reference)
            rows.append({"killed_after_s": after_s, "killed": killed, "had_snapshot": had_snapshot, "differences": differs})
    table = Table(title=f"{'real timing' if options.real else 'simulator'}: unbroken run {whole_s:.1f} s", title_justify="left")
    for column in ("killed after s", "still running", "had a snapshot", "same result"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            f"{row['killed_after_s']:.1f}",
            str(row["killed"]),
            str(row["had_snapshot"]),
            "yes" if not row["differences"] else str(row["differences"]),
        )
    console.print(table)
    if options.out:
        document = {
            "runtime": "pytorch" if options.real else "simulator",
            "unbroken_s": whole_s,
            "kills": rows,
            "environment": environment(),
        }
        write_text(options.out, json.dumps(document, indent=1) + "\n")
    raise SystemExit(any(row["differences"] for row in rows))


if __name__ == "__main__":
    main()
