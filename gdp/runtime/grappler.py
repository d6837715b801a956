"""TensorFlow's own estimate of a placed step, by grappler's virtual cluster: an independent judge of placements of TensorFlow graphs, on devices that need not be there.

Where it counts otherwise than `gdp.runtime.simulator` is measured in docs/simulator.md.
"""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Measurement, MeasurementBatch, Status, stack
from gdp.placement import Origin, Placement
from gdp.runtime.grappler_item import GrapplerItem, Ties, device_name, grappler_item
from gdp.runtime.simulated import invalid_measurement
from gdp.runtime.verdict import invalid_detail, out_of_memory_detail


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Grappler:
    """Estimates steps of one TensorFlow program by grappler's virtual cluster.

    An op takes the sum of its arithmetic at the device's float32 speed and its memory traffic, in whole nanoseconds and at least one; types that grappler has no formula for do
    no arithmetic, and there is no overhead. A device takes the op that became ready first. Peaks are those of grappler's memory analysis, which rounds moments to
    microseconds and counts copies from elsewhere only while they arrive, and the variables beside them, which it leaves out.

    Raises `InputError` when an op of the graph is no node of the GraphDef.
    """

    graph_def: Any
    """the GraphDef that the graphs were captured from; for a concrete function `lower(concrete_function).graph_def`."""
    transfers_take_time: bool = True
    """whether transfers take the cluster's latency and bandwidth and contend for its channels. Left to itself, grappler gives each 1 ns, whatever its size, and lets
    control dependencies between devices go unheeded where an op has other inputs."""
    ties: Ties = "number"
    """which of the ops that became ready at one moment goes first. Left to itself, grappler takes the first by name."""

    def __call__(self, graph: Graph, cluster: Cluster, placement: Placement) -> Measurement:
        """One estimated step."""
        invalid = invalid_detail(graph, cluster, placement.device)
        if invalid:
            return invalid_measurement(cluster, invalid)
        item = self._item(graph, cluster, placement.device)
        step_stats, peak = _estimate(item, cluster)
        resident = np.bincount(placement.device, weights=graph.param_bytes, minlength=cluster.num_devices).astype(np.int64)
        detail = out_of_memory_detail(cluster, peak + resident)
        busy_s = {one.device: sum(node.all_end_rel_nanos for node in one.node_stats) * 1e-9 for one in step_stats.dev_stats}
        end_s = max(node.all_start_nanos + node.all_end_rel_nanos for one in step_stats.dev_stats for node in one.node_stats) * 1e-9
        step_time_s = np.inf if detail else end_s
        return Measurement(
            status=Status.OUT_OF_MEMORY if detail else Status.OK,
            detail=detail,
            step_time_s=step_time_s,
            step_time_low_s=step_time_s,
            step_time_high_s=step_time_s,
            num_runs=1,
            bottleneck_s=np.inf if detail else max(busy_s.get(name, 0.0) for name in item.contended),
            peak_memory_bytes=peak + resident,
            busy_s=np.array([busy_s.get(device_name(number), 0.0) for number in range(cluster.num_devices)]),
            num_transfers=item.num_transfers,
            transferred_bytes=item.transferred_bytes,
        )

    def batch(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, "batch placed"]) -> MeasurementBatch:
        """Estimated steps of many placements (at least one), one after the other."""
        return stack([self(graph, cluster, Placement(device=row, origin=Origin(placer="given"))) for row in device])

    def op_time_s(self, graph: Graph, cluster: Cluster) -> dict[str, Float64[np.ndarray, " ops"]]:
        """Grappler's seconds of every op on each kind of device, as `Graph.with_measured_time` takes them."""
        seconds = {}
        for kind in cluster.kinds:
            number = next(number for number, device in enumerate(cluster.devices) if device.kind == kind)
            item = self._item(graph, cluster, np.full(graph.num_ops, number, np.int32))
            step_stats, _ = _estimate(item, cluster)
            took_s = {node.node_name: node.all_end_rel_nanos * 1e-9 for one in step_stats.dev_stats for node in one.node_stats}
            seconds[kind] = np.array([took_s[name] for name in item.node])
        return seconds

    def _item(self, graph: Graph, cluster: Cluster, device: Int32[np.ndarray, " ops"]) -> GrapplerItem:
        return grappler_item(self.graph_def, graph, cluster, device, transfers_take_time=self.transfers_take_time, ties=self.ties)


def _estimate(item: GrapplerItem, cluster: Cluster) -> tuple[Any, Int64[np.ndarray, " devices"]]:
    """Grappler's `StepStats`, and its bytes at the peak of each device of the cluster."""
    from tensorflow.python.grappler import cluster as grappler_cluster
    from tensorflow.python.grappler import item as grappler_program

    program = grappler_program.Item(item.meta_graph)
    with grappler_cluster.Provision(devices=item.devices, disable_timeline=False) as virtual:
        _, _, step_stats = virtual.MeasureCosts(program)
        peaks = virtual.DeterminePeakMemoryUsage(program)
    # A device without ops has -1.
    return step_stats, np.array([max(0, peaks[device_name(number)][0]) for number in range(cluster.num_devices)], np.int64)
