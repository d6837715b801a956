"""Floating-point operations and memory traffic of TensorFlow ops, as closed forms of their shapes.

Conventions. A multiply-add is two operations. A pointwise function, however dear, is one per output element; a reduction is one per input element. An op type
without a formula moves data: no operations, its inputs read and its outputs written. Ops that only rename, reshape or hand over a buffer, and reads and plain
assignments of variables (TensorFlow passes the buffer along), do no work.
"""

import dataclasses
import math
from collections.abc import Mapping

Shape = tuple[int, ...]

BOOKKEEPING = frozenset(
    """
    Const NoOp Placeholder PlaceholderWithDefault PlaceholderV2 _Arg _Retval _DeviceArg _DeviceRetval
    Identity IdentityN StopGradient PreventGradient CheckNumericsV2 EnsureShape Snapshot ControlTrigger
    Reshape Squeeze ExpandDims Bitcast Shape ShapeN Size Rank BroadcastArgs BroadcastGradientArgs InvertPermutation
    VarHandleOp Variable VariableV2 ReadVariableOp AssignVariableOp Assign VarIsInitializedOp VariableShape DestroyResourceOp
    Switch Merge Enter Exit LoopCond NextIteration RefSwitch RefMerge RefEnter RefExit Assert
    """.split()
)
"""Op types that do no work: views, constants, handles, shape queries, order."""

_POINTWISE = frozenset(
    """
    Abs Acos Acosh Add AddV2 Angle ApproximateEqual Asin Asinh Atan Atan2 Atanh BesselI0e BesselI1e BiasAdd BiasAddV1 BitwiseAnd BitwiseOr BitwiseXor Cast
    Ceil ClipByValue Complex ComplexAbs Conj Cos Cosh Digamma Div DivNoNan Elu EluGrad Equal Erf Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Greater
    GreaterEqual HSVToRGB Igamma Imag Inv InvGrad Invert IsFinite IsInf IsNan LeakyRelu LeakyReluGrad Less LessEqual Lgamma Log Log1p LogicalAnd LogicalNot
    LogicalOr Maximum Minimum Mod Mul MulNoNan Ndtri Neg NextAfter NotEqual Polygamma Pow Quantize Real RealDiv Reciprocal ReciprocalGrad Relu
    Relu6 Relu6Grad ReluGrad Rint Round Rsqrt RsqrtGrad Select SelectV2 Selu SeluGrad Sigmoid SigmoidGrad Sign Sin Sinh Softplus SoftplusGrad Softsign
    SoftsignGrad Sqrt SqrtGrad Square SquaredDifference Sub Tan Tanh TanhGrad TruncateDiv TruncateMod Xdivy Xlog1py Xlogy Zeta
    """.split()
)

_REDUCTIONS = frozenset(
    """
    All Any ArgMax ArgMin BiasAddGrad Cumprod Cumsum EuclideanNorm L2Loss Max Mean Min Prod SegmentMax SegmentMean SegmentMin SegmentProd SegmentSum Sum
    UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum
    """.split()
)

_FLOPS_PER_INPUT_ELEMENT: Mapping[str, int] = {
    "Softmax": 5,  # maximum, difference, exponential, sum, quotient
    "LogSoftmax": 5,
    "SoftmaxCrossEntropyWithLogits": 7,  # softmax, and the loss and its gradient
    "SparseSoftmaxCrossEntropyWithLogits": 6,
    "FusedBatchNorm": 7,  # mean 1, variance 3, normalise, scale and shift 3
    "FusedBatchNormV2": 7,
    "FusedBatchNormV3": 7,
    "FusedBatchNormGrad": 10,  # shift's gradient 1, normalised input 2, scale's gradient 2, input's gradient 5
    "FusedBatchNormGradV2": 10,
    "FusedBatchNormGradV3": 10,
    "LRN": 5,
}

_FLOPS_PER_UPDATED_ELEMENT: Mapping[str, int] = {
    "AssignAddVariableOp": 1,
    "AssignSubVariableOp": 1,
    "AssignAdd": 1,
    "AssignSub": 1,
    "ResourceApplyGradientDescent": 2,
    "ResourceApplyMomentum": 4,
    "ResourceApplyKerasMomentum": 4,
    "ResourceApplyAdagrad": 6,
    "ResourceApplyAdagradV2": 7,
    "ResourceApplyAdadelta": 13,
    "ResourceApplyRMSProp": 10,
    "ResourceApplyCenteredRMSProp": 14,
    "ResourceApplyAdam": 12,
    "ResourceApplyAdaMax": 10,
    "ResourceApplyFtrl": 14,
    "ResourceApplyFtrlV2": 15,
}

_READS_ONLY_WHAT_IT_WRITES = frozenset(
    "Gather GatherV2 GatherNd ResourceGather ResourceGatherNd Slice StridedSlice DynamicSlice Unstage TensorListGetItem".split()
)
_WRITES_ONLY = frozenset("Fill ZerosLike OnesLike Range LinSpace Eye OneHot".split())


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpShapes:
    """What the cost of one op depends on."""

    op_type: str
    input_shapes: tuple[Shape, ...]
    """of all data inputs, in order; the shape of a variable's handle is `()`."""
    input_bytes: tuple[int, ...]
    """of the same inputs; a handle has none."""
    output_shapes: tuple[Shape, ...]
    output_bytes: tuple[int, ...]
    num_handles: int
    """how many inputs are handles of variables."""
    attributes: Mapping[str, object]
    """those that a formula asks for: `transpose_a`, `adj_x`, `ksize`, `equation`, `is_training`."""


def flops(op: OpShapes) -> float:
    """Floating-point operations of one op; a multiply-add counts as two."""
    # TensorFlow 1 has the same updates on references instead of handles.
    kind = f"Resource{op.op_type}" if op.op_type.startswith("Apply") else op.op_type
    if kind in BOOKKEEPING:
        return 0.0
    if kind in _POINTWISE:
        return float(_elements(op.output_shapes[0]))
    if kind in _REDUCTIONS:
        return float(_elements(op.input_shapes[0]))
    if kind in _FLOPS_PER_INPUT_ELEMENT:
        per_element = 2 if op.attributes.get("is_training") is False else _FLOPS_PER_INPUT_ELEMENT[kind]
        return float(per_element * _elements(op.input_shapes[0]))
    if kind in _FLOPS_PER_UPDATED_ELEMENT:
        return float(_FLOPS_PER_UPDATED_ELEMENT[kind] * max(_elements(shape) for shape in op.input_shapes))
    if kind == "AddN" or kind == "AccumulateNV2":
        return float((len(op.input_shapes) - 1) * _elements(op.output_shapes[0]))
    return _contraction_flops(op)


def accessed_bytes(op: OpShapes) -> int:
    """Bytes one op reads and writes in device memory."""
    kind = op.op_type
    if kind in BOOKKEEPING:
        return 0
    if op.num_handles and op.input_bytes and not op.output_bytes:
        # Updates a variable and its slots in place: reads them and the gradient, writes them. Of a scatter, only the rows touched.
        return (2 * op.num_handles + 1) * max(op.input_bytes)
    written = sum(op.output_bytes)
    if kind in _WRITES_ONLY:
        return written
    if kind in _READS_ONLY_WHAT_IT_WRITES:
        # The first input is the table, unless that is a variable.
        return 2 * written + sum(op.input_bytes if op.num_handles else op.input_bytes[1:])
    return sum(op.input_bytes) + written


def _contraction_flops(op: OpShapes) -> float:
    match op.op_type:
        case "Conv2D" | "Conv3D" | "Conv":
            return _convolution(op.output_shapes[0], op.input_shapes[1][:-1])
        case "Conv2DBackpropInput" | "Conv2DBackpropInputV2" | "Conv3DBackpropInputV2":
            return _convolution(op.input_shapes[2], op.input_shapes[1][:-1])
        case "Conv2DBackpropFilter" | "Conv2DBackpropFilterV2" | "Conv3DBackpropFilterV2":
            return _convolution(op.input_shapes[2], op.output_shapes[0][:-1])
        case "DepthwiseConv2dNative":
            return _convolution(op.output_shapes[0], op.input_shapes[1][:2])
        case "DepthwiseConv2dNativeBackpropInput":
            return _convolution(op.input_shapes[2], op.input_shapes[1][:2])
        case "DepthwiseConv2dNativeBackpropFilter":
            return _convolution(op.input_shapes[2], op.output_shapes[0][:2])
        case "MatMul":
            return 2.0 * _elements(op.output_shapes[0]) * _extent(op.input_shapes[0], -2 if op.attributes["transpose_a"] else -1)
        case "BatchMatMul" | "BatchMatMulV2" | "BatchMatMulV3":
            return 2.0 * _elements(op.output_shapes[0]) * _extent(op.input_shapes[0], -2 if op.attributes["adj_x"] else -1)
        case "Einsum":
            return _einsum(str(op.attributes["equation"]), op.input_shapes)
        case "MaxPool" | "AvgPool" | "MaxPool3D" | "AvgPool3D":
            return float(_elements(op.output_shapes[0]) * _window(op))
        case "MaxPoolGrad" | "MaxPool3DGrad":
            return float(_elements(op.input_shapes[2]) * _window(op))
        case "AvgPoolGrad" | "AvgPool3DGrad":
            return float(_elements(op.input_shapes[1]) * _window(op))
    return 0.0


def _convolution(result: Shape, taps: Shape) -> float:
    """A multiply-add per element of the convolution's result and tap of the filter; the channels of a group are taps, too."""
    return 2.0 * _elements(result) * _elements(taps)


def _einsum(equation: str, shapes: tuple[Shape, ...]) -> float:
    """A multiplication and an addition per point of the space that all labels span, for each operand after the first."""
    extents: dict[str, int] = {}
    for term, shape in zip(equation.replace(" ", "").split("->")[0].split(","), shapes, strict=True):
        before, dots, after = term.partition("...")
        hidden = len(shape) - len(before) - len(after) if dots else 0
        # Broadcast axes are aligned at their last, so they are named from there.
        labels = [*before, *(f"...{place}" for place in range(hidden, 0, -1)), *after]
        for label, extent in zip(labels, shape, strict=True):
            extents[label] = max(extents.get(label, 1), extent)
    return 2.0 * math.prod(extents.values()) * (len(shapes) - 1) if len(shapes) > 1 else float(_elements(shapes[0]))


def _window(op: OpShapes) -> int:
    ksize = op.attributes["ksize"]
    assert isinstance(ksize, list)
    return math.prod(ksize)


def _extent(shape: Shape, axis: int) -> int:
    return max(shape[axis], 1) if len(shape) >= 2 else 1


def _elements(shape: Shape) -> int:
    """Elements of a tensor; an unknown extent counts as one."""
    return math.prod(1 if extent < 0 else extent for extent in shape)
