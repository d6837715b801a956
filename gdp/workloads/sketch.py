"""A graph under construction: forward ops with float32 tensors, and the training step that mirrors them.

Op types are those of PyTorch's forward and backward graphs, so that what a policy learns of them carries over to captured programs.
"""

import dataclasses

import numpy as np

from gdp.graph import Graph, Phase

_BYTES_PER_ELEMENT = 4

_BACKWARD_TYPE = {
    "aten.conv2d.default": "aten.convolution_backward.default",
    "aten.linear.default": "aten.mm.default",
    "aten.bmm.default": "aten.bmm.default",
    "aten.mm.default": "aten.mm.default",
    "aten.relu.default": "aten.threshold_backward.default",
    "aten.gelu.default": "aten.gelu_backward.default",
    "aten.sigmoid.default": "aten.sigmoid_backward.default",
    "aten.tanh.default": "aten.tanh_backward.default",
    "aten.layer_norm.default": "aten.native_layer_norm_backward.default",
    "aten.softmax.int": "aten._softmax_backward_data.default",
    "aten.max_pool2d.default": "aten.max_pool2d_with_indices_backward.default",
    "aten.avg_pool2d.default": "aten.avg_pool2d_backward.default",
    "aten.cat.default": "aten.split_with_sizes.default",
    "aten.add.Tensor": "aten.clone.default",
    "aten.mul.Tensor": "aten.mul.Tensor",
    "aten.sum.default": "aten.expand.default",
    "aten.sum.dim_IntList": "aten.expand.default",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Op:
    op_type: str
    module_path: str
    inputs: tuple[int, ...]
    shape: tuple[int, ...]
    flops: float
    weight: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Weight:
    num_bytes: int
    as_op: bool


class Sketch:
    """Collects forward ops one after the other; `graph`, called once at the end, completes them.

    A weight is used by one op or, shared, by many. `as_op` makes it an op of its own whose tensor is sent to where it is used
    (a TensorFlow variable); otherwise all its uses form one colocation group and the first one holds its bytes (a PyTorch parameter).
    """

    def __init__(self) -> None:
        self._ops: list[_Op] = []
        self._weights: list[_Weight] = []

    @property
    def num_ops(self) -> int:
        return len(self._ops)

    def shape(self, op: int) -> tuple[int, ...]:
        return self._ops[op].shape

    def weight(self, num_elements: int, *, as_op: bool = False) -> int:
        """Declares a weight and returns its number."""
        self._weights.append(_Weight(num_bytes=_BYTES_PER_ELEMENT * num_elements, as_op=as_op))
        return len(self._weights) - 1

    def input(self, shape: tuple[int, ...]) -> int:
        """An input of the program: no work."""
        return self._add("input", (), shape, flops=0.0, module_path="", weight=-1)

    def pointwise(
        self,
        op_type: str,
        inputs: tuple[int, ...],
        *,
        shape: tuple[int, ...],
        flops_per_element: float,
        weight: int = -1,
        module_path: str = "",
    ) -> int:
        """An op whose work is proportional to what it writes."""
        return self._add(op_type, inputs, shape, flops=flops_per_element * float(np.prod(shape)), module_path=module_path, weight=weight)

    def contraction(
        self,
        op_type: str,
        inputs: tuple[int, ...],
        *,
        shape: tuple[int, ...],
        reduced: int,
        weight: int = -1,
        module_path: str = "",
    ) -> int:
        """A matrix product or convolution: `reduced` multiply-adds for each element written."""
        return self._add(op_type, inputs, shape, flops=2.0 * reduced * float(np.prod(shape)), module_path=module_path, weight=weight)

    def sinks(self) -> tuple[int, ...]:
        """The ops that nothing consumes yet."""
        consumed = {operand for op in self._ops for operand in op.inputs}
        return tuple(number for number in range(self.num_ops) if number not in consumed)

    def _add(self, op_type: str, inputs: tuple[int, ...], shape: tuple[int, ...], *, flops: float, module_path: str, weight: int) -> int:
        self._ops.append(
            _Op(op_type=op_type, module_path=module_path, inputs=tuple(dict.fromkeys(inputs)), shape=shape, flops=flops, weight=weight)
        )
        return self.num_ops - 1

    def graph(self, *, source: str, training: bool) -> Graph:
        """The forward graph, or with `training` the whole step: forward, a sum as the loss, backward, one update per weight.

        The backward op of an op reads the op's inputs (kept from the forward pass) and the gradient of its output, writes one gradient per
        input, and does twice the work of an op with a weight or a product (two products), otherwise as much. Several gradients of one tensor are added by an op.
        """
        if training:
            self.pointwise("aten.sum.default", self.sinks(), shape=(), flops_per_element=1.0)
        writer = _Writer()
        weight_tensor: dict[int, int] = {}
        group_of_weight: dict[int, int] = {}
        holds: set[int] = set()
        output: list[int] = []
        for number, weight in enumerate(self._weights):
            group_of_weight[number] = number
            if weight.as_op:
                variable = writer.op("ReadVariableOp", f"weight_{number}", "", 0.0, Phase.FORWARD, number, param_bytes=weight.num_bytes)
                weight_tensor[number] = writer.tensor(variable, (weight.num_bytes // _BYTES_PER_ELEMENT,))
        for number, op in enumerate(self._ops):
            local = op.weight >= 0 and not self._weights[op.weight].as_op
            param_bytes = self._weights[op.weight].num_bytes if local and op.weight not in holds else 0
            holds.add(op.weight)
            written = writer.op(
                op.op_type,
                f"{op.op_type.split('.')[1] if '.' in op.op_type else op.op_type}_{number}",
                op.module_path,
                op.flops,
                Phase.FORWARD,
                group_of_weight[op.weight] if local else Graph.NO_GROUP,
                param_bytes=param_bytes,
                extra_bytes=self._weights[op.weight].num_bytes if local else 0,
                temp_bytes=_BYTES_PER_ELEMENT * int(np.prod(op.shape)) // 2 if op.op_type == "aten.conv2d.default" else 0,
            )
            for operand in op.inputs:
                writer.edge(output[operand], written)
            if op.weight in weight_tensor:
                writer.edge(weight_tensor[op.weight], written)
            output.append(writer.tensor(written, op.shape))
        if training:
            self._mirror(writer, output, weight_tensor)
        return writer.graph(source)

    def _mirror(self, writer: "_Writer", output: list[int], weight_tensor: dict[int, int]) -> None:
        gradients: list[list[int]] = [[] for _ in self._ops]
        weight_gradients: list[list[int]] = [[] for _ in self._weights]
        uses = np.bincount([op.weight for op in self._ops if op.weight >= 0], minlength=len(self._weights))
        for number in range(self.num_ops - 1, -1, -1):
            op = self._ops[number]
            if op.op_type == "input":
                continue
            incoming = gradients[number]
            if len(incoming) > 1:
                total = writer.op(
                    "aten.add.Tensor",
                    f"accumulate_{number}",
                    op.module_path,
                    float(np.prod(op.shape)) * (len(incoming) - 1),
                    Phase.BACKWARD,
                    Graph.NO_GROUP,
                )
                for tensor in incoming:
                    writer.edge(tensor, total)
                incoming = [writer.tensor(total, op.shape)]
            local = op.weight >= 0 and not self._weights[op.weight].as_op
            product = op.op_type in ("aten.conv2d.default", "aten.linear.default", "aten.bmm.default", "aten.mm.default")
            backward = writer.op(
                _BACKWARD_TYPE[op.op_type],
                f"backward_{number}",
                op.module_path,
                op.flops * (2.0 if product else 1.0),
                Phase.BACKWARD,
                op.weight if local else Graph.NO_GROUP,
                extra_bytes=self._weights[op.weight].num_bytes if local else 0,
            )
            for tensor in incoming:
                writer.edge(tensor, backward)
            for operand in op.inputs:
                writer.edge(output[operand], backward)
            if op.weight in weight_tensor:
                writer.edge(weight_tensor[op.weight], backward)
            for operand in op.inputs:
                if self._ops[operand].op_type != "input":
                    gradients[operand].append(writer.tensor(backward, self._ops[operand].shape))
            if op.weight >= 0:
                weight = self._weights[op.weight]
                weight_gradients[op.weight].append(writer.tensor(backward, (weight.num_bytes // _BYTES_PER_ELEMENT,)))
                if len(weight_gradients[op.weight]) == uses[op.weight]:
                    update = writer.op(
                        "aten.add_.Tensor",
                        f"update_{op.weight}",
                        op.module_path,
                        2.0 * weight.num_bytes / _BYTES_PER_ELEMENT,
                        Phase.UPDATE,
                        op.weight,
                        extra_bytes=2 * weight.num_bytes,
                    )
                    for tensor in weight_gradients[op.weight]:
                        writer.edge(tensor, update)


class _Writer:
    """The columns of a `Graph`."""

    def __init__(self) -> None:
        self.op_type: list[str] = []
        self.name: list[str] = []
        self.module_path: list[str] = []
        self.flops: list[float] = []
        self.accessed_bytes: list[int] = []
        self.param_bytes: list[int] = []
        self.temp_bytes: list[int] = []
        self.phase: list[int] = []
        self.group: list[int] = []
        self.producer: list[int] = []
        self.tensor_shape: list[tuple[int, ...]] = []
        self.edge_tensor: list[int] = []
        self.edge_consumer: list[int] = []

    def op(
        self,
        op_type: str,
        name: str,
        module_path: str,
        flops: float,
        phase: Phase,
        group: int,
        *,
        param_bytes: int = 0,
        extra_bytes: int = 0,
        temp_bytes: int = 0,
    ) -> int:
        self.op_type.append(op_type)
        self.name.append(name)
        self.module_path.append(module_path)
        self.flops.append(flops)
        self.accessed_bytes.append(extra_bytes)
        self.param_bytes.append(param_bytes)
        self.temp_bytes.append(temp_bytes)
        self.phase.append(int(phase))
        self.group.append(group)
        return len(self.op_type) - 1

    def tensor(self, producer: int, shape: tuple[int, ...]) -> int:
        self.producer.append(producer)
        self.tensor_shape.append(shape)
        if self.flops[producer] > 0:
            self.accessed_bytes[producer] += _num_bytes(shape)
        return len(self.producer) - 1

    def edge(self, tensor: int, consumer: int) -> None:
        self.edge_tensor.append(tensor)
        self.edge_consumer.append(consumer)
        self.accessed_bytes[consumer] += _num_bytes(self.tensor_shape[tensor])

    def graph(self, source: str) -> Graph:
        _, group = np.unique([Graph.NO_GROUP, *self.group], return_inverse=True)
        return Graph(
            op_type=tuple(self.op_type),
            name=tuple(self.name),
            module_path=tuple(self.module_path),
            flops=np.array(self.flops, np.float64),
            accessed_bytes=np.array(self.accessed_bytes, np.int64),
            param_bytes=np.array(self.param_bytes, np.int64),
            temp_bytes=np.array(self.temp_bytes, np.int64),
            phase=np.array(self.phase, np.int8),
            colocation_group=(group[1:] - 1).astype(np.int32),
            tensor_producer=np.array(self.producer, np.int32),
            tensor_bytes=np.array([_num_bytes(shape) for shape in self.tensor_shape], np.int64),
            tensor_shape=tuple(self.tensor_shape),
            tensor_dtype=("float32",) * len(self.producer),
            edge_tensor=np.array(self.edge_tensor, np.int32),
            edge_consumer=np.array(self.edge_consumer, np.int32),
            source=source,
        )


def _num_bytes(shape: tuple[int, ...]) -> int:
    return _BYTES_PER_ELEMENT * int(np.prod(shape, dtype=np.int64))
