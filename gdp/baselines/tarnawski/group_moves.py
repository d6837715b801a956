"""An instance as the arrays that searches over splits read: what each group of a colour costs, who is beside it, and whose transfers its place decides."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int64

from gdp.baselines.tarnawski.groups import colour_groups
from gdp.capture.tarnawski_instance import TarnawskiInstance


class GroupMoves(NamedTuple):
    """Lists per group or node lie together in one array, from one offset to the next."""

    group_of_node: Int64[np.ndarray, " nodes"]
    runs_on_accelerator: Bool[np.ndarray, " groups"]
    accelerator_s: Float64[np.ndarray, " groups"]
    cpu_s: Float64[np.ndarray, " groups"]
    size_bytes: Float64[np.ndarray, " groups"]
    transfer_s: Float64[np.ndarray, " nodes"]
    neighbour_start: Int64[np.ndarray, " groups_and_end"]
    neighbour: Int64[np.ndarray, " neighbours"]
    """other groups that share an edge with a group."""
    reader_start: Int64[np.ndarray, " nodes_and_end"]
    reader: Int64[np.ndarray, " readers"]
    """other groups that read a node which takes time to send, each once."""
    sender_start: Int64[np.ndarray, " groups_and_end"]
    sender: Int64[np.ndarray, " senders"]
    """a group's own nodes that have a reader."""
    source_start: Int64[np.ndarray, " groups_and_end"]
    source: Int64[np.ndarray, " readers"]
    """the nodes of which a group is a reader."""


def group_moves(instance: TarnawskiInstance) -> GroupMoves:
    """The arrays of `instance`; its groups are the colours, and the nodes without one."""
    group = colour_groups(instance).group_of_node.astype(np.int64)
    count = int(group.max()) + 1
    ends = np.stack([group[instance.edge_from], group[instance.edge_to]], axis=1)
    crosses = ends[:, 0] != ends[:, 1]
    beside = np.unique(np.concatenate([ends[crosses], ends[crosses][:, ::-1]]), axis=0)
    paid = crosses & (instance.transfer_s[instance.edge_from] > 0)
    reads = np.unique(np.stack([instance.edge_from[paid].astype(np.int64), ends[paid, 1]], axis=1), axis=0)
    by_reader = reads[np.argsort(reads[:, 1], kind="stable")]
    senders = np.unique(reads[:, 0])
    senders = senders[np.argsort(group[senders], kind="stable")]

    def total(weight: np.ndarray) -> np.ndarray:
        return np.bincount(group, weight, minlength=count)

    return GroupMoves(
        group_of_node=group,
        runs_on_accelerator=total(~instance.runs_on_accelerator) == 0,
        accelerator_s=total(instance.accelerator_time_s),
        cpu_s=total(instance.cpu_time_s),
        size_bytes=total(instance.size_bytes),
        transfer_s=instance.transfer_s,
        neighbour_start=np.searchsorted(beside[:, 0], np.arange(count + 1)),
        neighbour=np.ascontiguousarray(beside[:, 1]),
        reader_start=np.searchsorted(reads[:, 0], np.arange(instance.num_nodes + 1)),
        reader=np.ascontiguousarray(reads[:, 1]),
        sender_start=np.searchsorted(group[senders], np.arange(count + 1)),
        sender=senders,
        source_start=np.searchsorted(by_reader[:, 1], np.arange(count + 1)),
        source=np.ascontiguousarray(by_reader[:, 0]),
    )
