"""Random graphs of four families, for pretraining: layered, series-parallel, stacked cells, unrolled recurrent networks.

Each draws costs as real programs have them: log-normal work, float32 tensors from 10 KB to 50 MB. A graph-wide ratio of work to traffic is drawn
first, so that graphs where one device is best and graphs that gain from every device both occur. `num_ops` is the size of the whole graph, met to within
a third from 100 ops on; with `training` it is the forward, backward and update ops of one step. The generator is consumed. Fewer than 8 ops are an `InputError`.

The families are those that placement papers train on: random layered DAGs (GiPH, arXiv 2305.14562), series-parallel DAGs, and ENAS-like cells and
unrolled recurrent networks (Placeto, arXiv 1906.08879, section 4).
"""

import numpy as np

from gdp.errors import InputError
from gdp.graph import Graph
from gdp.workloads.sketch import Sketch

_LEAST_BYTES, _MOST_BYTES = 10_000, 50_000_000
_ONE_INPUT = ("aten.relu.default", "aten.gelu.default", "aten.tanh.default", "aten.layer_norm.default", "aten.softmax.int")
_MANY_INPUTS = ("aten.add.Tensor", "aten.mul.Tensor", "aten.cat.default")
_FLOPS_PER_ELEMENT = {"aten.gelu.default": 8.0, "aten.tanh.default": 4.0, "aten.layer_norm.default": 8.0, "aten.softmax.int": 5.0}
_TRAINING_OPS_PER_FORWARD_OP = 2.6


def layered(generator: np.random.Generator, *, num_ops: int, training: bool = False) -> Graph:
    """Ops in layers of random width; each takes one to three inputs, mostly from the layer before, now and then from further back."""
    sketch, draw = _start(generator, num_ops)
    target = _forward_ops(num_ops, training)
    width = float(generator.uniform(1.5, 8.0))
    layers = [[sketch.input(draw.shape())]]
    while sketch.num_ops < target:
        count = min(1 + int(generator.poisson(width - 1.0)), target - sketch.num_ops)
        layer = []
        for _ in range(count):
            num_inputs = int(generator.choice([1, 2, 3], p=[0.6, 0.3, 0.1]))
            inputs = []
            for _ in range(num_inputs):
                back = 1 if generator.random() < 0.85 else 1 + int(generator.integers(len(layers)))
                inputs.append(int(generator.choice(layers[-min(back, len(layers))])))
            layer.append(draw.op(sketch, tuple(inputs), f"layer{len(layers)}"))
        layers.append(layer)
    return sketch.graph(source=_source("layered", num_ops, training), training=training)


def series_parallel(generator: np.random.Generator, *, num_ops: int, training: bool = False) -> Graph:
    """A random composition of chains and of forks that join again, nested."""
    sketch, draw = _start(generator, num_ops)
    target = _forward_ops(num_ops, training)
    fork_probability = float(generator.uniform(0.3, 0.8))

    def compose(start: int, count: int, depth: int) -> int:
        last = start
        while count > 0:
            branches = int(generator.integers(2, 6))
            if count < 2 * branches + 1 or depth > 6 or generator.random() > fork_probability:
                last = draw.op(sketch, (last,), f"depth{depth}")
                count -= 1
                continue
            inside = int(generator.integers(branches, count))
            cuts = np.sort(generator.choice(np.arange(1, inside), size=branches - 1, replace=False))
            sizes = np.diff(np.concatenate([[0], cuts, [inside]]))
            ends = tuple(compose(last, int(size), depth + 1) for size in sizes)
            last = draw.op(sketch, ends, f"depth{depth}")
            count -= inside + 1
        return last

    compose(sketch.input(draw.shape()), target - 1, 0)
    return sketch.graph(source=_source("series-parallel", num_ops, training), training=training)


def cells(generator: np.random.Generator, *, num_ops: int, training: bool = False) -> Graph:
    """A convolutional network of equal random cells, as ENAS finds them (arXiv 1802.03268): each of a cell's blocks adds two operations on earlier blocks.

    The image is halved and the channels are doubled a third and two thirds of the way.
    """
    sketch, _ = _start(generator, num_ops)
    target = _forward_ops(num_ops, training)
    num_blocks = int(generator.integers(3, 7))
    batch = int(2 ** generator.integers(3, 8))
    side, channels = int(generator.choice([16, 32, 56])), int(2 ** generator.integers(4, 7))
    blocks = [
        [(int(generator.integers(2 + block)), str(generator.choice(["conv3", "conv5", "max", "avg", "skip"]))) for _ in range(2)]
        for block in range(num_blocks)
    ]
    used = {source for block in blocks for source, _ in block}
    loose = [2 + block for block in range(num_blocks) if 2 + block not in used]
    image = sketch.input((batch, 3, side, side))
    stem = _conv(sketch, image, (batch, channels, side, side), kernel=3, module_path="stem")
    before, last = stem, stem
    reductions = {1, 2}
    cell = 0
    while sketch.num_ops < target:
        third = min(int(3 * sketch.num_ops / target), 2)
        if third in reductions and side > 4:
            reductions.remove(third)
            side, channels = side // 2, channels * 2
            last = _conv(sketch, last, (batch, channels, side, side), kernel=3, module_path=f"cell{cell}.reduce")
        shape = (batch, channels, side, side)
        if sketch.shape(before) != shape:
            before = _conv(sketch, before, shape, kernel=1, module_path=f"cell{cell}.fit")
        states = [before, last]
        for number, block in enumerate(blocks):
            path = f"cell{cell}.block{number}"
            states.append(
                sketch.pointwise(
                    "aten.add.Tensor",
                    tuple(_cell_operation(sketch, states[source], kind, path) for source, kind in block),
                    shape=shape,
                    flops_per_element=1.0,
                    module_path=path,
                )
            )
        ends = tuple(states[state] for state in loose)
        joined = sketch.pointwise(
            "aten.cat.default",
            ends,
            shape=(batch, channels * len(ends), side, side),
            flops_per_element=1.0,
            module_path=f"cell{cell}",
        )
        before, last = last, _conv(sketch, joined, shape, kernel=1, module_path=f"cell{cell}.squeeze")
        cell += 1
    return sketch.graph(source=_source("cells", num_ops, training), training=training)


def unrolled_rnn(generator: np.random.Generator, *, num_ops: int, training: bool = False) -> Graph:
    """A language model of stacked LSTM layers, unrolled over time; each layer's weights are shared over all time steps.

    In half of the graphs the weights are ops of their own, sent to where they are used (TensorFlow variables); in the other half all uses of
    a weight must share a device (PyTorch parameters).
    """
    sketch, _ = _start(generator, num_ops)
    ops_per_cell, ops_per_step = 10, 3
    target = _forward_ops(num_ops, training)
    num_layers = int(np.clip(generator.integers(1, 9), 1, max(1, target // (4 * ops_per_cell))))
    num_steps = max(1, round((target - 1) / (num_layers * ops_per_cell + ops_per_step)))
    batch, width = int(2 ** generator.integers(4, 9)), int(2 ** generator.integers(8, 12))
    vocabulary = int(2 ** generator.integers(11, 16))
    as_op = bool(generator.random() < 0.5)
    weights = [sketch.weight(2 * width * 4 * width, as_op=as_op) for _ in range(num_layers)]
    projection = sketch.weight(width * vocabulary, as_op=as_op)
    zeros = sketch.input((batch, width))
    hidden, cell = [zeros] * num_layers, [zeros] * num_layers
    for step in range(num_steps):
        below = sketch.input((batch, width))
        for layer in range(num_layers):
            hidden[layer], cell[layer] = _lstm(sketch, below, hidden[layer], cell[layer], weights[layer], f"layer{layer}.step{step}")
            below = hidden[layer]
        logits = sketch.contraction(
            "aten.linear.default",
            (below,),
            shape=(batch, vocabulary),
            reduced=width,
            weight=projection,
            module_path=f"projection.step{step}",
        )
        sketch.pointwise("aten.softmax.int", (logits,), shape=(batch, vocabulary), flops_per_element=5.0, module_path=f"loss.step{step}")
    return sketch.graph(source=_source("unrolled-rnn", num_ops, training), training=training)


class _Draw:
    """Random ops of one graph: its typical tensor and its ratio of work to traffic."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator
        self.median_bytes = float(generator.lognormal(np.log(1e6), 1.0))
        self.median_reduced = float(generator.lognormal(np.log(2500.0), 1.0))
        self.product_fraction = float(generator.uniform(0.3, 0.7))

    def shape(self) -> tuple[int, ...]:
        num_bytes = float(np.clip(self.generator.lognormal(np.log(self.median_bytes), 1.0), _LEAST_BYTES, _MOST_BYTES))
        columns = int(2 ** self.generator.integers(6, 12))
        return int(np.clip(round(num_bytes / 4 / columns), -(-_LEAST_BYTES // 4 // columns) + 1, _MOST_BYTES // 4 // columns)), columns

    def op(self, sketch: Sketch, inputs: tuple[int, ...], module_path: str) -> int:
        inputs = tuple(dict.fromkeys(inputs))
        if self.generator.random() < self.product_fraction:
            reduced = int(np.clip(self.generator.lognormal(np.log(self.median_reduced), 0.7), 16, 16384))
            shape = self.shape()
            if len(inputs) == 1:
                weight = sketch.weight(reduced * shape[1])
                return sketch.contraction(
                    "aten.linear.default", inputs, shape=shape, reduced=reduced, weight=weight, module_path=module_path
                )
            if len(inputs) == 2:
                return sketch.contraction("aten.bmm.default", inputs, shape=shape, reduced=reduced, module_path=module_path)
        op_type = str(self.generator.choice(_ONE_INPUT if len(inputs) == 1 else _MANY_INPUTS))
        shape = sketch.shape(inputs[0])
        if op_type == "aten.cat.default":
            elements = sum(int(np.prod(sketch.shape(operand))) for operand in inputs)
            shape = (min(elements, _MOST_BYTES // 4) // shape[-1], shape[-1])
        return sketch.pointwise(
            op_type, inputs, shape=shape, flops_per_element=_FLOPS_PER_ELEMENT.get(op_type, 1.0), module_path=module_path
        )


def _start(generator: np.random.Generator, num_ops: int) -> tuple[Sketch, _Draw]:
    if not 8 <= num_ops <= 10_000_000:
        raise InputError(f"a synthetic graph of {num_ops} ops cannot be drawn; ask for 8 to 10 000 000")
    return Sketch(), _Draw(generator)


def _forward_ops(num_ops: int, training: bool) -> int:
    return max(4, round(num_ops / _TRAINING_OPS_PER_FORWARD_OP)) if training else num_ops


def _source(family: str, num_ops: int, training: bool) -> str:
    return f"synthetic {family}, about {num_ops} ops, {'training step' if training else 'inference'}"


def _conv(sketch: Sketch, image: int, shape: tuple[int, ...], *, kernel: int, module_path: str) -> int:
    reduced = sketch.shape(image)[1] * kernel * kernel
    return sketch.contraction(
        "aten.conv2d.default",
        (image,),
        shape=shape,
        reduced=reduced,
        weight=sketch.weight(reduced * shape[1]),
        module_path=module_path,
    )


def _cell_operation(sketch: Sketch, state: int, kind: str, module_path: str) -> int:
    shape = sketch.shape(state)
    if kind == "skip":
        return state
    if kind in ("max", "avg"):
        return sketch.pointwise(f"aten.{kind}_pool2d.default", (state,), shape=shape, flops_per_element=9.0, module_path=module_path)
    active = sketch.pointwise("aten.relu.default", (state,), shape=shape, flops_per_element=1.0, module_path=module_path)
    return _conv(sketch, active, shape, kernel=int(kind.removeprefix("conv")), module_path=module_path)


def _lstm(sketch: Sketch, below: int, hidden: int, cell: int, weight: int, module_path: str) -> tuple[int, int]:
    """The gates' product, their activations, and the new hidden and cell state."""
    batch, width = sketch.shape(hidden)
    state = (batch, width)

    def pointwise(op_type: str, *inputs: int, flops: float = 1.0, shape: tuple[int, ...] = state) -> int:
        return sketch.pointwise(op_type, inputs, shape=shape, flops_per_element=flops, module_path=module_path)

    both = pointwise("aten.cat.default", below, hidden, shape=(batch, 2 * width))
    gates = sketch.contraction(
        "aten.linear.default", (both,), shape=(batch, 4 * width), reduced=2 * width, weight=weight, module_path=module_path
    )
    gate = pointwise("aten.sigmoid.default", gates, flops=4.0, shape=(batch, 3 * width))
    candidate = pointwise("aten.tanh.default", gates, flops=4.0)
    kept = pointwise("aten.mul.Tensor", gate, cell)
    written = pointwise("aten.mul.Tensor", gate, candidate)
    new_cell = pointwise("aten.add.Tensor", kept, written)
    squashed = pointwise("aten.tanh.default", new_cell, flops=4.0)
    return pointwise("aten.mul.Tensor", gate, squashed), new_cell
