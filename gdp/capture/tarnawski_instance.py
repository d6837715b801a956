"""A device-placement instance of Tarnawski et al., "Efficient Algorithms for Device Placement of DNN Graph Operators" (NeurIPS 2020), section 3.

Some accelerators of equal speed and memory, some CPU cores without a memory limit, and a graph whose nodes have a time on each kind of device. Moving a
node's output between an accelerator and host memory takes a time that belongs to the node: once out of the accelerator that computes it, once into every
accelerator that reads it. So the costs are not those of `gdp.graph`; `gdp.capture.tarnawski_graph` converts.

In the shape descriptions, `nodes` and `edges` are the numbers of each.
"""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from gdp.cluster import MAX_DEVICES
from gdp.errors import InputError

MAX_TIME_S = 1e9
MAX_BYTES = 2.0**60

_REALS = {"cpu_time_s": MAX_TIME_S, "accelerator_time_s": MAX_TIME_S, "transfer_s": MAX_TIME_S, "size_bytes": MAX_BYTES}


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class TarnawskiInstance:
    """One instance, its nodes in topological order. Checked when built.

    Devices are numbered: accelerators from 0, then the CPU cores.
    """

    NO_COLOUR = -1

    source: str
    """where it came from."""
    num_accelerators: int
    num_cpus: int
    accelerator_memory_bytes: float
    node_id: Int64[np.ndarray, " nodes"]
    """the numbers by which the file knows the nodes."""
    cpu_time_s: Float64[np.ndarray, " nodes"]
    accelerator_time_s: Float64[np.ndarray, " nodes"]
    runs_on_accelerator: Bool[np.ndarray, " nodes"]
    backward: Bool[np.ndarray, " nodes"]
    """whether a node belongs to the backward pass of a training step."""
    colour: Int32[np.ndarray, " nodes"]
    """nodes of one colour share a device; `NO_COLOUR` is free."""
    size_bytes: Float64[np.ndarray, " nodes"]
    """memory that a node takes on its accelerator."""
    transfer_s: Float64[np.ndarray, " nodes"]
    """seconds to move a node's output between an accelerator and host memory."""
    edge_from: Int32[np.ndarray, " edges"]
    edge_to: Int32[np.ndarray, " edges"]

    @property
    def num_nodes(self) -> int:
        return len(self.node_id)

    @property
    def num_devices(self) -> int:
        return self.num_accelerators + self.num_cpus

    def __post_init__(self) -> None:
        where = f"the instance {self.source!r}"
        if self.num_nodes == 0:
            raise InputError(f"{where} has no nodes; there is nothing to place")
        if self.num_accelerators < 0 or self.num_cpus < 0 or not 1 <= self.num_devices <= MAX_DEVICES:
            raise InputError(
                f"{where} has {self.num_accelerators} accelerators and {self.num_cpus} CPU cores; it needs from 1 to {MAX_DEVICES} devices"
            )
        if not 0 <= self.accelerator_memory_bytes <= MAX_BYTES:
            raise InputError(f"{where} gives accelerators {self.accelerator_memory_bytes} bytes of memory; it must be from 0 to 2**60")
        for field in ("runs_on_accelerator", "backward", "colour", *_REALS):
            if len(getattr(self, field)) != self.num_nodes:
                raise InputError(f"{where} has {self.num_nodes} nodes but {len(getattr(self, field))} values of {field}; give one per node")
        for field, most in _REALS.items():
            values = getattr(self, field)
            wrong = np.flatnonzero(~((values >= 0) & (values <= most)))
            if len(wrong):
                node = int(wrong[0])
                raise InputError(f"{field} of node {self.node_id[node]} of {where} is {values[node]}; it must be from 0 to {most:g}")
        if len(np.unique(self.node_id)) != self.num_nodes:
            raise InputError(f"two nodes of {where} have the same id; give every node its own")
        if self.num_cpus == 0 and not self.runs_on_accelerator.all():
            raise InputError(
                f"node {self.node_id[int(self.runs_on_accelerator.argmin())]} of {where} runs on no accelerator, and there is no CPU core; give it one"
            )
        if len(self.edge_from) != len(self.edge_to):
            raise InputError(f"{where} has {len(self.edge_from)} starts of edges but {len(self.edge_to)} ends; give one per edge")
        if len(self.edge_from) and not (self.edge_from.min() >= 0 and self.edge_to.max() < self.num_nodes):
            raise InputError(f"{where} has an edge to a node outside 0..{self.num_nodes - 1}; an edge needs two nodes")
        if not (self.edge_from < self.edge_to).all():
            raise InputError(f"{where} has an edge that goes backwards; put the nodes in topological order")
        for record_field in dataclasses.fields(self):
            value = getattr(self, record_field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
