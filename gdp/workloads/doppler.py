"""The four sharded graphs of DOPPLER (Yao et al., "DOPPLER: Dual-Policy Learning for Device Assignment in Asynchronous Dataflow Graphs", ICLR 2026, arXiv 2505.23131).

Each matrix is cut into blocks so that four devices have work; products of blocks are added up where the inner extent was cut. How matrices are cut, which op follows which,
and the extents come from the authors' published graph files (`compute_graph/gdp_*.txt`), which hold costs and edges but no names: the chain is `(A B) C + D E` of 10 000 x 10 000
matrices; the network is `softmax(relu(X W1) W2)` of 32 768 rows, 32 features and 65 536 hidden units; the Llama block is a block of LLaMA-7B (Touvron et al.,
arXiv 2302.13971) on 4096 tokens; the Llama layer is a block cut in another way, with the causal mask, the last norm and the logits of the last token. What the ops of a norm,
a softmax and a rotation are is our reading.

Deviations: every value is float32, so a cast is a copy; the files give each block the cost of the whole matrix, and here a block has its own. Weights are variables, each a
parameter that is sent to where it is used; other inputs are ops without work. Inputs and ops are 112, 192, 215 and 260 (the paper's 112, 192, 215 and 261: one input of the
Llama layer is not to be told from its file). The paper's expert is a search over assignments, no rule that could stand in `datasets/experts/`.
"""

import itertools
from collections.abc import Sequence

from gdp.graph import Graph
from gdp.workloads.sketch import Sketch

Blocks = list[list[int]]
"""The ops that hold a matrix, by block of rows and block of columns."""

_WIDTH, _HEADS, _FEED_FORWARD, _TOKENS, _VOCABULARY = 4096, 32, 11008, 4096, 32000
_HEAD_WIDTH = _WIDTH // _HEADS


def matrix_chain(*, extent: int = 10_000) -> Graph:
    """`(A B) C + D E` of square matrices, cut into 2 x 4 and 4 x 2 blocks for the first product, 2 x 2 and 2 x 4 for the others. `extent` is a multiple of 4."""
    sketch = Sketch()
    a, b, c = (_inputs(sketch, extent, extent, cut) for cut in ((2, 4), (4, 2), (2, 4)))
    d, e = (_inputs(sketch, extent, extent, cut) for cut in ((2, 2), (2, 4)))
    one = _product(sketch, _product(sketch, a, b, (2, 4, 2), extents=(extent,) * 3), c, (2, 2, 4), extents=(extent,) * 3)
    other = _product(sketch, d, e, (2, 2, 4), extents=(extent,) * 3)
    for left, right in zip(itertools.chain(*one), itertools.chain(*other), strict=True):
        sketch.pointwise("aten.add.Tensor", (left, right), shape=sketch.shape(left), flops_per_element=1.0)
    return sketch.graph(source=f"gdp.workloads.doppler.matrix_chain(extent={extent})", training=False)


def feed_forward_net(*, rows: int = 2**15, features: int = 2**5, hidden: int = 2**16) -> Graph:
    """`softmax(relu(X W1) W2)`: four blocks of rows, four of hidden units; the softmax in sixteen blocks of rows."""
    sketch = Sketch()
    x = _inputs(sketch, rows, features, (4, 1))
    first, second = _weights(sketch, features, hidden, (1, 4)), _weights(sketch, hidden, features, (4, 1))
    h = _product(sketch, x, first, (4, 1, 4), extents=(rows, features, hidden), weights=True)
    h = _each(sketch, "aten.relu.default", h)
    y = _product(sketch, h, second, (4, 4, 1), extents=(rows, hidden, features), weights=True)
    _softmax(sketch, [[block] for (block,) in y for _ in range(4)], (rows // 16, features))
    return sketch.graph(source=f"gdp.workloads.doppler.feed_forward_net(rows={rows}, features={features}, hidden={hidden})", training=False)


def llama_block() -> Graph:
    """A block of LLaMA-7B on 4096 tokens; the queries are cut by heads alone, keys and values by tokens, too; the feed-forward net by its hidden units."""
    sketch = Sketch()
    x = _inputs(sketch, _TOKENS, _WIDTH, (2, 2))
    frequencies, mask = sketch.input((_TOKENS, _HEAD_WIDTH)), sketch.input((_TOKENS, _TOKENS))
    normed = _norm(sketch, x, _norm_weights(sketch, 2), "attention_norm")
    q = _rotated(sketch, _project(sketch, normed, _WIDTH, (1, 2, 2), "wq"), frequencies)
    k = _rotated(sketch, _project(sketch, normed, _WIDTH, (2, 1, 2), "wk"), frequencies)
    v = _project(sketch, normed, _WIDTH, (2, 1, 2), "wv")
    scores = [[_scores(sketch, q[0][head], k[part][head], (16, _TOKENS, _TOKENS // 2)) for part in range(2)] for head in range(2)]
    masked = _scaled_and_masked(sketch, scores, [mask, mask])
    shares = _each(sketch, "aten._to_copy.default", _softmax(sketch, masked, (16, _TOKENS, _TOKENS // 2)))
    partial = [[_mixed(sketch, shares[head][part], v[part][head], _TOKENS, _TOKENS // 2) for part in range(2)] for head in range(2)]
    attended = [[_sum(sketch, parts) for parts in partial]]
    out = _project(sketch, attended, _WIDTH, (1, 2, 2), "wo")
    columns = [(x[0][column], x[1][column]) for column in range(2)]
    x = [[_added(sketch, (out[0][column], *columns[column])) for column in range(2)]]
    normed = _norm(sketch, x, _norm_weights(sketch, 1), "ffn_norm")
    down = _gated(sketch, normed, 1, 4)
    _added(sketch, (*down[0], *x[0]))
    return sketch.graph(source="gdp.workloads.doppler.llama_block()", training=False)


def llama_layer() -> Graph:
    """A block of LLaMA-7B on 4096 tokens with the last norm and the logits of the last token; queries are cut by tokens and heads, keys and values by heads alone."""
    sketch = Sketch()
    x = _inputs(sketch, _TOKENS, _WIDTH, (2, 2))
    table = sketch.input((2 * _TOKENS, _HEAD_WIDTH))
    masks = [sketch.pointwise("aten.full.default", (), shape=(_TOKENS // 2, _TOKENS), flops_per_element=1.0) for _ in range(2)]
    frequencies = sketch.pointwise("aten.slice.Tensor", (table,), shape=(_TOKENS, _HEAD_WIDTH), flops_per_element=1.0)
    normed = _norm(sketch, x, _norm_weights(sketch, 2), "attention_norm")
    q = _rotated(sketch, _project(sketch, normed, _WIDTH, (2, 1, 2), "wq"), frequencies)
    k = _rotated(sketch, _project(sketch, normed, _WIDTH, (1, 2, 2), "wk"), frequencies)
    v = _project(sketch, normed, _WIDTH, (1, 2, 2), "wv")
    cut = [(head, part) for head in range(2) for part in range(2)]
    scores = [[_scores(sketch, q[part][head], k[0][head], (16, _TOKENS // 2, _TOKENS))] for head, part in cut]
    masked = _scaled_and_masked(sketch, scores, masks)
    cast = _each(sketch, "aten._to_copy.default", masked)
    shares = _each(sketch, "aten._to_copy.default", _softmax(sketch, cast, (16, _TOKENS // 2, _TOKENS)))
    mixed = [_mixed(sketch, share, v[0][head], _TOKENS // 2, _TOKENS) for (head, _), (share,) in zip(cut, shares, strict=True)]
    formed = [_sum(sketch, [one]) for one in mixed]
    attended = [[formed[2 * head + part] for head in range(2)] for part in range(2)]
    out = _project(sketch, attended, _WIDTH, (2, 2, 1), "wo")
    x = [[_added(sketch, (out[part][0], *x[part]))] for part in range(2)]
    down = _gated(sketch, _norm(sketch, x, _norm_weights(sketch, 1), "ffn_norm"), 2, 2)
    x = [[_added(sketch, (down[part][0], *x[part]))] for part in range(2)]
    normed = _norm(sketch, x, _norm_weights(sketch, 1), "norm")
    last = sketch.pointwise("aten.select.int", (normed[1][0],), shape=(1, 1, _WIDTH), flops_per_element=1.0)
    last = sketch.pointwise("aten.squeeze.dim", (last,), shape=(1, _WIDTH), flops_per_element=1.0)
    weights = _weights(sketch, _WIDTH, _VOCABULARY, (1, 4))
    _product(sketch, [[last]], weights, (1, 1, 4), extents=(1, _WIDTH, _VOCABULARY), weights=True, module_path="output")
    return sketch.graph(source="gdp.workloads.doppler.llama_layer()", training=False)


def _inputs(sketch: Sketch, rows: int, columns: int, cut: tuple[int, int]) -> Blocks:
    return [[sketch.input((rows // cut[0], columns // cut[1])) for _ in range(cut[1])] for _ in range(cut[0])]


def _weights(sketch: Sketch, rows: int, columns: int, cut: tuple[int, int]) -> Blocks:
    """Numbers of weights, not of ops."""
    return [[sketch.weight(rows // cut[0] * (columns // cut[1]), as_op=True) for _ in range(cut[1])] for _ in range(cut[0])]


def _norm_weights(sketch: Sketch, parts: int) -> list[int]:
    return _weights(sketch, 1, _WIDTH, (1, parts))[0]


def overlapping(block: int, count: int, parts: int) -> range:
    """Which of `parts` equal parts of a whole the `block`-th of its `count` parts touches."""
    return range(block * parts // count, -(-(block + 1) * parts // count))


def _product(
    sketch: Sketch,
    left: Blocks,
    right: Blocks,
    cut: tuple[int, int, int],
    *,
    extents: tuple[int, int, int],
    weights: bool = False,
    module_path: str = "",
) -> Blocks:
    """Left times right, cut into rows x inner x columns; `right` holds blocks of just that cut, ops or with `weights` numbers of weights. The blocks of the result."""
    rows, inner, columns = cut
    shape = (extents[0] // rows, extents[2] // columns)
    result: Blocks = []
    for row in range(rows):
        result.append([])
        for column in range(columns):
            partial = []
            for part in range(inner):
                read = [left[a][b] for a in overlapping(row, rows, len(left)) for b in overlapping(part, inner, len(left[0]))]
                partial.append(
                    sketch.contraction(
                        "aten.mm.default",
                        (*read, *([] if weights else [right[part][column]])),
                        shape=shape,
                        reduced=extents[1] // inner,
                        weight=right[part][column] if weights else -1,
                        module_path=module_path,
                    )
                )
            result[-1].append(_sum(sketch, partial, module_path=module_path))
    return result


def _sum(sketch: Sketch, partial: Sequence[int], *, module_path: str = "") -> int:
    """Partial results added up; a single one is moved to where it belongs."""
    op_type, additions = ("aten.add.Tensor", len(partial) - 1.0) if len(partial) > 1 else ("aten.clone.default", 1.0)
    return sketch.pointwise(op_type, tuple(partial), shape=sketch.shape(partial[0]), flops_per_element=additions, module_path=module_path)


def _added(sketch: Sketch, operands: tuple[int, ...]) -> int:
    """The residual connection: the blocks of `x` that make up the place of the first operand, added to it."""
    return sketch.pointwise("aten.add.Tensor", operands, shape=sketch.shape(operands[0]), flops_per_element=1.0)


def _each(sketch: Sketch, op_type: str, blocks: Blocks) -> Blocks:
    """A pointwise op on every block."""
    return [[sketch.pointwise(op_type, (op,), shape=sketch.shape(op), flops_per_element=1.0) for op in row] for row in blocks]


def _norm(sketch: Sketch, x: Blocks, weights: list[int], path: str) -> Blocks:
    """RMSNorm (Zhang & Sennrich, arXiv 1910.07467): nine ops a block of rows and columns, four of them once a block of rows. Columns in as many blocks as there are `weights`."""
    x = _each(sketch, "aten._to_copy.default", x)
    squares = _each(sketch, "aten.mul.Tensor", _each(sketch, "aten.pow.Tensor_Scalar", x))
    result: Blocks = []
    for row, (ops, squared) in enumerate(zip(x, squares, strict=True)):
        rows, columns = sketch.shape(ops[0])
        mean = sketch.pointwise(
            "aten.sum.dim_IntList", tuple(squared), shape=(rows, 1), flops_per_element=float(len(ops) * columns), module_path=path
        )
        shifted = sketch.pointwise("aten.add.Scalar", (mean,), shape=(rows, 1), flops_per_element=1.0, module_path=path)
        scale = sketch.pointwise("aten.rsqrt.default", (shifted,), shape=(rows, 1), flops_per_element=1.0, module_path=path)
        width = len(ops) * columns // len(weights)
        result.append([])
        for part, weight in enumerate(weights):
            read = tuple(ops[other] for other in overlapping(part, len(weights), len(ops)))
            scaled = sketch.pointwise("aten.mul.Tensor", (*read, scale), shape=(rows, width), flops_per_element=1.0, module_path=path)
            cast = sketch.pointwise("aten._to_copy.default", (scaled,), shape=(rows, width), flops_per_element=1.0, module_path=path)
            result[row].append(
                sketch.pointwise("aten.mul.Tensor", (cast,), shape=(rows, width), flops_per_element=1.0, module_path=path, weight=weight)
            )
    return result


def _softmax(sketch: Sketch, blocks: Blocks, shape: tuple[int, ...]) -> Blocks:
    """Over the last axis, whose blocks of `shape` are those of one row: the greatest, the difference, its exponential, the sum, the quotient."""
    result: Blocks = []
    for row in blocks:
        greatest = _reduced(sketch, "aten.amax.default", "aten.maximum.default", row, shape)
        less = [sketch.pointwise("aten.sub.Tensor", (op, greatest), shape=shape, flops_per_element=1.0) for op in row]
        powers = _each(sketch, "aten.exp.default", [less])[0]
        total = _reduced(sketch, "aten.sum.dim_IntList", "aten.add.Tensor", powers, shape)
        result.append([sketch.pointwise("aten.div.Tensor", (op, total), shape=shape, flops_per_element=1.0) for op in powers])
    return result


def _reduced(sketch: Sketch, op_type: str, joined: str, ops: list[int], shape: tuple[int, ...]) -> int:
    """Each block of `shape` reduced over its last axis, and the results joined."""
    rows = (*shape[:-1], 1)
    parts = [sketch.pointwise(op_type, (op,), shape=rows, flops_per_element=float(shape[-1])) for op in ops]
    joining = joined if len(parts) > 1 else "aten.clone.default"
    return sketch.pointwise(joining, tuple(parts), shape=rows, flops_per_element=max(1.0, len(parts) - 1.0))


def _project(sketch: Sketch, x: Blocks, width: int, cut: tuple[int, int, int], path: str) -> Blocks:
    """All tokens times a weight matrix from the model's width to `width`."""
    weights = _weights(sketch, _WIDTH, width, cut[1:])
    return _product(sketch, x, weights, cut, extents=(_TOKENS, _WIDTH, width), weights=True, module_path=path)


def _rotated(sketch: Sketch, x: Blocks, frequencies: int) -> Blocks:
    """Rotary embedding (Su et al., arXiv 2104.09864): cast, to complex numbers, the rotation, back, cast."""
    x = _each(sketch, "aten.view_as_complex.default", _each(sketch, "aten._to_copy.default", x))
    turned = [
        [sketch.pointwise("aten.mul.Tensor", (op, frequencies), shape=sketch.shape(op), flops_per_element=3.0) for op in row] for row in x
    ]
    return _each(sketch, "aten._to_copy.default", _each(sketch, "aten.view_as_real.default", turned))


def _scores(sketch: Sketch, q: int, k: int, shape: tuple[int, int, int]) -> int:
    """Products of queries and keys for some heads, `[heads, queries, keys]`."""
    return sketch.contraction("aten.bmm.default", (q, k), shape=shape, reduced=_HEAD_WIDTH, module_path="attention")


def _mixed(sketch: Sketch, shares: int, v: int, queries: int, keys: int) -> int:
    """The values of some keys and half the heads weighted by their shares, `[queries, width / 2]`."""
    return sketch.contraction("aten.bmm.default", (shares, v), shape=(queries, _WIDTH // 2), reduced=keys, module_path="attention")


def _scaled_and_masked(sketch: Sketch, scores: Blocks, masks: list[int]) -> Blocks:
    """Each block of scores in its place, scaled, and the mask of its part added; a half of the heads has two parts, one after the other."""
    formed = [[_sum(sketch, [op]) for op in row] for row in scores]
    scaled = _each(sketch, "aten.mul.Tensor", formed)
    flat = [(row, place) for row in range(len(scaled)) for place in range(len(scaled[0]))]
    result: Blocks = [[] for _ in scaled]
    for number, (row, place) in enumerate(flat):
        op = scaled[row][place]
        result[row].append(sketch.pointwise("aten.add.Tensor", (op, masks[number % 2]), shape=sketch.shape(op), flops_per_element=1.0))
    return result


def _gated(sketch: Sketch, x: Blocks, rows: int, parts: int) -> Blocks:
    """SwiGLU (Shazeer, arXiv 2002.05202): `(silu(x W1) * x W3) W2` with the hidden units in `parts`."""
    gate = _each(sketch, "aten.silu.default", _project(sketch, x, _FEED_FORWARD, (rows, 1, parts), "w1"))
    value = _project(sketch, x, _FEED_FORWARD, (rows, 1, parts), "w3")
    hidden = [
        [sketch.pointwise("aten.mul.Tensor", pair, shape=sketch.shape(pair[0]), flops_per_element=1.0) for pair in zip(*both, strict=True)]
        for both in zip(gate, value, strict=True)
    ]
    weights = _weights(sketch, _FEED_FORWARD, _WIDTH, (parts, 1))
    extents = (_TOKENS, _FEED_FORWARD, _WIDTH)
    return _product(sketch, hidden, weights, (rows, parts, 1), extents=extents, weights=True, module_path="w2")
