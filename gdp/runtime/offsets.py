"""Rows of a table that belong together, found between two offsets."""

import numpy as np
from jaxtyping import Int32, Int64


def offsets(keys: Int32[np.ndarray, " keys"] | Int64[np.ndarray, " keys"], count: int) -> Int64[np.ndarray, " count_and_end"]:
    """Where each of the keys 0 to `count` - 1 begins when all are sorted, and the end."""
    return np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=count))]).astype(np.int64)
