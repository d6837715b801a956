"""A page of realistic data: simulated steps of synthetic programs, with measurements as they would come from real devices."""

import dataclasses
from pathlib import Path

import numpy as np

from gdp.candidate import Candidate
from gdp.cluster import Cluster, preset
from gdp.graph import Graph
from gdp.measurement import Measurement
from gdp.placement import Origin, Placement
from gdp.report import Curve, Level, Probe, ReportData, Section, write_report
from gdp.runtime.roofline import op_time_s
from gdp.runtime.specification import simulate
from gdp.workloads.synthetic import cells, unrolled_rnn


def predict(graph: Graph, cluster: Cluster, device: np.ndarray) -> Measurement:
    placement = Placement(device=device.astype(np.int32), origin=Origin(placer="test"))
    return simulate(graph, cluster, placement, dispatch="ready_order", rank=None)


def earliest_finish(graph: Graph, cluster: Cluster, *, num_devices: int) -> np.ndarray:
    """Each op, in order, where it would end first, channels taken as free."""
    seconds = op_time_s(graph, cluster)
    device, end, free = np.zeros(graph.num_ops, np.int32), np.zeros(graph.num_ops), np.zeros(num_devices)
    tensors: list[list[int]] = [[] for _ in range(graph.num_ops)]
    for tensor, consumer in zip(graph.edge_tensor.tolist(), graph.edge_consumer.tolist(), strict=True):
        tensors[consumer].append(tensor)
    for op in range(graph.num_ops):
        ends = []
        for where in range(num_devices):
            start = free[where]
            for tensor in tensors[op]:
                producer = int(graph.tensor_producer[tensor])
                source = int(device[producer])
                moved = (
                    0.0
                    if source == where
                    else 2e-5 + float(graph.tensor_bytes[tensor]) / float(cluster.bandwidth_bytes_per_s[source, where])
                )
                start = max(start, end[producer] + moved)
            ends.append(start + seconds[op, where])
        device[op] = int(np.argmin(ends))
        end[op] = free[device[op]] = min(ends)
    return device


def as_measured(predicted: Measurement, factor: float) -> Measurement:
    value = predicted.step_time_s * factor
    return dataclasses.replace(
        predicted, step_time_s=value, step_time_low_s=0.97 * value, step_time_high_s=1.035 * value, num_runs=40, timeline=None
    )


def heavier(graph: Graph, factor: float) -> Graph:
    return dataclasses.replace(graph, flops=graph.flops * factor, accessed_bytes=(graph.accessed_bytes * factor).astype(np.int64))


def section(graph: Graph, cluster: Cluster, *, title: str, measured: bool) -> Section:
    generator = np.random.default_rng(0)
    ops = np.arange(graph.num_ops)
    placements = {
        f"single {cluster.devices[0].name}": np.zeros(graph.num_ops),
        "list scheduling": earliest_finish(graph, cluster, num_devices=cluster.num_devices),
        "gdp-tiny, 64 samples": earliest_finish(graph, cluster, num_devices=2),
        "contiguous": ops * cluster.num_devices // graph.num_ops,
        "random": generator.integers(cluster.num_devices, size=graph.num_ops),
    }
    candidates = []
    leader = np.arange(graph.num_ops)
    for group in np.unique(graph.colocation_group[graph.colocation_group >= 0]):
        together = np.flatnonzero(graph.colocation_group == group)
        leader[together] = together[0]
    for (name, free), factor in zip(placements.items(), (1.04, 0.93, 0.97, 1.08, 1.1), strict=True):
        device = free[leader]
        predicted = predict(graph, cluster, device)
        run = as_measured(predicted, factor) if measured else None
        origin = Origin(placer=name, evaluations=64 if "gdp" in name else 0)
        candidates.append(
            Candidate(name=name, placement=Placement(device=device.astype(np.int32), origin=origin), predicted=predicted, measured=run)
        )
    best = min(candidates, key=lambda c: (c.measured or c.predicted).step_time_s)
    reference = candidates[0]
    low, high = best.predicted.step_time_s, reference.predicted.step_time_s
    evaluations = np.arange(8, 1001, 8, dtype=np.int64)
    sampled = low + (high - low) * (0.15 + 1.1 * np.exp(-evaluations / 250.0)) * generator.uniform(0.85, 1.15, len(evaluations))
    best_so_far = np.minimum.accumulate(np.minimum(sampled, low + (high - low) * (0.02 + np.exp(-evaluations / 90.0))))
    return Section(
        title=title,
        graph=graph,
        cluster=cluster,
        num_groups=graph.num_ops // 4,
        objective="step_time",
        candidates=tuple(candidates),
        best=best.name,
        reference=reference.name,
        verdict=f"{best.name} is best, on several devices",
        curves=(Curve(name="fine-tuning", evaluations=evaluations, best_s=best_so_far, mean_sampled_s=sampled),),
        levels=tuple(Level(name=c.name, seconds=c.predicted.step_time_s) for c in candidates if "gdp" not in c.name),
        probes=tuple(
            Probe(name=f"probe {i}", predicted_s=p, measured_s=p * f)
            for i, (p, f) in enumerate(
                zip(generator.uniform(low, 2 * high, 9).tolist(), generator.uniform(0.85, 1.2, 9).tolist(), strict=True)
            )
        )
        if measured
        else (),
        notes=("The machine was quiet: two runs of the same placement differ by 1.2 %.",) if measured else (),
    )


def example() -> ReportData:
    generator = np.random.default_rng(7)
    return ReportData(
        title="Placing an image model and an unrolled recurrent network",
        sections=(
            section(
                heavier(cells(generator, num_ops=600, training=True), 60.0),
                preset("p100x4"),
                title="Cells, a training step",
                measured=True,
            ),
            section(unrolled_rnn(generator, num_ops=3000), preset("unequal"), title="Unrolled RNN, inference", measured=False),
        ),
        environment={"gdp": "0.1.0", "Python": "3.11", "machine": "4 × P100", "seed": "0", "command": "gdp place cells --cluster p100x4"},
    )


if __name__ == "__main__":
    write_report(Path("report.html"), example())
