"""What a tensor of a TensorFlow graph is and how large."""

import math
from typing import Any

WITHOUT_BYTES = frozenset({"resource", "variant", "string"})
"""Dtypes whose values have no size that the graph knows; they count as none."""

_VARIABLES = frozenset({"VarHandleOp", "Variable", "VariableV2"})
_WRITERS = ("Assign", "Apply", "Scatter", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "SparseApply")


def shape_of(tensor: Any) -> tuple[int, ...]:
    """Extents, -1 where unknown; `(-1,)` where even the rank is."""
    if tensor.shape.rank is None:
        return (-1,)
    return tuple(-1 if extent is None else int(extent) for extent in tensor.shape.as_list())


def elements(tensor: Any) -> int:
    """How many elements; an unknown extent counts as one."""
    return math.prod(1 if extent < 0 else extent for extent in shape_of(tensor))


def size_bytes(tensor: Any) -> int:
    """Bytes of the value; none for handles, variants and strings."""
    dtype = tensor.dtype.base_dtype
    return 0 if dtype.name in WITHOUT_BYTES else elements(tensor) * int(dtype.size)


def is_handle(tensor: Any, op: Any) -> bool:
    """Whether a tensor stands for a variable to `op`, not for its value: a resource, or in TensorFlow 1 a reference to an op that writes through it."""
    name = str(tensor.dtype.name)
    return name == "resource" or (name.endswith("_ref") and op.type.startswith(_WRITERS))


def writes_variable(op: Any) -> bool:
    """Whether an op changes a variable."""
    return op.type.startswith(_WRITERS) and any(is_handle(tensor, op) for tensor in op.inputs)


def variable_bytes(op: Any) -> int:
    """Bytes of the variable that `op` is; none for other ops. An unknown extent counts as one."""
    if op.type not in _VARIABLES:
        return 0
    shape = op.get_attr("shape")
    extents = () if shape.unknown_rank else (1 if axis.size < 0 else axis.size for axis in shape.dim)
    return math.prod(extents) * int(op.get_attr("dtype").size)
