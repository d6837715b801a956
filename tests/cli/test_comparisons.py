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


def test_an_answer_is_kept_per_occasion_and_placements(tmp_path: Path) -> None:
    path, asked = tmp_path / "comparisons.json", []

    def ask(occasion: str, *placements: Placement, runs: bool = True) -> Comparison | None:
        def compare() -> Comparison | None:
            asked.append(occasion)
            return compare_times([1.0 + len(asked)] * 8, [2.0] * 8) if runs else None

        return kept_in(path, occasion, placements, compare)

    first = ask("final", placed(0, 1), placed(0, 0))
    assert first is not None and ask("final", placed(0, 1), placed(0, 0)) == first and len(asked) == 1
    for occasion, placements in (
        ("winner", [placed(0, 1), placed(0, 0)]),
        ("final", [placed(0, 1), placed(1, 1)]),
        ("all cores", [placed(0, 1)]),
    ):
        other = ask(occasion, *placements)
        assert other is not None and other.ratio != first.ratio
    assert len(asked) == 4
    assert ask("final", placed(1, 0), placed(0, 0), runs=False) is None
    assert ask("final", placed(1, 0), placed(0, 0), runs=False) is None
    assert len(asked) == 6, "what could not run is asked again"


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}', '{"a": {"ratio": 1}}', "\xff"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "comparisons.json"
    path.write_text(content)
    with pytest.raises(InputError, match="comparisons.json"):
        kept_in(path, "final", [placed(0), placed(1)], lambda: None)
