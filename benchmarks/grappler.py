"""The simulator beside TensorFlow's own estimate of a placed step, grappler's virtual cluster: how well they agree, and what makes the difference.

    python benchmarks/grappler.py [--graphs NAMES] [--per-kind 50] [--cluster p100x4] [--out benchmarks/results/grappler.json]

On each graph the step times of placements of every kind are compared, first with each tool's own costs, then with more and more of grappler's given to the simulator: its
operations without overhead, its sum of arithmetic and traffic in place of the larger, its seconds of every op, and at last its free transfers. Graphs that the file already
holds and that are not named keep their figures.
"""

import argparse
import dataclasses
import json
import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from gdp.atomic_file import write_text
from gdp.baselines.contiguous import contiguous_splits
from gdp.baselines.list_scheduling import list_schedules
from gdp.baselines.local_search import LocalSearch
from gdp.baselines.metis import metis_partitions
from gdp.baselines.quotient import quotient, stage_order
from gdp.baselines.round_robin import round_robin
from gdp.baselines.schedule_variants import Variant
from gdp.baselines.single_device import single_devices
from gdp.capture import tensorflow as capture
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster, preset
from gdp.graph import Graph
from gdp.measurement import MeasurementBatch
from gdp.placement import Placement
from gdp.report.scatter import rank_correlation
from gdp.runtime.grappler import Grappler
from gdp.runtime.grappler_item import device_name, grappler_item
from gdp.runtime.roofline import op_time_s
from gdp.runtime.simulator import Simulator
from gdp.workloads.bert import bert_training
from gdp.workloads.resnet import resnet_training
from gdp.workloads.rnnlm import rnnlm_training
from gdp.workloads.transformer_xl import transformer_xl_training
from gdp.workloads.vgg import vgg_training
from gdp.workloads.wavenet import wavenet_training

RESULTS = Path(__file__).parent / "results" / "grappler.json"
GRAPHS: dict[str, Callable[[], Graph]] = {
    "vgg-16-training": vgg_training,
    "transformer-xl-2-training": transformer_xl_training,
    "wavenet-9-training": lambda: wavenet_training(1),
    "bert-2-training": lambda: bert_training(2),
    "rnnlm-2-training, 10 steps": lambda: rnnlm_training(2, num_steps=10),
    "resnet-50-training": resnet_training,
}
"""Those of the papers' suite that grappler estimates in a second or two, and smaller ones of the same programs."""

SCATTERED = {"2 % scattered": 0.02, "20 % scattered": 0.2, "random": 1.0}
"""Shares of the groups of a contiguous placement that are moved to random devices."""

Agreement = dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", default=";".join(GRAPHS), help="separated by semicolons")
    parser.add_argument("--per-kind", type=int, default=50)
    parser.add_argument("--cluster", default="p100x4")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for name in arguments.graphs.split(";"):
        found = compared(GRAPHS[name], preset(arguments.cluster), per_kind=arguments.per_kind)
        document = json.loads(arguments.out.read_text()) if arguments.out.exists() else {"graphs": {}}
        document |= {
            "python": platform.python_version(),
            "tensorflow": capture.import_tensorflow().__version__,
            "cluster": arguments.cluster,
        }
        document["graphs"][name] = found
        write_text(arguments.out, json.dumps(document, indent=1, allow_nan=False) + "\n")
        table = Table("simulator", "Spearman", "Kendall", "median error", "largest error", title=name)
        for row, agreement in found["agreement"].items():
            table.add_row(row, *(f"{agreement[key]:.4f}" for key in ("spearman", "kendall", "median_error", "largest_error")))
        Console(width=140).print(table)


def compared(build: Callable[[], Graph], cluster: Cluster, *, per_kind: int) -> dict[str, Any]:
    """All figures of one graph."""
    graph, graph_def = captured(build)
    by_kind = placements(graph, cluster, count=per_kind, generator=np.random.default_rng(0))
    device = np.concatenate(list(by_kind.values()))
    kind = np.repeat(list(by_kind), [len(rows) for rows in by_kind.values()])
    grappler = Grappler(graph_def=graph_def)
    judged = grappler.batch(graph, cluster, device)
    alone = Grappler(graph_def=graph_def, transfers_take_time=False, ties="name").batch(graph, cluster, device)
    some = np.concatenate([np.flatnonzero(kind == one)[: max(1, per_kind // 5)] for one in by_kind])
    by_name = Grappler(graph_def=graph_def, ties="name").batch(graph, cluster, device[some])
    by_number = Grappler(graph_def=graph_def, transfers_take_time=False).batch(graph, cluster, device[some])
    costs = grappler.op_time_s(graph, cluster)
    same = graph.with_measured_time(costs)
    simulator = Simulator()
    own = simulator.batch(graph, cluster, device)
    controlled = simulator.batch(same, cluster, device)
    no_overhead = _without_overhead(cluster)
    against: dict[str, tuple[MeasurementBatch, MeasurementBatch]] = {
        "own costs | grappler left to itself": (own, alone),
        "own costs | transfers take time": (own, judged),
        "no overhead | transfers take time": (simulator.batch(graph, no_overhead, device), judged),
        "no overhead, sum | transfers take time": (simulator.batch(_summed(graph, cluster), no_overhead, device), judged),
        "grappler's costs | transfers take time": (controlled, judged),
        "grappler's costs | transfers take time, ties by name": (simulator.batch(same, cluster, device[some]), by_name),
        "grappler's costs, free transfers | grappler left to itself": (simulator.batch(same, _free(cluster), device), alone),
        "grappler's costs, free transfers | grappler left to itself, ties by number": (
            simulator.batch(same, _free(cluster), device[some]),
            by_number,
        ),
        "grappler, transfers take time | grappler left to itself": (judged, alone),
    }
    return {
        "source": graph.source,
        "num_ops": graph.num_ops,
        "placements": {name: len(rows) for name, rows in by_kind.items()},
        "agreement": {name: agreement(ours.step_time_s, theirs.step_time_s) for name, (ours, theirs) in against.items()},
        "by_kind": {
            one: {
                "own costs": agreement(own.step_time_s[kind == one], judged.step_time_s[kind == one]),
                "grappler's costs": agreement(controlled.step_time_s[kind == one], judged.step_time_s[kind == one]),
                "median_step_time_s": float(np.median(judged.step_time_s[kind == one])),
            }
            for one in by_kind
        },
        "same_transfers": bool(
            (judged.num_transfers == own.num_transfers).all() and (judged.transferred_bytes == own.transferred_bytes).all()
        ),
        "bottleneck": agreement(controlled.bottleneck_s, judged.bottleneck_s),
        "op_costs": op_costs(graph, cluster, costs[cluster.kinds[0]]),
        "memory": memory(graph, graph_def, same, cluster, judged, own),
    }


def captured(build: Callable[[], Graph]) -> tuple[Graph, Any]:
    """A workload's graph and the GraphDef it was captured from: a builder returns the graph alone, so its call of `lower` is listened to."""
    lowered = []
    lower = capture.lower

    def listening(concrete_function: Any) -> Any:
        lowered.append(lower(concrete_function))
        return lowered[-1]

    with mock.patch.object(capture, "lower", listening):
        graph = build()
    return graph, lowered[-1].graph_def


def placements(graph: Graph, cluster: Cluster, *, count: int, generator: np.random.Generator) -> dict[str, np.ndarray]:
    """`[at most count, ops]` placements of every kind."""
    grouping = coarsen(graph)
    balanced = contiguous_splits(graph, cluster)[-1]
    schedules = [schedule.device for schedule in list_schedules(graph, cluster)]

    def scattered(share: float) -> np.ndarray:
        moved = generator.random(grouping.num_groups) < share
        elsewhere = grouping.expand(generator.integers(cluster.num_devices, size=grouping.num_groups, dtype=np.int32))
        return np.where(grouping.expand(moved.astype(np.int32)) > 0, elsewhere, balanced)

    return {
        "single device": single_devices(graph, cluster)[:count],
        "contiguous": np.stack([_contiguous(graph, cluster, generator) for _ in range(count)]),
        "METIS": metis_partitions(graph, cluster, count=count, seed=0),
        "round robin": np.stack([_round_robin(graph, cluster, generator) for _ in range(count)]),
        "list scheduled": np.stack(schedules[:count]),
        "local search": _visited(graph, cluster, count=count),
        **{name: np.stack([scattered(share) for _ in range(count)]).astype(np.int32) for name, share in SCATTERED.items()},
    }


def _contiguous(graph: Graph, cluster: Cluster, generator: np.random.Generator) -> np.ndarray:
    """Consecutive stages, cut at random."""
    grouping = coarsen(graph)
    order = stage_order(graph, grouping)
    work = np.cumsum(quotient(graph, cluster, grouping).time_s.mean(axis=1)[order])
    cuts = np.sort(generator.random(int(generator.integers(1, cluster.num_devices)))) * work[-1]
    group_device = np.empty(grouping.num_groups, np.int32)
    group_device[order] = np.searchsorted(cuts, work)
    return grouping.expand(group_device)


def _round_robin(graph: Graph, cluster: Cluster, generator: np.random.Generator) -> np.ndarray:
    """Groups of a random grain dealt out to two devices or more."""
    allowed = np.arange(cluster.num_devices) < generator.integers(2, cluster.num_devices + 1)
    grouping = coarsen(graph, max_groups=int(np.exp(generator.uniform(np.log(8), np.log(graph.num_ops)))))
    return round_robin(graph, cluster, Variant(grouping=grouping, allowed=allowed, option=bool(generator.integers(2)))).device


def _visited(graph: Graph, cluster: Cluster, *, count: int) -> np.ndarray:
    """Placements that a search of 1 000 evaluations goes through after its starting points, evenly spaced."""
    rows: list[np.ndarray] = []
    simulator = Simulator()

    class Recording:
        def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Any:
            return simulator(graph, cluster, placement)

        def batch(self, graph: Graph, cluster: Cluster, device: np.ndarray) -> MeasurementBatch:
            if len(device) == 1:
                rows.append(device[0])
            return simulator.batch(graph, cluster, device)

    LocalSearch(runtime=Recording(), evaluations=1000, seed=0)(graph, cluster)
    return np.stack(rows)[np.linspace(0, len(rows) - 1, count).astype(int)]


def agreement(ours: np.ndarray, theirs: np.ndarray) -> Agreement:
    """Rank correlations and relative errors of finite values, the error over theirs; correlations are left out where one side does not vary."""
    both = np.isfinite(ours) & np.isfinite(theirs)
    ours, theirs = ours[both], theirs[both]
    error = np.abs(ours - theirs) / theirs
    found = {"count": float(len(ours)), "median_error": float(np.median(error)), "largest_error": float(error.max())}
    found["median_ratio"] = float(np.median(ours / theirs))
    if np.ptp(ours) > 0 and np.ptp(theirs) > 0:
        found |= {"spearman": rank_correlation(ours, theirs), "kendall": kendall(ours, theirs)}
    return found


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Kendall's tau-b: pairs in the same order less pairs in opposite order, over the geometric mean of the pairs not tied on either side."""
    order_a, order_b = (np.sign(np.subtract.outer(values, values)) for values in (a, b))
    return float((order_a * order_b).sum() / np.sqrt(np.abs(order_a).sum() * np.abs(order_b).sum()))


def _without_overhead(cluster: Cluster) -> Cluster:
    return dataclasses.replace(cluster, devices=tuple(dataclasses.replace(device, op_overhead_s=0.0) for device in cluster.devices))


def _summed(graph: Graph, cluster: Cluster) -> Graph:
    """With the sum of arithmetic and memory traffic as every op's time, without overhead."""
    seconds = {}
    for device in cluster.devices:
        seconds[device.kind] = graph.flops / device.flops_per_s["float32"] + graph.accessed_bytes / device.memory_bytes_per_s
    return graph.with_measured_time(seconds)


def _free(cluster: Cluster) -> Cluster:
    """With transfers of two nanoseconds, grappler's send and receive, as many at once as one likes."""
    return dataclasses.replace(
        cluster,
        bandwidth_bytes_per_s=np.full_like(cluster.bandwidth_bytes_per_s, np.inf),
        latency_s=np.full_like(cluster.latency_s, 2e-9),
        channel=np.full_like(cluster.channel, Cluster.NO_CHANNEL),
    )


def op_costs(graph: Graph, cluster: Cluster, theirs: np.ndarray) -> dict[str, Any]:
    """Agreement of the seconds of single ops, and the op types that differ most in all; overhead left out."""
    ours = op_time_s(graph, _without_overhead(cluster))[:, 0]
    device = cluster.devices[0]
    summed = graph.flops / device.flops_per_s["float32"] + graph.accessed_bytes / device.memory_bytes_per_s
    works = (ours > 0) & (theirs > 2e-9)
    alike = np.abs(summed - theirs) <= 0.01 * theirs + 2e-9
    types = np.array(graph.op_type)
    table = [
        {
            "op_type": str(one),
            "ops": int((types == one).sum()),
            "simulator_s": float(ours[types == one].sum()),
            "summed_s": float(summed[types == one].sum()),
            "grappler_s": float(theirs[types == one].sum()),
        }
        for one in np.unique(types)
    ]
    table.sort(key=lambda row: -abs(float(row["summed_s"]) - float(row["grappler_s"])))  # type: ignore[arg-type]
    return {
        **agreement(ours[works], theirs[works]),
        "simulator_s": float(ours.sum()),
        "overhead_s": float((op_time_s(graph, cluster)[:, 0] - ours).sum()),
        "summed_s": float(summed.sum()),
        "grappler_s": float(theirs.sum()),
        "ops_that_only_one_counts": int(((ours > 0) != (theirs > 2e-9)).sum()),
        "share_of_ops_equal_once_summed": float(alike[works].mean()),
        "share_of_seconds_equal_once_summed": float(theirs[works & alike].sum() / theirs.sum()),
        "types": table[:8],
    }


def memory(graph: Graph, graph_def: Any, same: Graph, cluster: Cluster, judged: MeasurementBatch, own: MeasurementBatch) -> dict[str, Any]:
    """Agreement of peaks over placements and devices, and on one device the simulator's peak with and without what grappler's scheduler does not count."""
    used = (judged.peak_memory_bytes > 0) & (own.peak_memory_bytes > 0)
    one = np.zeros((1, graph.num_ops), np.int32)
    read = np.array([op_type == "ReadVariableOp" for op_type in graph.op_type])
    unread = dataclasses.replace(same, tensor_bytes=np.where(read[graph.tensor_producer], 0, graph.tensor_bytes))
    no_variables = dataclasses.replace(unread, param_bytes=np.zeros_like(graph.param_bytes))
    peaks = {"simulator": same, "simulator, reads of variables free": unread, "simulator, neither reads nor variables": no_variables}
    return {
        "all": agreement(own.peak_memory_bytes[used].astype(float), judged.peak_memory_bytes[used].astype(float)),
        "one device": {
            **{name: int(Simulator().batch(which, cluster, one).peak_memory_bytes[0, 0]) for name, which in peaks.items()},
            "grappler's scheduler": _scheduler_peak_bytes(graph, graph_def, cluster),
            "grappler's memory analysis": int(judged.peak_memory_bytes[0, 0] - graph.param_bytes.sum()),
            "variables": int(graph.param_bytes.sum()),
        },
    }


def _scheduler_peak_bytes(graph: Graph, graph_def: Any, cluster: Cluster) -> int:
    """What grappler's scheduler holds at the peak of a step on one device: it says so where a device of a single byte is too small."""
    from tensorflow.python.framework.errors import ResourceExhaustedError
    from tensorflow.python.grappler import cluster as grappler_cluster
    from tensorflow.python.grappler import item as grappler_program

    item = grappler_item(graph_def, graph, cluster, np.zeros(graph.num_ops, np.int32), transfers_take_time=True, ties="number")
    next(device for device in item.devices if device.name == device_name(0)).properties.memory_size = 1
    with grappler_cluster.Provision(devices=item.devices) as virtual:
        try:
            virtual.MeasureCosts(grappler_program.Item(item.meta_graph))
        except ResourceExhaustedError as error:
            found = re.search(r"requires (\d+) bytes", str(error))
            assert found is not None
            return int(found[1])
    raise AssertionError("a device of one byte was large enough")


if __name__ == "__main__":
    main()
