"""The dataflow graph: ops in one topological order, the tensors they produce, and who consumes them.

In the shape descriptions, `ops`, `tensors` and `edges` are the numbers of each.
"""

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int32, Int64

from gdp.errors import InputError

CONTROL = "control"
"""The dtype of a tensor that carries no data, only the order of two ops."""

MAX_BYTES = 2**60
"""No single byte count may exceed this."""

MAX_TOTAL_BYTES = 2**57
"""Nor may a graph's parameters, scratch and tensors together exceed this: 64 devices can then hold or send all of them without overflowing 64 bits."""


MAX_RANK = 64
"""No tensor has more dimensions."""

_STRINGS = ("op_type", "name", "module_path", "tensor_dtype")
_ARRAYS = {
    "flops": np.float64,
    "accessed_bytes": np.int64,
    "param_bytes": np.int64,
    "temp_bytes": np.int64,
    "phase": np.int8,
    "colocation_group": np.int32,
    "tensor_producer": np.int32,
    "tensor_bytes": np.int64,
    "edge_tensor": np.int32,
    "edge_consumer": np.int32,
}


class Phase(IntEnum):
    """Which part of a step an op belongs to."""

    FORWARD = 0
    BACKWARD = 1
    UPDATE = 2
    OTHER = 3


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Graph:
    """A dataflow graph with the cost of every op. Checked when built: a wrong one cannot exist.

    A tensor has one producer and any number of consumers; a control dependency is a tensor of dtype `CONTROL` and zero bytes.
    An op with zero `flops` and zero `accessed_bytes` (a view, a constant, bookkeeping) does no work and takes no time.
    """

    NO_GROUP = -1

    op_type: tuple[str, ...]
    """`[ops]` the operation, as its framework names it: `aten.conv2d.default`, `Conv2DBackpropInput`."""
    name: tuple[str, ...]
    """`[ops]` unique names, as the captured program knows them."""
    module_path: tuple[str, ...]
    """`[ops]` dotted path of the module (or `/` scope) an op comes from; empty where unknown."""
    flops: Float64[np.ndarray, " ops"]
    """floating-point operations; a multiply-add counts as two."""
    accessed_bytes: Int64[np.ndarray, " ops"]
    """bytes read and written in device memory, parameters included."""
    param_bytes: Int64[np.ndarray, " ops"]
    """bytes of parameters and other state resident where the op is."""
    temp_bytes: Int64[np.ndarray, " ops"]
    """scratch memory while the op runs."""
    phase: Int8[np.ndarray, " ops"]
    """values of `Phase`."""
    colocation_group: Int32[np.ndarray, " ops"]
    """ops with the same non-negative number must share a device; `NO_GROUP` is free."""
    tensor_producer: Int32[np.ndarray, " tensors"]
    """the op that produces each tensor, ascending."""
    tensor_bytes: Int64[np.ndarray, " tensors"]
    tensor_shape: tuple[tuple[int, ...], ...]
    """`[tensors]` shapes; -1 is an unknown extent."""
    tensor_dtype: tuple[str, ...]
    """`[tensors]` numpy-style dtype names, `bfloat16`, or `CONTROL`."""
    edge_tensor: Int32[np.ndarray, " edges"]
    """the tensor that each edge carries."""
    edge_consumer: Int32[np.ndarray, " edges"]
    """the op that consumes it; always later in the order than its producer."""
    source: str
    """what the graph was captured from, and how."""
    measured_time_s: Mapping[str, Float64[np.ndarray, " ops"]] = dataclasses.field(default_factory=dict)
    """measured seconds of every op, per device kind; empty where nothing was measured."""

    @property
    def num_ops(self) -> int:
        return len(self.op_type)

    @property
    def num_tensors(self) -> int:
        return len(self.tensor_producer)

    @property
    def num_edges(self) -> int:
        return len(self.edge_tensor)

    @cached_property
    def edge_producer(self) -> Int32[np.ndarray, " edges"]:
        """The op at the start of each edge."""
        return np.asarray(self.tensor_producer[self.edge_tensor])

    @cached_property
    def works(self) -> Bool[np.ndarray, " ops"]:
        """Which ops do any work; the others take no time."""
        return (self.flops > 0) | (self.accessed_bytes > 0)

    @cached_property
    def sha256(self) -> str:
        """Names what is placed: every field but `source` and `measured_time_s`."""
        digest = hashlib.sha256(b"gdp-graph-1\n")
        for field in dataclasses.fields(self):
            if field.name in ("source", "measured_time_s"):
                continue
            value = getattr(self, field.name)
            data = np.ascontiguousarray(value).tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode()
            digest.update(f"{field.name}:{len(data)}\n".encode())
            digest.update(data)
        return digest.hexdigest()

    def with_measured_time(self, measured_time_s: Mapping[str, Float64[np.ndarray, " ops"]]) -> "Graph":
        """The same graph with measured seconds per op for the given device kinds beside those it has."""
        return dataclasses.replace(self, measured_time_s={**self.measured_time_s, **measured_time_s})

    def __post_init__(self) -> None:
        self._check_types()
        if self.num_ops == 0:
            raise InputError(
                f"the graph from {self.source!r} has no ops: there is nothing to place; capture a program that computes something"
            )
        self._check_lengths()
        self._check_values()
        self._check_order()
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
        for seconds in self.measured_time_s.values():
            seconds.flags.writeable = False
        object.__setattr__(self, "measured_time_s", MappingProxyType(dict(self.measured_time_s)))

    def _check_types(self) -> None:
        if not isinstance(self.source, str):
            raise InputError(f"the source of a graph is {self.source!r}; it must be text that says what the graph was captured from")
        for field in _STRINGS:
            values = getattr(self, field)
            if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
                raise InputError(f"{field} of the graph from {self.source!r} must be a tuple of strings")
        arrays = [(field, getattr(self, field), np.dtype(dtype)) for field, dtype in _ARRAYS.items()]
        arrays += [(f"measured_time_s[{kind!r}]", seconds, np.dtype(np.float64)) for kind, seconds in self.measured_time_s.items()]
        for field, values, dtype in arrays:
            if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype != dtype:
                found = f"{values.ndim}-dimensional of {values.dtype}" if isinstance(values, np.ndarray) else f"a {type(values).__name__}"
                raise InputError(
                    f"{field} of the graph from {self.source!r} is {found}; it must be a one-dimensional numpy array of {dtype}"
                )
        shapes = self.tensor_shape
        if not isinstance(shapes, tuple) or not all(isinstance(shape, tuple) and _is_shape(shape) for shape in shapes):
            raise InputError(
                f"tensor_shape of the graph from {self.source!r} must be a tuple of shapes: tuples of at most {MAX_RANK} ints from -1 (unknown) to 2**60"
            )

    def _check_lengths(self) -> None:
        for kind, count, fields in (
            (
                "ops",
                self.num_ops,
                ("name", "module_path", "flops", "accessed_bytes", "param_bytes", "temp_bytes", "phase", "colocation_group"),
            ),
            ("tensors", self.num_tensors, ("tensor_bytes", "tensor_shape", "tensor_dtype")),
            ("edges", self.num_edges, ("edge_consumer",)),
        ):
            for field in fields:
                if len(getattr(self, field)) != count:
                    raise InputError(
                        f"the graph from {self.source!r} has {count} {kind} but {len(getattr(self, field))} values of {field}; write one per {kind[:-1]}"
                    )

    def _check_values(self) -> None:
        seconds = {f"measured_time_s[{kind!r}]": value for kind, value in self.measured_time_s.items()}
        per_op = {field: getattr(self, field) for field in ("flops", "accessed_bytes", "param_bytes", "temp_bytes")} | seconds
        for field, values in per_op.items():
            if len(values) != self.num_ops:
                raise InputError(
                    f"the graph from {self.source!r} has {self.num_ops} ops but {len(values)} values of {field}; write one per op"
                )
            wrong = np.flatnonzero(~((values >= 0) & (values <= MAX_BYTES)))
            if len(wrong):
                op = int(wrong[0])
                raise InputError(
                    f"{field} of op {self.name[op]!r} (number {op}) in the graph from {self.source!r} is {values[op]}; it must be a finite number from 0 to 2**60"
                )
        wrong = np.flatnonzero((self.tensor_bytes < 0) | (self.tensor_bytes > MAX_BYTES))
        if len(wrong):
            tensor = int(wrong[0])
            raise InputError(
                f"tensor {tensor} of the graph from {self.source!r} has {self.tensor_bytes[tensor]} bytes; the size must be from 0 to 2**60"
            )
        total = sum(float(values.sum(dtype=np.float64)) for values in (self.param_bytes, self.temp_bytes, self.tensor_bytes))
        if total > MAX_TOTAL_BYTES:
            raise InputError(
                f"the parameters, scratch and tensors of the graph from {self.source!r} are {total:.3g} bytes in all; more than 2**57 cannot be counted: check their sizes"
            )
        sizes = self.tensor_bytes
        for tensor, dtype in enumerate(self.tensor_dtype):
            if dtype == CONTROL and sizes[tensor]:
                raise InputError(
                    f"tensor {tensor} of the graph from {self.source!r} is a control dependency of {sizes[tensor]} bytes; it carries no data: make them 0"
                )
        if not np.isin(self.phase, list(Phase)).all():
            raise InputError(
                f"the graph from {self.source!r} has a phase that is none of {[int(p) for p in Phase]}; use the values of gdp.graph.Phase"
            )
        if self.colocation_group.min() < self.NO_GROUP:
            raise InputError(
                f"the graph from {self.source!r} has a colocation group below {self.NO_GROUP}; number groups from 0, or use {self.NO_GROUP} for none"
            )
        if "" in self.name:
            raise InputError(f"op number {self.name.index('')} of the graph from {self.source!r} has no name; give every op its own")
        if len(set(self.name)) != self.num_ops:
            twice, _ = Counter(self.name).most_common(1)[0]
            raise InputError(f"two ops of the graph from {self.source!r} are both named {twice!r}; give every op its own name")

    def _check_order(self) -> None:
        if self.num_tensors and (self.tensor_producer.min() < 0 or self.tensor_producer.max() >= self.num_ops):
            raise InputError(
                f"a tensor of the graph from {self.source!r} names a producer outside 0..{self.num_ops - 1}; each tensor needs an op that produces it"
            )
        if (np.diff(self.tensor_producer) < 0).any():
            raise InputError(f"the tensors of the graph from {self.source!r} are not in the order of their producers; sort them")
        if not self.num_edges:
            return
        if self.edge_tensor.min() < 0 or self.edge_tensor.max() >= self.num_tensors:
            raise InputError(f"an edge of the graph from {self.source!r} names a tensor outside 0..{self.num_tensors - 1}")
        if self.edge_consumer.min() < 0 or self.edge_consumer.max() >= self.num_ops:
            raise InputError(f"an edge of the graph from {self.source!r} names a consumer outside 0..{self.num_ops - 1}")
        backward = np.flatnonzero(self.edge_consumer <= self.edge_producer)
        if len(backward):
            edge = int(backward[0])
            producer, consumer = int(self.edge_producer[edge]), int(self.edge_consumer[edge])
            raise InputError(
                f"the edge from op {self.name[producer]!r} (number {producer}) to op {self.name[consumer]!r} (number {consumer}) in the graph from {self.source!r} "
                "goes backwards: ops must stand in topological order, and a cyclic graph cannot be placed; break the cycle or sort the ops"
            )


def _is_shape(shape: tuple[object, ...]) -> bool:
    return len(shape) <= MAX_RANK and all(isinstance(extent, int) and -1 <= extent <= MAX_BYTES for extent in shape)
