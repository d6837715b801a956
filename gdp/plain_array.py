"""Values that people write down, as arrays."""

from typing import Any

import numpy as np

from gdp.errors import InputError


def plain_array(value: Any, what: str) -> np.ndarray:
    """`value` as NumPy takes it. Raises `InputError`, which names `what`, when it has no shape, as lists whose rows differ in length have none."""
    try:
        return np.asarray(value)
    except (ValueError, TypeError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(f"{what} is no array ({reason}); give one whose rows are of one length") from error
