"""Random programs of matrices that are cut into blocks, as tensor-parallel programs and blocked linear algebra are: few ops, much work in each, wide fans.

Every matrix is a grid of blocks, and an op works on blocks: products with weights or with other matrices, whose partial results are added up where the inner extent
was cut, pointwise ops, sums of two matrices, and normalisations, which join what a row of blocks has. Matrices are cut anew at every product, in powers of two, and an op
reads every block that it touches. `num_ops` is the size of the whole graph, met to within a third to 1.4 times from 100 ops on; with `training` it is one training step. The
generator is consumed. Fewer than 8 ops are an `InputError`. The idea of such graphs, not their shapes, is that of DOPPLER's (arXiv 2505.23131), which are hold-out.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from gdp.errors import InputError
from gdp.graph import Graph
from gdp.workloads.doppler import overlapping
from gdp.workloads.sketch import Sketch

_TRAINING_OPS_PER_FORWARD_OP = 2.5
_LEAST_ROWS, _MOST_ROWS = 2**8, 2**14
_LEAST_COLUMNS, _MOST_COLUMNS = 2**8, 2**13
_MOST_ELEMENTS = 2**26
"""of a matrix: 256 MiB."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Matrix:
    """Rows and columns in equal blocks; `ops[row][column]` computes a block."""

    rows: int
    columns: int
    ops: tuple[tuple[int, ...], ...]

    @property
    def cut(self) -> tuple[int, int]:
        return len(self.ops), len(self.ops[0])

    @property
    def block(self) -> tuple[int, int]:
        return self.rows // self.cut[0], self.columns // self.cut[1]

    def touched(self, row: int, rows: int, column: int, columns: int) -> tuple[int, ...]:
        """The ops of the blocks that share elements with block `(row, column)` of a grid of `rows` by `columns`."""
        return tuple(
            self.ops[own_row][own_column]
            for own_row in overlapping(row, rows, self.cut[0])
            for own_column in overlapping(column, columns, self.cut[1])
        )


def blocked(generator: np.random.Generator, *, num_ops: int, training: bool = False) -> Graph:
    """Starts from one to three matrices and a product with weights, and goes on, mostly with the latest ones, until the program has its size."""
    if not 8 <= num_ops <= 10_000_000:
        raise InputError(f"a program of {num_ops} ops on blocks cannot be drawn; ask for 8 to 10 000 000")
    program = _Program(generator, target=max(4, round(num_ops / _TRAINING_OPS_PER_FORWARD_OP)) if training else num_ops)
    rows = int(2 ** generator.integers(_LEAST_ROWS.bit_length() - 1, _MOST_ROWS.bit_length()))
    matrices = [program.input(rows, program.columns(rows)) for _ in range(int(generator.integers(1, 4)))]
    matrices.append(program.times_weights(matrices[0]))
    while program.left > 0:
        matrix = matrices[-1] if generator.random() < 0.7 else matrices[int(generator.integers(len(matrices)))]
        alike = [other for other in matrices if (other.rows, other.columns) == (matrix.rows, matrix.columns) and other is not matrix]
        same_columns = [other for other in matrices if other.columns == matrix.columns and matrix.rows * other.rows <= _MOST_ELEMENTS]
        kind = generator.choice(["weights", "pointwise", "sum", "normalise", "product"], p=[0.4, 0.25, 0.15, 0.1, 0.1])
        if kind == "weights":
            matrices.append(program.times_weights(matrix))
        elif kind == "sum" and alike:
            matrices.append(program.sum(matrix, alike[int(generator.integers(len(alike)))]))
        elif kind == "product" and same_columns:
            matrices.append(program.times_transposed(matrix, same_columns[int(generator.integers(len(same_columns)))]))
        elif kind == "normalise":
            matrices.append(program.normalise(matrix))
        else:
            matrices.append(program.pointwise(matrix))
    source = f"synthetic blocked, about {num_ops} ops, {'training step' if training else 'inference'}"
    return program.sketch.graph(source=source, training=training)


class _Program:
    """Ops on matrices, in a sketch; a weight is a variable that is sent to where it is used or a parameter, one of the two for the whole program."""

    def __init__(self, generator: np.random.Generator, *, target: int) -> None:
        self.sketch, self._generator, self._target = Sketch(), generator, target
        self._weights_as_ops = bool(generator.random() < 0.7)
        self._most_cuts = int(generator.integers(1, 4))
        self._variables = 0

    @property
    def left(self) -> int:
        """Ops that the program may still get."""
        return self._target - self.sketch.num_ops - self._variables

    def columns(self, rows: int) -> int:
        most = min(_MOST_COLUMNS, _MOST_ELEMENTS // rows)
        return int(2 ** self._generator.integers(_LEAST_COLUMNS.bit_length() - 1, max(most, _LEAST_COLUMNS).bit_length()))

    def input(self, rows: int, columns: int) -> _Matrix:
        cut_rows, cut_columns = self._cuts(2)
        shape = (rows // cut_rows, columns // cut_columns)
        return _Matrix(rows=rows, columns=columns, ops=_grid(cut_rows, cut_columns, lambda _row, _column: self.sketch.input(shape)))

    def pointwise(self, x: _Matrix) -> _Matrix:
        op_type = str(self._generator.choice(["aten.relu.default", "aten.gelu.default", "aten.tanh.default", "aten.mul.Tensor"]))
        ops = _grid(*x.cut, lambda row, column: self._each(op_type, (x.ops[row][column],), x.block))
        return dataclasses.replace(x, ops=ops)

    def sum(self, x: _Matrix, y: _Matrix) -> _Matrix:
        rows, columns = x.cut
        ops = _grid(
            rows,
            columns,
            lambda row, column: self._each("aten.add.Tensor", (x.ops[row][column], *y.touched(row, rows, column, columns)), x.block),
        )
        return dataclasses.replace(x, ops=ops)

    def normalise(self, x: _Matrix) -> _Matrix:
        """What each row of blocks has in common, and every block scaled by it."""
        rows, columns = x.cut
        joined = []
        for row in x.ops:
            parts = tuple(self._each("aten.sum.dim_IntList", (op,), (x.block[0], 1), flops=float(x.block[1])) for op in row)
            joined.append(self._each("aten.add.Tensor", parts, (x.block[0], 1)) if len(parts) > 1 else parts[0])
        ops = _grid(rows, columns, lambda row, column: self._each("aten.mul.Tensor", (x.ops[row][column], joined[row]), x.block))
        return dataclasses.replace(x, ops=ops)

    def times_weights(self, x: _Matrix) -> _Matrix:
        columns = self.columns(x.rows)
        cut_rows, cut_inner, cut_columns = self._cuts(3)
        weights = _grid(cut_inner, cut_columns, lambda _row, _column: self._weight(x.columns // cut_inner * (columns // cut_columns)))

        def block(row: int, column: int) -> int:
            return self._added_up(
                [
                    self.sketch.contraction(
                        "aten.mm.default",
                        x.touched(row, cut_rows, part, cut_inner),
                        shape=(x.rows // cut_rows, columns // cut_columns),
                        reduced=x.columns // cut_inner,
                        weight=weights[part][column],
                    )
                    for part in range(cut_inner)
                ]
            )

        return _Matrix(rows=x.rows, columns=columns, ops=_grid(cut_rows, cut_columns, block))

    def times_transposed(self, x: _Matrix, y: _Matrix) -> _Matrix:
        cut_rows, cut_inner, cut_columns = self._cuts(3)

        def block(row: int, column: int) -> int:
            return self._added_up(
                [
                    self.sketch.contraction(
                        "aten.mm.default",
                        (*x.touched(row, cut_rows, part, cut_inner), *y.touched(column, cut_columns, part, cut_inner)),
                        shape=(x.rows // cut_rows, y.rows // cut_columns),
                        reduced=x.columns // cut_inner,
                    )
                    for part in range(cut_inner)
                ]
            )

        return _Matrix(rows=x.rows, columns=y.rows, ops=_grid(cut_rows, cut_columns, block))

    def _cuts(self, count: int) -> tuple[int, ...]:
        """Powers of two whose product is at most what is left of the program."""
        cuts = [int(2 ** self._generator.integers(self._most_cuts + 1)) for _ in range(count)]
        while np.prod(cuts) > max(self.left, 1):
            cuts[int(np.argmax(cuts))] //= 2
        return tuple(cuts)

    def _each(self, op_type: str, inputs: tuple[int, ...], shape: tuple[int, int], flops: float = 1.0) -> int:
        return self.sketch.pointwise(op_type, inputs, shape=shape, flops_per_element=flops)

    def _added_up(self, partial: list[int]) -> int:
        return partial[0] if len(partial) == 1 else self._each("aten.add.Tensor", tuple(partial), _two(self.sketch.shape(partial[0])))

    def _weight(self, num_elements: int) -> int:
        self._variables += self._weights_as_ops
        return self.sketch.weight(num_elements, as_op=self._weights_as_ops)


def _two(shape: tuple[int, ...]) -> tuple[int, int]:
    rows, columns = shape
    return rows, columns


def _grid(rows: int, columns: int, block: Callable[[int, int], int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(block(row, column) for column in range(columns)) for row in range(rows))
