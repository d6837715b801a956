import pytest

from gdp.measurement import Status
from gdp.runtime.answers import Profile, Steps, checked
from gdp.runtime.process import ChildFailed

PAIR = {"devices": ["cpu:0", "cpu:1"], "incumbent": [0]}
GOOD = {"candidate_s": [0.1] * 6, "incumbent_s": [0.2] * 6, "busy_s": [0.0, 0.1], "peak_memory_bytes": [0, 2**30]}


def test_what_makes_sense_passes():
    assert checked(Steps, GOOD, PAIR).incumbent_s == [0.2] * 6
    assert checked(Steps, {**GOOD, "incumbent_s": [], "more": 1}, {**PAIR, "incumbent": None}).incumbent_s == []
    assert checked(Profile, {"op_s": {"a": 0.0}}, {}).op_s == {"a": 0.0}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {**GOOD, "candidate_s": "fast"},
        {**GOOD, "candidate_s": [0.1] * 5},
        {**GOOD, "candidate_s": [0.1, 0.1, 0.1, 0.1, 0.1, 0.0]},
        {**GOOD, "candidate_s": [float("nan")] * 6},
        {**GOOD, "candidate_s": [float("inf")] * 6},
        {**GOOD, "candidate_s": ["0.1"] * 6},
        {**GOOD, "incumbent_s": [0.2] * 5},
        {**GOOD, "incumbent_s": []},
        {**GOOD, "busy_s": [-1.0, 0.0]},
        {**GOOD, "busy_s": []},
        {**GOOD, "peak_memory_bytes": [0]},
        {**GOOD, "peak_memory_bytes": [0, -1]},
        {**GOOD, "busy_s": None},
    ],
)
def test_what_makes_no_sense_is_a_failure(wrong):
    with pytest.raises(ChildFailed, match="makes no sense") as caught:
        checked(Steps, wrong, PAIR)
    assert caught.value.status == Status.FAILED
