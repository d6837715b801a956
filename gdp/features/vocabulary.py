"""Op types as numbers: a fixed vocabulary, and hashed buckets for types that it does not hold."""

import hashlib
from collections.abc import Sequence

_ATEN = """
_scaled_dot_product_flash_attention _softmax _to_copy abs add addmm alias amax any arange argmax avg_pool2d adaptive_avg_pool2d baddbmm batch_norm bitwise_not bmm
cat chunk clamp clone cos contiguous conv1d conv2d conv3d conv_transpose2d convolution convolution_backward copy cross_entropy_loss cumsum detach div dropout
embedding embedding_bag embedding_dense_backward empty eq erf exp expand expand_as fill flatten full full_like gather ge gelu gelu_backward glu group_norm gt
gru hardswish hardsigmoid hardtanh index index_add index_put index_select instance_norm layer_norm le leaky_relu lift_fresh_copy linear log log_softmax logical_and
logical_not lstm lt masked_fill matmul max max_pool2d max_pool2d_with_indices max_pool2d_with_indices_backward mean min minimum maximum mm mul
native_batch_norm native_batch_norm_backward native_dropout native_group_norm native_layer_norm native_layer_norm_backward ne neg new_zeros nll_loss_forward
nll_loss_backward ones ones_like pad permute pow reciprocal relu repeat reshape rms_norm roll rsqrt rsub scalar_tensor scaled_dot_product_attention scatter
scatter_add select select_backward sigmoid sigmoid_backward silu silu_backward sin slice slice_backward softmax softplus sort split split_with_sizes sqrt square
squeeze stack std sub sum t tanh tanh_backward threshold_backward to topk transpose tril triu type_as unbind unfold unsqueeze upsample_bilinear2d
upsample_nearest2d var var_mean view where zeros zeros_like
"""

_TENSORFLOW = """
Abs Add AddN AddV2 ApplyAdam ApplyGradientDescent ApplyMomentum ArgMax Assign AssignAddVariableOp AssignSubVariableOp AssignVariableOp AvgPool AvgPoolGrad
BatchMatMul BatchMatMulV2 BatchMatMulV3 BiasAdd BiasAddGrad BroadcastGradientArgs BroadcastTo Cast ConcatOffset ConcatV2 Const Conv1D Conv2D
Conv2DBackpropFilter Conv2DBackpropInput Conv3D Cos CudnnRNN Cumsum DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
DepthwiseConv2dNativeBackpropInput DivNoNan DynamicStitch Einsum Elu EluGrad Equal Erf Exp ExpandDims Fill FloorDiv FloorMod FusedBatchNormGradV3
FusedBatchNormV3 GatherNd GatherV2 Greater GreaterEqual Identity IdentityN InvGrad IsFinite L2Loss LeakyRelu LeakyReluGrad Less LessEqual Log Log1p
LogSoftmax LogicalAnd LogicalNot LogicalOr MatMul MatrixBandPart Max MaxPool MaxPoolGrad Maximum Mean Min Minimum MirrorPad Mul Neg NoOp NotEqual
OneHot OnesLike Pack Pad PadV2 Placeholder Pow PreventGradient Prod RandomStandardNormal RandomUniform Range ReadVariableOp RealDiv Reciprocal Relu Relu6
Relu6Grad ReluGrad Reshape ResizeBilinear ResourceApplyAdam ResourceApplyAdamWithAmsgrad ResourceApplyGradientDescent ResourceApplyKerasMomentum
ResourceApplyMomentum ResourceApplyRMSProp ResourceGather ResourceScatterAdd ReverseSequence ReverseV2 Rsqrt RsqrtGrad ScatterNd Select SelectV2 Selu Shape
Sigmoid SigmoidGrad Sin Size Slice Softmax SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad SparseSoftmaxCrossEntropyWithLogits Split SplitV Sqrt SqrtGrad
Square SquaredDifference Squeeze StatelessRandomUniformV2 StopGradient StridedSlice StridedSliceGrad Sub Sum Tanh TanhGrad Tile TopKV2 Transpose
UnsortedSegmentSum Unpack VarHandleOp VariableV2 VarIsInitializedOp ZerosLike
"""

_ONNX = """
Clip Conv ConvTranspose Div Flatten Gather Gemm Gelu GlobalAveragePool InstanceNormalization BatchNormalization LayerNormalization LSTM GRU ReduceMean ReduceSum
Unsqueeze Where
"""

OP_VOCABULARY: tuple[str, ...] = tuple(
    dict.fromkeys(["input", "output", *(f"aten.{name}" for name in _ATEN.split()), "getitem", *_TENSORFLOW.split(), *_ONNX.split()])
)
"""The types of `torch.export`, TensorFlow and ONNX programs that the published policies tell apart."""


def canonical_type(op_type: str) -> str:
    """The type without its overload: `aten.add.Tensor` and `aten.add.Scalar` are both `aten.add`."""
    parts = op_type.split(".")
    return ".".join(parts[:2]) if len(parts) > 2 else op_type


def hashed_bucket(op_type: str, *, num_buckets: int) -> int:
    """The bucket of a type outside the vocabulary: the same on every machine, in every process."""
    digest = hashlib.blake2b(op_type.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % num_buckets


def type_ids(op_types: Sequence[str], *, vocabulary: tuple[str, ...], num_buckets: int) -> list[int]:
    """The number of each type: its place in the vocabulary, else the vocabulary's length plus its hashed bucket."""
    known = {op_type: number for number, op_type in enumerate(vocabulary)}
    number: dict[str, int] = {}
    for op_type in set(op_types):
        canonical = canonical_type(op_type)
        number[op_type] = known[canonical] if canonical in known else len(vocabulary) + hashed_bucket(canonical, num_buckets=num_buckets)
    return [number[op_type] for op_type in op_types]
