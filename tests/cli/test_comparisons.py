"""A final comparison is made once, whatever happens to the run."""

from pathlib import Path

import numpy as np
import pytest

from gdp.cli.comparisons import kept_in
from gdp.errors import InputError
from gdp.placement import Origin, Placement
from gdp.runtime.timing import Comparison, compare_times


def placed(*device: int) -> Placement:
    return Placement(device=np.array(device, np.int32), origin=Origin(placer="user"))


def test_an_answer_is_kept_per_pair_of_placements(tmp_path: Path) -> None:
    asked: list[tuple[list[int], list[int]]] = []

    def compare(candidate: Placement, incumbent: Placement, *, occasion: str) -> Comparison | None:
        asked.append((candidate.device.tolist(), incumbent.device.tolist()))
        return None if candidate.device[0] else compare_times([1.0 + len(asked)] * 8, [2.0] * 8)

    path = tmp_path / "comparisons.json"
    first = kept_in(path, compare)(placed(0, 1), placed(0, 0), occasion="final")
    again = kept_in(path, compare)(placed(0, 1), placed(0, 0), occasion="final")
    assert first == again and asked == [([0, 1], [0, 0])]
    kept_in(path, compare)(placed(0, 1), placed(0, 0), occasion="winner")
    assert len(asked) == 2, "another occasion is another comparison"
    other = kept_in(path, compare)(placed(0, 1), placed(1, 1), occasion="final")
    assert other is not None and first is not None and other.ratio != first.ratio
    assert kept_in(path, compare)(placed(1, 0), placed(0, 0), occasion="final") is None
    assert kept_in(path, compare)(placed(1, 0), placed(0, 0), occasion="final") is None
    assert len(asked) == 5, "what could not run is asked again"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', '{"a": {"ratio": 1}}', "\xff"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "comparisons.json"
    path.write_text(content)
    with pytest.raises(InputError, match="comparisons.json"):
        kept_in(path, lambda candidate, incumbent, *, occasion: None)(placed(0), placed(1), occasion="final")
