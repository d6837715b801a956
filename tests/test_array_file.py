"""Arrays that a run keeps: what was written is read, and nothing else is."""

import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from gdp.array_file import read_arrays, write_arrays
from gdp.errors import InputError

PROMISED = {"a": (np.float32, (None, 3)), "b": (np.int16, (2,))}
ARRAYS = {"a": np.arange(12, dtype=np.float32).reshape(4, 3), "b": np.array([1, -1], np.int16)}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write_arrays(tmp_path / "new" / "x", ARRAYS | {"a": ARRAYS["a"][::-1]})
    found = read_arrays(tmp_path / "new" / "x", PROMISED)
    np.testing.assert_array_equal(found["a"], ARRAYS["a"][::-1])
    np.testing.assert_array_equal(found["b"], ARRAYS["b"])
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["x"]


def _npy(array: np.ndarray, *, allow_pickle: bool = False) -> bytes:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=allow_pickle)
    return data.getvalue()


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is damaged"),
        (save(ARRAYS)[:-1], "is damaged"),
        (save(ARRAYS) + b"\0", "is damaged"),
        (b'\xff\xff\xff\xff\xff\xff\xff\x7f{"a":{}}', "is damaged"),
        (_npy(np.zeros(3)), "is damaged"),
        (_npy(np.array([{}], object), allow_pickle=True), "is damaged"),
        (pickle.dumps(ARRAYS), "is damaged"),
        (save({"a": ARRAYS["a"]}), "holds 'a', not 'a', 'b'"),
        (save(ARRAYS | {"c": ARRAYS["b"]}), "holds 'a', 'b', 'c', not 'a', 'b'"),
        (save(ARRAYS | {"b": np.zeros(3, np.int16)}), r"'b' in .* is int16 of shape \(3,\), not int16 of shape \(2\)"),
        (save(ARRAYS | {"a": np.zeros((4, 2), np.float32)}), r"not float32 of shape \(any, 3\)"),
        (save(ARRAYS | {"a": np.zeros(12, np.float32)}), r"not float32 of shape \(any, 3\)"),
        (save(ARRAYS | {"a": np.zeros((4, 3), np.float64)}), "is float64"),
        (save(ARRAYS | {"a": np.full((4, 3), np.nan, np.float32)}), "not a finite number"),
        (save(ARRAYS | {"a": np.full((4, 3), -np.inf, np.float32)}), "not a finite number"),
    ],
)
def test_anything_else_is_refused(tmp_path: Path, content: bytes, told: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match=told):
        read_arrays(tmp_path / "x", PROMISED)


def test_what_is_no_file_or_too_large_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "hole", "wb") as file:
        file.truncate(2**40)
    for name, told in (("pipe", "not a regular file"), ("hole", "at most"), ("none", "cannot read")):
        with pytest.raises(InputError, match=told):
            read_arrays(tmp_path / name, PROMISED)
