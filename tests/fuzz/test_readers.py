"""Hostile files: every reader refuses them in one sentence, or reads a record that survives being written and read again. `make fuzz` tries far more."""

import pytest

from tests.fuzz.campaign import campaign
from tests.fuzz.reader import Reader
from tests.fuzz.readers import READERS

_INPUTS = 300
_MAX_PEAK_BYTES = 2**28
"""A few samples take a few megabytes; the graph files whose few bytes stand for a million values take most."""


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_hostile_files_are_refused_or_read_whole(reader: Reader) -> None:
    figures = campaign(reader.name, seed=20_260_101, inputs=_INPUTS)
    assert figures.findings == []
    assert figures.inputs == figures.refused + figures.accepted >= _INPUTS
    assert figures.accepted > _INPUTS // 50, "hardly any input gets past the first check: the changes are too coarse to try the others"
    assert figures.peak_bytes < _MAX_PEAK_BYTES
