"""Whether two runs of a program gave the same arrays, as far as rounding lets them."""

import numpy as np

from gdp.runtime.rounding import MULTIPLE_OF_ROUNDING, ROUNDING, TOLERANCE


def difference(what: str, result: np.ndarray, expected: np.ndarray, disturbed: np.ndarray, start: np.ndarray | None = None) -> str:
    """Empty when `result` is `expected`, within a tolerance; else how far it is from it.

    Args:
        what: the array's name, for the sentence.
        result: of the run that is checked.
        expected: of the reference.
        disturbed: of the reference, once more from values that were changed by about a rounding error. Where that alone changes much (a decision
            between equals, an optimiser that divides a gradient of nothing by its magnitude), as much is allowed, times `MULTIPLE_OF_ROUNDING`.
        start: of a variable that a step updates, its value before: then the tolerance is relative to the largest change, not to the value.
    """
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return f"{what} is {result.dtype}{list(result.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if result.tobytes() == expected.tobytes():
        return ""
    if result.dtype.kind in "OSU":
        return f"{what} is another text"
    tolerance = TOLERANCE.get(expected.dtype.name, 0.0)
    whole_equal = expected.dtype.kind not in "iu" or np.array_equal(result, expected)  # beyond 2**53 float64 cannot tell
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    result, expected, disturbed = (array.astype(wide) for array in (result, expected, disturbed))
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(result), finite) or not np.array_equal(result[~finite], expected[~finite], equal_nan=True):
        return f"{what} is finite, infinite or no number in other places"
    if not finite.any():
        return ""
    scale = np.abs(expected[finite])
    moved = scale if start is None else np.abs(expected[finite] - start.astype(wide)[finite])
    sure = finite & np.isfinite(disturbed)
    allowed = tolerance * float(moved.max()) + 1e-3 * tolerance * float(scale.max())
    allowed += MULTIPLE_OF_ROUNDING * float(np.abs(disturbed[sure] - expected[sure]).max(initial=0.0))
    gap = max(float(np.abs(result[finite] - expected[finite]).max()), float(not whole_equal))
    return f"{what} by up to {gap:.3g}, where {allowed:.3g} is allowed" if gap > allowed else ""


def disturbed(value: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The value, its real numbers changed by about a rounding error of their precision; other dtypes stay."""
    if value.dtype.name not in ROUNDING:
        return value
    sign = generator.integers(0, 2, value.shape) * 2 - 1
    return np.asarray(value * (1 + sign * ROUNDING[value.dtype.name]), value.dtype)
