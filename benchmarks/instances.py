"""The published instances of Tarnawski et al.: our values beside the known ones, and what was proven.

Reads `../shared/instances` beside the repository, or the folder given. Contiguous splits by the dynamic program over ideals and its linearised form; all
splits by annealing, then by an integer program on HiGHS with a time limit, begun from the best split met. Latencies by annealing, then by the same solver and, where
OR-tools is installed, by CP-SAT. Figures of other methods are those that were published. Writes `benchmarks/results/instances.json`.
"""

import argparse
import dataclasses
import json
import platform
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.tarnawski.annealing import annealed_max_load
from gdp.baselines.tarnawski.constraint_latency import constraint_latency
from gdp.baselines.tarnawski.contiguous_dp import contiguous_optimum, linearised_optimum
from gdp.baselines.tarnawski.cost import loads_s
from gdp.baselines.tarnawski.latency_annealing import annealed_latency
from gdp.baselines.tarnawski.latency_greedy import greedy_latency
from gdp.baselines.tarnawski.latency_ip import least_latency
from gdp.baselines.tarnawski.solution import Solution
from gdp.baselines.tarnawski.throughput_ip import least_max_load
from gdp.capture.tarnawski_json import read_tarnawski, read_tarnawski_split
from gdp.errors import InputError

RESULTS = Path(__file__).parent / "results" / "instances.json"
INSTANCES = Path(__file__).resolve().parents[2] / "shared" / "instances"


EVALUATIONS, LATENCY_EVALUATIONS, SEEDS = 16_000_000, 100_000, 3
"""Of annealing, begun from the contiguous optimum or the greedy split: the best over the seeds."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Known:
    """Published values of one instance, ms; None where there is none."""

    expert: float | None = None
    pipedream: float
    scotch: float
    local_search: float
    metis_once: float
    metis_best: float
    contiguous: float
    best: float
    bound: float


MAX_LOAD = {
    "bert24_layer_inference": Known(
        expert=20.08,
        pipedream=17.79,
        scotch=18.026,
        local_search=17.778,
        metis_once=18.026,
        metis_best=17.761,
        contiguous=17.790,
        best=17.715,
        bound=17.544,
    ),
    "bert24_layer_training": Known(
        expert=49.40,
        pipedream=187.9,
        scotch=42.008,
        local_search=39.943,
        metis_once=42.118,
        metis_best=41.889,
        contiguous=41.746,
        best=39.790,
        bound=39.790,
    ),
    "gnmt_layer_inference": Known(
        expert=46.21,
        pipedream=33.03,
        scotch=34.924,
        local_search=31.783,
        metis_once=35.364,
        metis_best=32.21,
        contiguous=32.911,
        best=31.687,
        bound=31.379,
    ),
    "resnet50_layer_inference": Known(
        expert=43.92,
        pipedream=39.40,
        scotch=34.309,
        local_search=35.889,
        metis_once=34.309,
        metis_best=34.223,
        contiguous=33.775,
        best=33.433,
        bound=33.108,
    ),
    "inceptionv3_layer_inference": Known(
        expert=102.48,
        pipedream=60.42,
        scotch=52.294,
        local_search=54.04,
        metis_once=53.947,
        metis_best=52.251,
        contiguous=51.552,
        best=51.36,
        bound=51.016,
    ),
    "bert3_op_inference": Known(
        pipedream=37.46,
        scotch=35.935,
        local_search=27.574,
        metis_once=27.919,
        metis_best=21.908,
        contiguous=27.919,
        best=21.908,
        bound=21.908,
    ),
}
LATENCY_MS = {"bert24_layer_inference": (100.22, 100.22), "bert3_op_inference": (416.20, 408.471)}
"""Greedy, and contiguous with one subgraph each."""


def main() -> None:
    """Solves, prints the tables, writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=INSTANCES)
    parser.add_argument("--time-limit-s", type=float, default=60.0, help="of each integer program")
    asked = parser.parse_args()
    if not asked.folder.is_dir():
        raise InputError(f"there is no folder {asked.folder} of published instances; name one that holds max_load/ and latency/")
    console = Console(width=260)
    results: dict[str, object] = {
        "time_limit_s": asked.time_limit_s,
        "machine": platform.processor() or platform.machine(),
        "evaluations": EVALUATIONS,
        "seeds": SEEDS,
        "python": platform.python_version(),
        "highspy": version("highspy"),
        "max_load": _max_loads(asked.folder, asked.time_limit_s, console),
        "latency": _latencies(asked.folder, asked.time_limit_s, console),
    }
    write_text(RESULTS, json.dumps(results, indent=1) + "\n")


def _max_loads(folder: Path, time_limit_s: float, console: Console) -> dict[str, dict[str, object]]:
    table = Table(title="max-load, ms a sample (known values in brackets)")
    for head in (
        "instance",
        "one accelerator",
        "expert",
        "PipeDream",
        "Scotch",
        "local search",
        "METIS once",
        "of 3000",
        "DPL",
        "DP over ideals",
        "s",
        "annealed",
        "all splits: best",
        "bound",
        "gap",
        "s",
    ):
        table.add_column(head, justify="left" if head == "instance" else "right")
    found: dict[str, dict[str, object]] = {}
    warmed = False
    for name, known in MAX_LOAD.items():
        instance = read_tarnawski(folder / "max_load" / f"{name}.json")
        if not warmed:
            contiguous_optimum(instance, time_limit_s=time_limit_s)  # compiles
            warmed = True
        one_ms = float(loads_s(instance, np.zeros(instance.num_nodes, np.int32)).max()) * 1e3
        path = folder / "expert" / f"{name}.json"
        expert_ms = float(loads_s(instance, read_tarnawski_split(path, instance)).max()) * 1e3 if path.exists() else None
        linear, contiguous = linearised_optimum(instance), contiguous_optimum(instance, time_limit_s=time_limit_s)
        assert contiguous.split is not None
        annealed = min(
            (
                annealed_max_load(instance, contiguous.split, evaluations=EVALUATIONS, generator=np.random.default_rng(seed))
                for seed in range(SEEDS)
            ),
            key=lambda solution: solution.objective_s,
        )
        free = least_max_load(instance, contiguous=False, time_limit_s=time_limit_s, start=annealed.split)
        found[name] = {
            "one_accelerator_ms": one_ms,
            "expert_ms": expert_ms,
            "linearised": _as_json(linear),
            "contiguous": _as_json(contiguous),
            "annealed": _as_json(annealed),
            "all_splits": _as_json(free),
            "known_ms": dataclasses.asdict(known),
        }
        table.add_row(
            name,
            f"{one_ms:.2f}",
            "-" if expert_ms is None else f"{expert_ms:.2f}",
            *(rf"\[{value}]" for value in (known.pipedream, known.scotch, known.local_search, known.metis_once, known.metis_best)),
            f"{linear.objective_s * 1e3:.3f}",
            rf"{contiguous.objective_s * 1e3:.3f}{'' if contiguous.proven else '?'} \[{known.contiguous}]",
            f"{contiguous.solve_time_s:.2f}",
            f"{annealed.objective_s * 1e3:.3f}",
            rf"{free.objective_s * 1e3:.3f} \[{known.best}]",
            rf"{free.bound_s * 1e3:.3f} \[{known.bound}]",
            f"{free.gap:.2%}",
            f"{free.solve_time_s:.1f}",
        )
    console.print(table)
    return found


def _latencies(folder: Path, time_limit_s: float, console: Console) -> dict[str, dict[str, object]]:
    table = Table(title="latency of one sample, ms (known values in brackets)")
    for head in ("instance", "greedy", "annealed", "s", "one subgraph each: best", "HiGHS: bound", "gap", "s", "CP-SAT: bound", "gap", "s"):
        table.add_column(head, justify="left" if head == "instance" else "right")
    found: dict[str, dict[str, object]] = {}
    for name, (known_greedy, known_best) in LATENCY_MS.items():
        instance = read_tarnawski(folder / "latency" / f"{name}.json")
        greedy = greedy_latency(instance)
        assert greedy.split is not None
        annealed_latency(instance, greedy.split, evaluations=1, generator=np.random.default_rng(0))  # compiles
        annealed = min(
            (
                annealed_latency(instance, greedy.split, evaluations=LATENCY_EVALUATIONS, generator=np.random.default_rng(seed))
                for seed in range(SEEDS)
            ),
            key=lambda solution: solution.objective_s,
        )
        assert annealed.split is not None
        best = least_latency(instance, time_limit_s=time_limit_s, start=annealed.split)
        constrained = None
        if find_spec("ortools") is not None:
            constrained = constraint_latency(instance, annealed.split, time_limit_s=time_limit_s)
        found[name] = {
            "greedy": _as_json(greedy),
            "annealed": _as_json(annealed),
            "one_subgraph": _as_json(best),
            "constraint_programming": None if constrained is None else _as_json(constrained),
            "known_ms": {"greedy": known_greedy, "one_subgraph": known_best},
        }
        table.add_row(
            name,
            rf"{greedy.objective_s * 1e3:.2f} \[{known_greedy}]",
            f"{annealed.objective_s * 1e3:.3f}",
            f"{annealed.solve_time_s:.1f}",
            rf"{best.objective_s * 1e3:.3f} \[{known_best}]",
            *_proof(best),
            *(_proof(constrained) if constrained is not None else ("-", "-", "-")),
        )
    console.print(table)
    return found


def _proof(solution: Solution) -> tuple[str, str, str]:
    gap = f"{solution.gap:.3%}" if np.isfinite(solution.gap) else "-"
    return f"{solution.bound_s * 1e3:.3f}", gap, f"{solution.solve_time_s:.1f}"


def _as_json(solution: Solution) -> dict[str, object]:
    return {
        "objective_ms": _finite(solution.objective_s * 1e3),
        "bound_ms": _finite(solution.bound_s * 1e3),
        "status": solution.status,
        "gap": _finite(solution.gap),
        "solve_time_s": solution.solve_time_s,
    }


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


if __name__ == "__main__":
    main()
