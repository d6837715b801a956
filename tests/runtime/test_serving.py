"""What all measuring processes share: kept placements, and errors as answers."""

from typing import Any

import pytest

from gdp.runtime import serving
from gdp.runtime.serving import Kept, NotMeasured, answer, step_times
from gdp.runtime.timing import Protocol


def test_the_two_placements_used_last_are_kept() -> None:
    dropped: list[str] = []
    made: list[str] = []

    def make(name: str) -> str:
        assert len(made) - len(dropped) < 2  # never are three in memory
        made.append(name)
        return name

    kept: Kept[str] = Kept(drop=dropped.append)
    for name in ("a", "b", "a", "c", "a", "b"):
        assert kept.get((ord(name),), lambda name=name: make(name)) == name
    assert made == ["a", "b", "c", "b"] and dropped == ["b", "c"]
    kept.clear()
    assert sorted(dropped[2:]) == ["a", "b"]


def raising(error: BaseException, *, cause: BaseException | None = None) -> Any:
    def command(*, number: int) -> dict[str, Any]:
        raise error from cause

    return command


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (lambda *, number: {"twice": 2 * number}, {"twice": 6}),
        (raising(NotMeasured("it differs")), {"failed": "it differs"}),
        (raising(LookupError("it is\nnot there")), {"failed": "it is"}),
        (raising(ValueError("it is wrong")), {"failed": "ValueError: it is wrong"}),
        (raising(ValueError()), {"failed": "ValueError: no message"}),
        (raising(ValueError("step failed"), cause=MemoryError()), {"out_of_memory": "ValueError: step failed"}),
    ],
)
def test_what_a_command_raises_is_an_answer(command: Any, expected: dict[str, Any]) -> None:
    request = {"command": "do", "number": 3}
    answered, failure = answer({"do": command}, request, lacks_memory=lambda error: isinstance(error, MemoryError), told=(LookupError,))
    assert answered == expected and (failure is None) == ("twice" in expected)


def test_without_an_incumbent_a_placement_is_timed_alone() -> None:
    protocol = Protocol(max_warm_up=1, max_pairs=6)
    assert step_times(lambda: 2.0, None, protocol) == ([2.0] * 6, [])
    assert step_times(lambda: 2.0, lambda: 1.0, protocol) == ([2.0] * 6, [1.0] * 6)


def test_every_step_comes_after_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def step(name: str) -> float:
        seen.append(name)
        return 1.0

    monkeypatch.setattr(serving, "sleep", lambda pause_s: seen.append(f"{pause_s} s"))
    step_times(lambda: step("a"), lambda: step("b"), Protocol(max_warm_up=1, max_pairs=6), pause_s=0.5)
    assert len(seen) == 2 * 14 and set(seen[::2]) == {"0.5 s"} and set(seen[1::2]) == {"a", "b"}
