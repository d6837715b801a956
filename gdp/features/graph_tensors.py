"""One (graph, cluster, grouping) as a policy sees it."""

import dataclasses

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Tensor

from gdp.features.op_flow import OpFlow


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class GraphTensors:
    """Tensors of the grouped graph; made by `gdp.features.featurize`.

    `groups`, `devices`, `edges` are the numbers of each. An edge joins two groups between which data flows; groups stand in topological order of
    their heaviest ops. Times are without unit: seconds divided by the graph's total work, at each op's fastest device, per device. So one policy serves
    steps of milliseconds and of minutes, and a perfectly balanced placement has a load of about 1 on every device.
    """

    group: Float32[Tensor, "groups group_features"]
    type_group: Int64[Tensor, " types"]
    """ascending: the group that each (group, op type) pair belongs to."""
    type_id: Int64[Tensor, " types"]
    type_share: Float32[Tensor, " types"]
    """the share of the group's work done by ops of that type; sums to 1 in each group."""
    edge_producer: Int64[Tensor, " edges"]
    edge_consumer: Int64[Tensor, " edges"]
    """edges ascend by consumer, then producer; the quotient of a graph may be cyclic."""
    edge: Float32[Tensor, "edges edge_features"]
    edge_bytes: Float32[Tensor, " edges"]
    edge_messages: Float32[Tensor, " edges"]
    """how many tensors an edge stands for."""
    device: Float32[Tensor, "devices device_features"]
    slot: Int64[Tensor, " devices"]
    """0, 1, ...: tells devices apart that are equal in everything else."""
    pair: Float32[Tensor, "groups devices pair_features"]
    context: Float32[Tensor, " context_features"]
    """of the whole graph on the whole cluster."""
    program_order: Bool[Tensor, ""]
    """whether a device runs its ops strictly in the program's order."""
    allowed: Bool[Tensor, "groups devices"]
    """False where a group's parameters and its hungriest op alone exceed the device's memory; all True for a group that fits nowhere."""
    time: Float32[Tensor, "groups devices"]
    param_share: Float32[Tensor, "groups devices"]
    """a group's parameters over the device's memory."""
    output_share: Float32[Tensor, "groups devices"]
    """a group's outputs over the device's memory."""
    ops: OpFlow
    """the ops behind the groups, in numpy whatever device the tensors are on."""

    @property
    def num_groups(self) -> int:
        return len(self.group)

    @property
    def num_devices(self) -> int:
        return len(self.device)

    def to(self, device: torch.device) -> "GraphTensors":
        """The same tensors on a device."""
        if device == self.group.device:
            return self
        tensors = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "ops"}
        return dataclasses.replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})
