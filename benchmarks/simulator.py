"""How fast the simulator is: ops and evaluations per second, beside its Python specification and the fastest published one.

Random placements on four equal devices behind one shared channel, with memory accounting: every tensor that is cut waits for the same bus. A BERT encoder of as many ops
as the graph of the published figure also gets placements as placers make them. Last, what a timeline costs. One core and two take turns: what two are worth is the median of
the ratios of neighbouring turns. Writes `benchmarks/results/simulator.json`, with the machine, its load and the versions that the figures hold for.

    python benchmarks/simulator.py [--seconds 10] [--out benchmarks/results/simulator.json]
"""

import argparse
import dataclasses
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.contiguous import Contiguous
from gdp.baselines.heft import Heft
from gdp.baselines.metis import metis_partitions
from gdp.bundled import bundled
from gdp.capture.parquet import read_graph
from gdp.cluster import Cluster, Device
from gdp.graph import Graph
from gdp.placement import Origin, Placement
from gdp.runtime.simulator import Simulator
from gdp.runtime.specification import simulate
from gdp.runtime.timing import Interval, Protocol, compare_times, in_turn
from gdp.workloads.torch_models import transformer_encoder

PLACETO_EVALUATIONS_PER_S = 280
"""Placeto's simulator (Addanki et al., NeurIPS 2019) on a BERT graph of 783 ops, as published; it was not run here."""

PLACETO_OPS = 783
BERT_LAYERS = 37
"""A captured layer has 21 ops and the rest of the model 6: so many layers make 783."""

MOVED_OPS = 8
TURN_S = 0.2
"""One core runs batches for so long, then two do: a core that was idle is slower at first, and who searches sends one batch after the other."""
MAX_PAIRS = 1_000
"""of turns; `--seconds` ends them before."""
RESULTS = Path(__file__).parent / "results" / "simulator.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speed:
    """What was measured on one graph."""

    graph: str
    num_ops: int
    num_edges: int
    transfers_per_op: float
    one_core_ops_per_s: float
    two_cores_ops_per_s: float
    two_cores_over_one: float
    two_cores_over_one_low: float
    two_cores_over_one_high: float
    evaluations_per_s: float
    """on one core."""
    times_specification: float
    """one core over the specification in plain Python."""


def layered_graph(generator: np.random.Generator, *, num_ops: int, ops_per_layer: int = 50) -> Graph:
    """A layered random graph: each op reads one to three tensors, mostly of the layer before."""
    reader = np.repeat(np.arange(num_ops), generator.integers(1, 4, num_ops))
    back = np.minimum(generator.geometric(0.7, len(reader)), 4)
    producer = (reader // ops_per_layer - back) * ops_per_layer + generator.integers(0, ops_per_layer, len(reader))
    edges = np.unique(np.stack([producer, reader], axis=1)[producer >= 0], axis=0).astype(np.int32)
    return Graph(
        op_type=("op",) * num_ops,
        name=tuple(map(str, range(num_ops))),
        module_path=("",) * num_ops,
        flops=generator.uniform(1e6, 1e9, num_ops),
        accessed_bytes=generator.integers(1_000, 10_000_000, num_ops),
        param_bytes=generator.integers(0, 1_000_000, num_ops),
        temp_bytes=generator.integers(0, 1_000_000, num_ops),
        phase=np.zeros(num_ops, np.int8),
        colocation_group=np.full(num_ops, Graph.NO_GROUP, np.int32),
        tensor_producer=np.arange(num_ops, dtype=np.int32),
        tensor_bytes=generator.integers(1_000, 1_000_000, num_ops),
        tensor_shape=((-1,),) * num_ops,
        tensor_dtype=("float32",) * num_ops,
        edge_tensor=np.ascontiguousarray(edges[:, 0]),
        edge_consumer=np.ascontiguousarray(edges[:, 1]),
        source=f"layered random graph of {num_ops} ops",
    )


def four_on_one_bus() -> Cluster:
    """Four GPUs of the P100's speed and 16 GiB, all of whose pairs share one PCIe root."""
    gpu = Device(
        name="gpu0", kind="p100", memory_bytes=16 * 2**30, flops_per_s={"float32": 9.3e12}, memory_bytes_per_s=7.3e11, op_overhead_s=5e-6
    )
    return Cluster(
        name="p100x4 on one bus",
        devices=tuple(dataclasses.replace(gpu, name=f"gpu{number}") for number in range(4)),
        bandwidth_bytes_per_s=np.full((4, 4), 1.2e10),
        latency_s=np.full((4, 4), 1e-5),
        channel=np.zeros((4, 4), np.int32),
        channel_name=("pcie",),
    )


def random_placements(generator: np.random.Generator, graph: Graph, *, batch: int) -> np.ndarray:
    """`[batch, ops]` devices, one per colocation group."""
    device = generator.integers(0, 4, (batch, graph.num_ops)).astype(np.int32)
    for group in np.unique(graph.colocation_group[graph.colocation_group != Graph.NO_GROUP]):
        members = np.flatnonzero(graph.colocation_group == group)
        device[:, members] = device[:, members[:1]]
    return device


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchTimes:
    """Seconds of a batch on one core and on two: those of the fastest turn, so that other work on the machine disturbs them least, and their ratio over neighbouring turns."""

    one_core_s: float
    two_cores_s: float
    gain: Interval


def timed(graph: Graph, cluster: Cluster, device: np.ndarray, *, within_s: float) -> BatchTimes:
    """Simulates the batch on one core and on two in turn, within about `within_s`."""

    def batches(simulator: Simulator) -> Callable[[], float]:
        def turn() -> float:
            """Seconds of a batch, in the mean over a turn, whose first batch does not count."""
            simulator.batch(graph, cluster, device)
            start, count = time.perf_counter(), 0
            while not count or time.perf_counter() - start < TURN_S:
                simulator.batch(graph, cluster, device)
                count += 1
            return (time.perf_counter() - start) / count

        return turn

    protocol = Protocol(max_warm_up=1, max_pairs=MAX_PAIRS, precision=0.0, clearly_slower=np.inf, max_time_s=within_s)
    two_s, one_s = in_turn(batches(Simulator(num_threads=2)), batches(Simulator()), protocol)
    return BatchTimes(one_core_s=min(one_s), two_cores_s=min(two_s), gain=compare_times(two_s, one_s).speed_up)


def speed_of(graph: Graph, cluster: Cluster, *, name: str, within_s: float) -> Speed:
    """Measures one graph."""
    batch = max(16, min(256, 400_000 // graph.num_ops))
    device = random_placements(np.random.default_rng(0), graph, batch=batch)
    measured = Simulator().batch(graph, cluster, device)
    times = timed(graph, cluster, device, within_s=within_s)
    placement = Placement(device=device[0].copy(), origin=Origin(placer="random"))
    start = time.perf_counter()
    specified = simulate(graph, cluster, placement, dispatch="ready_order", rank=None)
    specification_s = time.perf_counter() - start
    assert specified.step_time_s == measured.step_time_s[0]
    return Speed(
        graph=name,
        num_ops=graph.num_ops,
        num_edges=graph.num_edges,
        transfers_per_op=float(measured.num_transfers.mean() / graph.num_ops),
        one_core_ops_per_s=batch * graph.num_ops / times.one_core_s,
        two_cores_ops_per_s=batch * graph.num_ops / times.two_cores_s,
        two_cores_over_one=times.gain.median,
        two_cores_over_one_low=times.gain.low,
        two_cores_over_one_high=times.gain.high,
        evaluations_per_s=batch / times.one_core_s,
        times_specification=batch / times.one_core_s * specification_s,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BertSpeed:
    """Evaluations per second of the BERT encoder of `PLACETO_OPS` ops, for placements of one kind, no two of them alike."""

    placements: str
    transfers_per_op: float
    one_core_evaluations_per_s: float
    two_cores_evaluations_per_s: float
    two_cores_over_one: float
    one_core_times_placeto: float
    two_cores_times_placeto: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimelineCost:
    """Seconds of one call on the layered graph of 10 000 ops, of the fastest calls, taken in turn."""

    without_timeline_s: float
    with_timeline_s: float


def bert_encoder() -> Graph:
    """The forward step of a BERT encoder as PyTorch exports it: BERT-base's layers (width 768, 12 heads, 128 tokens, batch 32), as many as give `PLACETO_OPS` ops."""
    graph = transformer_encoder(num_layers=BERT_LAYERS, width=768, num_heads=12, length=128, batch_size=32, vocabulary=30_522)
    assert graph.num_ops == PLACETO_OPS
    return graph


def bert_placements(graph: Graph, cluster: Cluster, *, batch: int) -> dict[str, np.ndarray]:
    """`[batch, ops]` by kind: at random; METIS from `batch` starts; a contiguous split and a list schedule (HEFT), each row with `MOVED_OPS` ops moved at random."""
    generator = np.random.default_rng(0)

    def moved(placement: Placement) -> np.ndarray:
        device = np.repeat(placement.device[np.newaxis], batch, axis=0)
        for row in device:
            row[generator.integers(0, graph.num_ops, MOVED_OPS)] = generator.integers(0, cluster.num_devices, MOVED_OPS)
        return device

    return {
        "random": random_placements(generator, graph, batch=batch),
        "METIS": metis_partitions(graph, cluster, count=batch, seed=0),
        "contiguous, 8 ops moved": moved(Contiguous()(graph, cluster)),
        "HEFT, 8 ops moved": moved(Heft()(graph, cluster)),
    }


def bert_speeds(cluster: Cluster, *, within_s: float) -> list[BertSpeed]:
    """Measures the BERT encoder under placements of every kind."""
    graph, batch, speeds = bert_encoder(), 256, []
    for name, device in bert_placements(graph, cluster, batch=batch).items():
        measured = Simulator().batch(graph, cluster, device)
        times = timed(graph, cluster, device, within_s=within_s)
        speeds.append(
            BertSpeed(
                placements=name,
                transfers_per_op=float(measured.num_transfers.mean() / graph.num_ops),
                one_core_evaluations_per_s=batch / times.one_core_s,
                two_cores_evaluations_per_s=batch / times.two_cores_s,
                two_cores_over_one=times.gain.median,
                one_core_times_placeto=batch / times.one_core_s / PLACETO_EVALUATIONS_PER_S,
                two_cores_times_placeto=batch / times.two_cores_s / PLACETO_EVALUATIONS_PER_S,
            )
        )
    return speeds


def timeline_cost(cluster: Cluster) -> TimelineCost:
    """What a timeline costs the call that asks for it. Who does not ask runs a kernel that was compiled without a line of it."""
    graph = layered_graph(np.random.default_rng(10_000), num_ops=10_000)
    placement = Placement(device=random_placements(np.random.default_rng(0), graph, batch=1)[0], origin=Origin(placer="random"))
    seconds = {False: np.inf, True: np.inf}
    for with_timeline in (False, True) * 50:
        simulator = Simulator(with_timeline=with_timeline)
        start = time.perf_counter()
        simulator(graph, cluster, placement)
        seconds[with_timeline] = min(seconds[with_timeline], time.perf_counter() - start)
    return TimelineCost(without_timeline_s=seconds[False], with_timeline_s=seconds[True])


def processor() -> str:
    """The processor's name."""
    description = Path("/proc/cpuinfo")
    lines = description.read_text().splitlines() if description.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def main() -> None:
    """Measures, prints the tables, and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--seconds", type=float, default=10.0, help="for each graph, and for each kind of placement of the BERT encoder (default: 10)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    cluster = four_on_one_bus()
    graphs = {
        f"layered {size:,}": layered_graph(np.random.default_rng(size), num_ops=size)
        for size in (PLACETO_OPS, 1_000, 10_000, 50_000, 500_000)
    }
    inception = bundled("datasets") / "inception_v3_training.parquet"
    if inception.exists():
        graphs = {"Inception-V3 training step": read_graph(inception), **graphs}
    table = Table(
        "graph", "ops", "edges", "transfers/op", "1 core, M ops/s", "2 cores, M ops/s", "2 cores / 1", "evaluations/s", "x Python"
    )
    speeds = []
    for name, graph in graphs.items():
        speed = speed_of(graph, cluster, name=name, within_s=options.seconds)
        speeds.append(speed)
        table.add_row(
            name,
            f"{speed.num_ops:,}",
            f"{speed.num_edges:,}",
            f"{speed.transfers_per_op:.2f}",
            f"{speed.one_core_ops_per_s / 1e6:.2f}",
            f"{speed.two_cores_ops_per_s / 1e6:.2f}",
            f"{speed.two_cores_over_one:.2f} [{speed.two_cores_over_one_low:.2f}, {speed.two_cores_over_one_high:.2f}]",
            f"{speed.evaluations_per_s:,.0f}",
            f"{speed.times_specification:.0f}",
        )
    console = Console(width=140)
    console.print(table)
    berts = bert_speeds(cluster, within_s=options.seconds)
    table = Table(
        "BERT encoder, 783 ops, placements",
        "transfers/op",
        "1 core, evaluations/s",
        "x Placeto",
        "2 cores, evaluations/s",
        "x Placeto",
        "2 cores / 1",
    )
    for bert in berts:
        table.add_row(
            bert.placements,
            f"{bert.transfers_per_op:.2f}",
            f"{bert.one_core_evaluations_per_s:,.0f}",
            f"{bert.one_core_times_placeto:.0f}",
            f"{bert.two_cores_evaluations_per_s:,.0f}",
            f"{bert.two_cores_times_placeto:.0f}",
            f"{bert.two_cores_over_one:.2f}",
        )
    console.print(table)
    timeline = timeline_cost(cluster)
    console.print(
        f"one call, 10,000 ops: {timeline.without_timeline_s * 1e3:.2f} ms, with its timeline {timeline.with_timeline_s * 1e3:.2f} ms"
    )
    document = {
        "environment": {
            "processor": processor(),
            "python": platform.python_version(),
            "numba": numba.__version__,
            "numpy": np.__version__,
            "system": platform.system(),
            "load_before": load,
            "load_after": os.getloadavg()[0],
        },
        "cluster": cluster.name,
        "speeds": [dataclasses.asdict(speed) for speed in speeds],
        "bert": [dataclasses.asdict(bert) for bert in berts],
        "timeline": dataclasses.asdict(timeline),
    }
    write_text(options.out, json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
