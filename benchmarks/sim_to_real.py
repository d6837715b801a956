"""How well the simulator, calibrated by a profile of single ops and of this machine's links, predicts measured step times.

    python benchmarks/sim_to_real.py [--models NAMES] [--placements 60] [--passes 4] [--out benchmarks/results/sim_to_real.json]

Placements of every kind on the machine's first two cores: structured (one device, contiguous, METIS, cut in two), list-scheduled, searched (what local search ends with, and what
it looks at), and random over ops, over modules and over stretches of the program. Each is measured by the protocol of docs/real-timing.md, once in each of several passes over all,
a minute or more apart and each in an order of its own; its time is the mean of these. The prediction was made before.

The errors are those of the calibrated simulator as it is; and, since a shared machine is faster in one minute than in another, what is left of them after one scale for all
placements of a model, by which a run corrects the simulator while it measures. Rank correlation is Spearman's, of one model's placements, and of a framework's with all times
as shares of their model's median. Measurements that do not repeat lower it whatever is compared with them, so it stands beside what the passes say of each other: the correlation
of one with another, the highest that a prediction without error would reach with the mean of them (the square root of that mean's reliability, by Spearman and Brown), and the
simulator's correlation as a share of that (Spearman's correction for attenuation, American Journal of Psychology 15, 1904).
"""

import argparse
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from real_models import RealModel, real_models
from real_tensorflow_models import real_tensorflow_models
from rich.console import Console
from rich.progress import track
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.contiguous import contiguous_splits
from gdp.baselines.cpop import Cpop
from gdp.baselines.heft import Heft
from gdp.baselines.list_scheduling import list_schedules
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.m_etf import MEtf
from gdp.baselines.m_topo import MTopo
from gdp.baselines.metis import metis_partitions
from gdp.baselines.neighbourhood import Neighbourhood
from gdp.baselines.single_device import single_devices
from gdp.capture.tensorflow_program import TensorFlowProgram
from gdp.cli.report_data import environment
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Status
from gdp.placement import Origin, Placement
from gdp.runtime.handovers import measured_hand_overs, with_core_latency
from gdp.runtime.local import default_core_sets, local_cluster
from gdp.runtime.pytorch import PyTorchRuntime
from gdp.runtime.simulator import Simulator
from gdp.runtime.tensorflow import TensorFlowRuntime
from gdp.runtime.timing import Protocol

RESULTS = Path(__file__).parent / "results" / "sim_to_real.json"
PROTOCOL = Protocol(max_warm_up=4, max_pairs=16, precision=0.01, clearly_slower=np.inf, max_time_s=1.0, spread_s=0.7)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Agreement:
    """Predicted and measured step times of one model, a placement a place in each list."""

    model: str
    framework: str
    num_ops: int
    kind: list[str]
    predicted_s: list[float]
    predicted_by_copies_s: list[float]
    """with links as copies by themselves were timed, not as hand-overs take in steps."""
    pass_s: list[list[float]]
    """`[passes, placements]` measured."""
    overlapped_s: list[float]
    """seconds of predicted work beyond the busier device's: what the other one does beside it, at the most."""
    num_transfers: list[int]
    transferred_bytes: list[int]
    copy_latency_s: float
    hand_over_latency_s: float

    @property
    def measured_s(self) -> list[float]:
        """`[placements]` the mean of all passes."""
        return np.mean(self.pass_s, axis=0).tolist()

    @property
    def errors(self) -> np.ndarray:
        """`[placements]` how far each prediction is from the measured time, as a share of it."""
        return np.abs(np.array(self.predicted_s) / np.array(self.measured_s) - 1)

    @property
    def scaled_errors(self) -> np.ndarray:
        """`[placements]` the same with all predictions times one number, the median of measured over predicted."""
        ratio = np.array(self.predicted_s) / np.array(self.measured_s)
        return np.abs(ratio / np.median(ratio) - 1)

    @property
    def ranks(self) -> "Ranks":
        """Of this model's placements."""
        return Ranks.of(self.predicted_s, self.predicted_by_copies_s, self.pass_s)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ranks:
    """Spearman's correlations."""

    predicted: float
    """of the predictions with the mean of the passes."""
    predicted_by_copies: float
    """the same, with links as copies by themselves were timed."""
    one_pass: float
    """of the predictions with one pass, the mean over passes."""
    between_passes: float
    """of one pass with another, the mean over pairs of them."""

    num_passes: int

    @classmethod
    def of(cls, predicted_s: Sequence[float], by_copies_s: Sequence[float], pass_s: Sequence[Sequence[float]]) -> "Ranks":
        """`[placements]`, `[placements]` and `[passes, placements]`."""
        mean_s = np.mean(pass_s, axis=0).tolist()
        return cls(
            predicted=spearman(predicted_s, mean_s),
            predicted_by_copies=spearman(by_copies_s, mean_s),
            one_pass=float(np.mean([spearman(predicted_s, each) for each in pass_s])),
            between_passes=float(np.mean([spearman(first, second) for first, second in itertools.combinations(pass_s, 2)])),
            num_passes=len(pass_s),
        )

    @property
    def ceiling(self) -> float:
        """What predictions without error would reach with the mean of the passes: the square root of its reliability (Spearman-Brown)."""
        alike = max(self.between_passes, 0.0)
        return float(np.sqrt(self.num_passes * alike / (1 + (self.num_passes - 1) * alike)))

    @property
    def corrected(self) -> float:
        """The predictions' correlation as a share of the ceiling."""
        return self.predicted / self.ceiling

    def row(self) -> dict[str, float]:
        """For the results' file."""
        return {
            "rank_correlation": self.predicted,
            "rank_correlation_by_copies": self.predicted_by_copies,
            "rank_correlation_of_one_pass": self.one_pass,
            "rank_correlation_between_passes": self.between_passes,
            "ceiling": self.ceiling,
            "rank_correlation_corrected": self.corrected,
        }


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Correlation of ranks; equal values share theirs."""

    def ranks(values: Sequence[float]) -> np.ndarray:
        ordered = np.sort(values)
        return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")) / 2

    return float(np.corrcoef(ranks(first), ranks(second))[0, 1])


def placements(graph: Graph, cluster: Cluster, *, count: int) -> list[tuple[str, np.ndarray]]:
    """`count` different placements, each with its kind: a quarter of each, random ones in the place of those that a kind has too few of."""
    generator = np.random.default_rng(0)
    found: dict[bytes, tuple[str, np.ndarray]] = {}
    kinds: tuple[tuple[str, Iterator[np.ndarray]], ...] = (
        ("structured", structured(graph, cluster)),
        ("list-scheduled", list_scheduled(graph, cluster)),
        ("searched", searched(generator, graph, cluster)),
        ("random", drawn(generator, graph, cluster.num_devices)),
    )
    for kind, rows in kinds:
        most = count if kind == "random" else len(found) + count // len(kinds)
        for device in rows:
            if len(found) >= most:
                break
            found.setdefault(device.astype(np.int32).tobytes(), (kind, device.astype(np.int32)))
    return list(found.values())


def structured(graph: Graph, cluster: Cluster) -> Iterator[np.ndarray]:
    """Single devices, contiguous splits by time and by memory, partitions by METIS, and the program cut in two at every tenth."""
    yield from single_devices(graph, cluster)
    yield from contiguous_splits(graph, cluster)
    yield from contiguous_splits(graph, cluster, balance="memory")
    yield from metis_partitions(graph, cluster, count=4, seed=0)
    for tenth in range(1, 10):
        yield together(np.arange(graph.num_ops) * 10 >= tenth * graph.num_ops, graph)


def list_scheduled(graph: Graph, cluster: Cluster) -> Iterator[np.ndarray]:
    """HEFT, CPoP, m-ETF and m-TOPO, and all variants of list scheduling that its own runtime would choose among, the most promising first."""
    for placer in (Heft(), Cpop(), MEtf(), MTopo()):
        yield placer(graph, cluster).device
    for schedule in list_schedules(graph, cluster):
        yield schedule.device


def searched(generator: np.random.Generator, graph: Graph, cluster: Cluster) -> Iterator[np.ndarray]:
    """What local search ends with, for growing budgets, and what it looks at on the way: up to sixteen of its moves away from there."""
    simulator = Simulator(dispatch="program_order")
    neighbourhood = Neighbourhood(graph, cluster)
    for seed, evaluations in enumerate((15, 60, 250, 1000)):
        yield LocalSearch(runtime=simulator, evaluations=evaluations, seed=seed)(graph, cluster).device
    best = LocalSearch(runtime=simulator, evaluations=1000, seed=9)(graph, cluster).device
    for num_moves in (1, 2, 4, 8, 16) * 8:
        device = best
        for _ in range(num_moves):
            device = neighbourhood.propose(device, generator)
        yield device


def drawn(generator: np.random.Generator, graph: Graph, num_devices: int) -> Iterator[np.ndarray]:
    """Random ones of three sorts, without end."""
    while True:
        for draw in (random_ops, random_modules, random_stretches):
            yield draw(generator, graph, num_devices)


def random_ops(generator: np.random.Generator, graph: Graph, num_devices: int) -> np.ndarray:
    """Every op anywhere, or a few ops away from one device."""
    moved = generator.random(graph.num_ops) < generator.choice([0.02, 0.1, 0.5, 1.0])
    device = np.where(moved, generator.integers(0, num_devices, graph.num_ops), generator.integers(0, num_devices))
    return together(device, graph)


def random_modules(generator: np.random.Generator, graph: Graph, num_devices: int) -> np.ndarray:
    """Every module, at some depth, anywhere."""
    depth = int(generator.integers(1, 6))
    module = np.unique([".".join(path.split(".")[:depth]) for path in graph.module_path], return_inverse=True)[1]
    return together(generator.integers(0, num_devices, int(module.max()) + 1)[module], graph)


def random_stretches(generator: np.random.Generator, graph: Graph, num_devices: int) -> np.ndarray:
    """The program cut at random into stretches, each anywhere."""
    cuts = np.sort(generator.integers(0, graph.num_ops, int(generator.integers(1, 12))))
    stretch = np.searchsorted(cuts, np.arange(graph.num_ops), "right")
    return together(generator.integers(0, num_devices, len(cuts) + 1)[stretch], graph)


def together(device: np.ndarray, graph: Graph) -> np.ndarray:
    """Ops that must share a device go where the first of them is."""
    device = device.astype(np.int32)
    for group in np.unique(graph.colocation_group[graph.colocation_group != Graph.NO_GROUP]):
        members = np.flatnonzero(graph.colocation_group == group)
        device[members] = device[members[0]]
    return device


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Runnable:
    """A captured program and what runs it."""

    framework: str
    graph: Graph
    runtime: PyTorchRuntime | TensorFlowRuntime


def runnables() -> dict[str, Callable[[], Runnable]]:
    """Builders by name; the runtime is the caller's to close."""

    def of_pytorch(build: Callable[[], RealModel]) -> Runnable:
        model = build()
        runtime = PyTorchRuntime(model.captured.program, model.inputs, protocol=PROTOCOL)
        return Runnable(framework="PyTorch", graph=model.captured.graph, runtime=runtime)

    def of_tensorflow(build: Callable[[], TensorFlowProgram]) -> Runnable:
        program = build()
        runtime = TensorFlowRuntime(program.lowered, program.example_inputs, protocol=PROTOCOL)
        return Runnable(framework="TensorFlow", graph=program.graph, runtime=runtime)

    return {name: partial(of_pytorch, build) for name, build in real_models().items()} | {
        name: partial(of_tensorflow, build) for name, build in real_tensorflow_models().items()
    }


def agreement(name: str, copies: Cluster, *, num_placements: int, num_passes: int, console: Console) -> Agreement:
    """Profiles the model, the hand-overs in its steps included, predicts all placements, and measures them in so many passes. The links of `copies` are as copies by themselves
    were timed."""
    model = runnables()[name]()
    with model.runtime as runtime:
        graph = model.graph.with_measured_time(runtime.profile(model.graph, copies))
        hand_overs = measured_hand_overs(graph, copies, runtime, dispatch="program_order", seed=5)
        assert hand_overs is not None, "the placements that hand over did not run"
        cluster = with_core_latency(copies, hand_overs.latency_s)
        chosen = placements(graph, cluster, count=num_placements)
        simulator, device = Simulator(dispatch="program_order"), np.stack([device for _, device in chosen])
        predicted, by_copies = (simulator.batch(graph, links, device) for links in (cluster, copies))
        generator = np.random.default_rng(1)
        visits = [(index, int(row)) for index in range(num_passes) for row in generator.permutation(len(chosen))]
        pass_s = np.zeros((num_passes, len(chosen)))
        for index, row in track(visits, description=name, console=console):
            kind, own = chosen[row]
            measured = runtime(graph, cluster, Placement(device=own, origin=Origin(placer=kind)))
            assert measured.status == Status.OK, measured.detail
            pass_s[index, row] = measured.step_time_s
    return Agreement(
        model=name,
        framework=model.framework,
        num_ops=graph.num_ops,
        kind=[kind for kind, _ in chosen],
        predicted_s=predicted.step_time_s.tolist(),
        predicted_by_copies_s=by_copies.step_time_s.tolist(),
        pass_s=pass_s.tolist(),
        overlapped_s=(predicted.busy_s.sum(axis=1) - predicted.busy_s.max(axis=1)).tolist(),
        num_transfers=predicted.num_transfers.tolist(),
        transferred_bytes=predicted.transferred_bytes.tolist(),
        copy_latency_s=float(copies.latency_s[0, 1]),
        hand_over_latency_s=hand_overs.latency_s,
    )


def table(found: Sequence[Agreement]) -> Table:
    """A row a model, and its kinds of placements below it."""
    shown = Table()
    for column in (
        "model",
        "placements",
        "measured ms",
        "rank correlation",
        "passes",
        "corrected",
        "median error",
        "90 % below",
        "scaled: median",
        "90 % below",
        "predicted / measured",
    ):
        shown.add_column(column, justify="left" if column == "model" else "right")
    for each in found:
        kinds = np.array(each.kind)
        for name, rows in ((each.model, np.ones(len(kinds), bool)), *((f"  {kind}", kinds == kind) for kind in dict.fromkeys(each.kind))):
            predicted, measured = np.array(each.predicted_s)[rows], np.array(each.measured_s)[rows]
            errors, scaled = each.errors[rows], each.scaled_errors[rows]
            shown.add_row(
                name,
                str(int(rows.sum())),
                f"{measured.min() * 1e3:.1f} to {measured.max() * 1e3:.1f}",
                f"{spearman(predicted, measured):.3f}" if rows.sum() > 2 else "-",
                f"{each.ranks.between_passes:.3f}" if rows.all() else "",
                f"{each.ranks.corrected:.3f}" if rows.all() else "",
                f"{np.median(errors):.1%}",
                f"{np.quantile(errors, 0.9):.1%}",
                f"{np.median(scaled):.1%}",
                f"{np.quantile(scaled, 0.9):.1%}",
                f"{np.median(predicted / measured):.3f}",
            )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=list(runnables()), choices=list(runnables()))
    parser.add_argument("--placements", type=int, default=60)
    parser.add_argument("--passes", type=int, default=4)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    console = Console(width=150)
    cluster = local_cluster(default_core_sets()[:2])
    found = [
        agreement(name, cluster, num_placements=options.placements, num_passes=options.passes, console=console) for name in options.models
    ]
    console.print(table(found))
    frameworks = {
        framework: in_all([each for each in found if each.framework == framework], console)
        for framework in dict.fromkeys(each.framework for each in found)
    }
    rows = [dataclasses.asdict(each) | {"measured_s": each.measured_s} | each.ranks.row() | errors_of([each]) for each in found]
    results = {"environment": environment(), "frameworks": frameworks, "models": rows}
    write_text(options.out, json.dumps(results, indent=1, allow_nan=False) + "\n")
    console.print(f"wrote {options.out}", markup=False)


def in_all(found: Sequence[Agreement], console: Console) -> dict[str, float]:
    """Figures of all placements of one framework's models, their times as shares of their model's median; says them."""

    def shares(seconds: Sequence[Sequence[float]]) -> list[float]:
        return np.concatenate([np.array(each) / np.median(each) for each in seconds]).tolist()

    num_passes = len(found[0].pass_s)
    ranks = Ranks.of(
        shares([each.predicted_s for each in found]),
        shares([each.predicted_by_copies_s for each in found]),
        [shares([each.pass_s[index] for each in found]) for index in range(num_passes)],
    )
    errors = errors_of(found)
    correlations = ", ".join(f"{each.ranks.predicted:.2f}" for each in found)
    corrected = ", ".join(f"{each.ranks.corrected:.2f}" for each in found)
    latencies = ", ".join(f"{each.hand_over_latency_s * 1e6:.0f}" for each in found)
    console.print(
        f"{found[0].framework}: rank correlation {ranks.predicted:.3f} over all ({correlations}) with the mean of {num_passes} passes, {ranks.one_pass:.3f} with one; "
        f"passes with one another {ranks.between_passes:.3f}, so at most {ranks.ceiling:.3f} can be reached, and {ranks.corrected:.3f} of that is ({corrected}); "
        f"median error {errors['median_error']:.1%}, {errors['scaled_median_error']:.1%} with one scale a model; hand-overs take {latencies} us in steps, "
        f"{found[0].copy_latency_s * 1e6:.0f} as copies by themselves, with which the correlation is {ranks.predicted_by_copies:.3f}"
    )
    return ranks.row() | errors


def errors_of(found: Sequence[Agreement]) -> dict[str, float]:
    """Of all placements of these models."""
    errors, scaled = np.concatenate([each.errors for each in found]), np.concatenate([each.scaled_errors for each in found])
    return {
        "median_error": float(np.median(errors)),
        "error_90_percent_below": float(np.quantile(errors, 0.9)),
        "scaled_median_error": float(np.median(scaled)),
        "scaled_error_90_percent_below": float(np.quantile(scaled, 0.9)),
    }


if __name__ == "__main__":
    main()
