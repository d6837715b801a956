"""AmoebaNet-D (Real et al., "Regularized Evolution for Image Classifier Architecture Search", arXiv 1802.01548, figure of AmoebaNet-D): the training step.

The cells are those of TensorFlow's published implementation, whose normal cell joins other states than the paper's figure; with them the networks have the sizes that
GPipe prints (Huang et al., arXiv 1811.06965, table 1: 82 million parameters for 18 layers and 208 filters, the default here). Deviations: no auxiliary head, no
dropped paths, momentum instead of RMSProp. A batch of 32 is ours.
"""

from typing import Any

from gdp.graph import Graph
from gdp.workloads.image_classifier import image_classifier_training

# Five pairs of (state, operation); the sum of a pair is the next state. States 0 and 1 are the outputs of the previous cell and of the one before it.
_NORMAL = (
    ((1, "conv_1x1"), (1, "max_pool_3x3")),
    ((1, "none"), (0, "conv_1x7_7x1")),
    ((0, "conv_1x1"), (0, "conv_1x7_7x1")),
    ((2, "max_pool_3x3"), (2, "none")),
    ((1, "avg_pool_3x3"), (5, "conv_1x1")),
)
_NORMAL_JOINED = (0, 3, 4, 6)
_REDUCTION = (
    ((0, "max_pool_2x2"), (0, "max_pool_3x3")),
    ((2, "none"), (1, "conv_3x3")),
    ((2, "conv_1x7_7x1"), (2, "max_pool_3x3")),
    ((3, "none"), (1, "max_pool_2x2")),
    ((2, "avg_pool_3x3"), (3, "conv_1x1")),
)
_REDUCTION_JOINED = (4, 5, 6)
_POOLS = {"max_pool_2x2": ("MaxPooling2D", 2), "max_pool_3x3": ("MaxPooling2D", 3), "avg_pool_3x3": ("AveragePooling2D", 3)}


def amoebanet_training(
    num_layers: int = 18, *, num_filters: int = 208, image_size: int = 224, batch_size: int = 32, num_classes: int = 1000
) -> Graph:
    """The training step; layers are named by their cell, `cell_4_2_conv_1x1...`, after `stem` and before `classify`.

    Args:
        num_layers: normal cells, a multiple of three.
        num_filters: channels of the first third of the cells.
        image_size: pixels, a multiple of 32.
        batch_size: images a step.
        num_classes: of the classifier.
    """
    return image_classifier_training(
        lambda keras: _network(keras, num_layers=num_layers, num_filters=num_filters, image_size=image_size, num_classes=num_classes),
        image_size=image_size,
        batch_size=batch_size,
        name=f"AmoebaNet-D ({num_layers}, {num_filters})",
    )


def _network(keras: Any, *, num_layers: int, num_filters: int, image_size: int, num_classes: int) -> Any:
    layers = keras.layers
    image = keras.Input((image_size, image_size, 3))
    channels = num_filters // 4
    x = layers.Conv2D(channels, 3, strides=2, padding="same", use_bias=False, name="stem_conv")(image)
    before = x = layers.BatchNormalization(name="stem_norm")(x)
    third = [False] * (num_layers // 3)
    reduced = False
    for number, reduces in enumerate([True, True, *third, True, *third, True, *third]):
        channels *= 2 if reduces else 1
        after = _cell(keras, x, before, channels, reduces=reduces, reduced=reduced, name=f"cell_{number}")
        before, x, reduced = x, after, reduces
    pooled = layers.GlobalAveragePooling2D(name="classify_pool")(x)
    return keras.Model(image, layers.Dense(num_classes, activation="softmax", name="classify")(pooled), name="amoebanet_d")


def _cell(keras: Any, previous: Any, before: Any, channels: int, *, reduces: bool, reduced: bool, name: str) -> Any:
    states = [_convolutions(keras, previous, [(channels, 1, 1)], name=f"{name}_previous")]
    if reduced:
        states.append(_factorized_reduction(keras, before, channels, name=f"{name}_before"))
    elif int(before.shape[-1]) != channels:
        states.append(_convolutions(keras, before, [(channels, 1, 1)], name=f"{name}_before"))
    else:
        states.append(before)
    for pair, operations in enumerate(_REDUCTION if reduces else _NORMAL):
        parts = [
            _operation(keras, states[state], operation, stride=2 if reduces and state < 2 else 1, name=f"{name}_{pair}_{side}_{operation}")
            for side, (state, operation) in enumerate(operations)
        ]
        states.append(keras.layers.Add(name=f"{name}_{pair}_sum")(parts))
    return keras.layers.Concatenate(name=f"{name}_joined")([states[state] for state in (_REDUCTION_JOINED if reduces else _NORMAL_JOINED)])


def _operation(keras: Any, x: Any, operation: str, *, stride: int, name: str) -> Any:
    channels = int(x.shape[-1])
    if operation in _POOLS:
        layer, size = _POOLS[operation]
        pools = {"MaxPooling2D": keras.layers.MaxPooling2D, "AveragePooling2D": keras.layers.AveragePooling2D}
        return pools[layer](size, strides=stride, padding="same", name=name)(x)
    if operation == "conv_1x1":
        return _convolutions(keras, x, [(channels, 1, stride)], name=name)
    if operation == "conv_3x3":
        return _convolutions(keras, x, [(channels // 4, 1, 1), (channels // 4, 3, stride), (channels, 1, 1)], name=name)
    if operation == "conv_1x7_7x1":
        parts = [(channels // 4, 1, 1), (channels // 4, (1, 7), (1, stride)), (channels // 4, (7, 1), (stride, 1)), (channels, 1, 1)]
        return _convolutions(keras, x, parts, name=name)
    assert operation == "none" and stride == 1
    return x


def _convolutions(keras: Any, x: Any, parts: list[tuple[Any, Any, Any]], *, name: str) -> Any:
    """ReLU, convolution, batch normalisation for each (channels, size, stride)."""
    for number, (channels, size, stride) in enumerate(parts):
        x = keras.layers.ReLU(name=f"{name}_relu_{number}")(x)
        x = keras.layers.Conv2D(channels, size, strides=stride, padding="same", use_bias=False, name=f"{name}_conv_{number}")(x)
        x = keras.layers.BatchNormalization(name=f"{name}_norm_{number}")(x)
    return x


def _factorized_reduction(keras: Any, x: Any, channels: int, *, name: str) -> Any:
    """Half the channels from the even pixels, half from the odd ones."""
    layers = keras.layers
    x = layers.ReLU(name=f"{name}_relu")(x)
    shifted = layers.ZeroPadding2D(((0, 1), (0, 1)), name=f"{name}_pad")(layers.Cropping2D(((1, 0), (1, 0)), name=f"{name}_crop")(x))
    halves = [
        layers.Conv2D(channels // 2, 1, strides=2, use_bias=False, name=f"{name}_conv_{number}")(one)
        for number, one in enumerate((x, shifted))
    ]
    return layers.BatchNormalization(name=f"{name}_norm")(layers.Concatenate(name=f"{name}_halves")(halves))
