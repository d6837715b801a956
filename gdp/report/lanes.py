"""The rows of a timeline: one per device that works, one per link that carries something."""

import dataclasses

import numpy as np
from jaxtyping import Float64, Int32, Int64

from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Timeline
from gdp.report.chain import Chain, channel_of
from gdp.report.quantity import data_size, share

MAX_LINK_LANES = 8


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Lane:
    """Events that share a row."""

    label: str
    detail: str
    event: Int64[np.ndarray, " events"]
    start_s: Float64[np.ndarray, " events"]
    end_s: Float64[np.ndarray, " events"]
    on_chain: Int64[np.ndarray, " _"]
    is_link: bool


def device_lanes(cluster: Cluster, device: Int32[np.ndarray, " ops"], timeline: Timeline, critical: Chain) -> list[Lane]:
    """The devices that work, in their order."""
    lanes = []
    length = float(timeline.op_end_s.max())
    for number, where in enumerate(cluster.devices):
        ops = np.flatnonzero((device == number) & (timeline.op_end_s > timeline.op_start_s))
        if not len(ops):
            continue
        busy = float((timeline.op_end_s[ops] - timeline.op_start_s[ops]).sum())
        lanes.append(
            Lane(
                label=where.name,
                detail=f"busy {share(busy / length)}",
                event=ops,
                start_s=timeline.op_start_s[ops],
                end_s=timeline.op_end_s[ops],
                on_chain=np.intersect1d(critical.ops, ops),
                is_link=False,
            )
        )
    return lanes


def link_lanes(graph: Graph, cluster: Cluster, timeline: Timeline, critical: Chain) -> tuple[list[Lane], list[float]]:
    """The busiest links, busiest first, and the seconds of those left out."""
    carrier = channel_of(cluster, timeline)
    seconds_of = timeline.transfer_end_s - timeline.transfer_start_s
    used = sorted({int(c) for c in carrier}, key=lambda c: (-float(seconds_of[carrier == c].sum()), c))
    lanes = []
    for link in used[:MAX_LINK_LANES]:
        transfers = np.flatnonzero(carrier == link)
        if link < cluster.num_channels:
            label = cluster.channel_name[link]
        else:
            source, destination = divmod(link - cluster.num_channels, cluster.num_devices)
            label = f"{cluster.devices[source].name} → {cluster.devices[destination].name}"
        carried = int(graph.tensor_bytes[timeline.transfer_tensor[transfers]].sum())
        lanes.append(
            Lane(
                label=label,
                detail=data_size(carried),
                event=transfers,
                start_s=timeline.transfer_start_s[transfers],
                end_s=timeline.transfer_end_s[transfers],
                on_chain=critical.transfers[carrier[critical.transfers] == link],
                is_link=True,
            )
        )
    return lanes, [float(seconds_of[carrier == link].sum()) for link in used[MAX_LINK_LANES:]]
