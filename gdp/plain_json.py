"""JSON of files that may come from anywhere, read without surprises: no key twice, no number that is not finite."""

import json
import math
from collections import Counter
from typing import Any


def parse_json(data: bytes) -> Any:
    """The document. Raises `ValueError` with one line when it is no JSON, has a key twice or a number that is not finite, or nests too deep."""
    try:
        return json.loads(data, object_pairs_hook=_without_repetition, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("it nests too deep") from error


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {twice!r} is there twice")
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is no finite number")
    return value
