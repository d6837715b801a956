"""Arrays that a run keeps for itself, in a safetensors file: read with bounds, without pickle, and only as they were promised."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gdp.atomic_file import replacing
from gdp.bounded_file import read_bounded
from gdp.errors import InputError

MAX_BYTES = 2**30


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Writes the file whole or not at all; its folder is made if need be."""
    with replacing(path) as temporary:
        temporary.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))


def read_arrays(path: Path, promised: Mapping[str, tuple[type[np.generic], tuple[int | None, ...]]]) -> dict[str, np.ndarray]:
    """The arrays of `promised` names, each with its type of numbers and its shape, in which `None` stands for any length.

    Raises `InputError` when the file cannot be read, has more than `MAX_BYTES`, holds anything else, or a number that is not finite.
    """
    advice = "delete the file, and it is made anew"
    data = read_bounded(path, what="the file", advice=advice, max_bytes=MAX_BYTES)
    try:
        arrays: dict[str, np.ndarray] = load(data)
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise InputError(f"{path} is damaged ({error}); {advice}") from error
    if arrays.keys() != promised.keys():
        raise InputError(f"{path} holds {_names(arrays)}, not {_names(promised)}; {advice}")
    for name, (kind, shape) in promised.items():
        array = arrays[name]
        fits = len(array.shape) == len(shape) and all(wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True))
        if array.dtype != np.dtype(kind) or not fits:
            wanted = ", ".join("any" if length is None else str(length) for length in shape)
            raise InputError(
                f"{name!r} in {path} is {array.dtype} of shape {array.shape}, not {np.dtype(kind)} of shape ({wanted}); {advice}"
            )
        if not np.isfinite(array).all():
            raise InputError(f"{name!r} in {path} holds a value that is not a finite number; {advice}")
    return arrays


def _names(arrays: Mapping[str, object]) -> str:
    return ", ".join(repr(name[:100]) for name in sorted(arrays)[:10]) or "nothing"
