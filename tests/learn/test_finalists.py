"""Who wins among noisy measurements, judged by step times that are known."""

import numpy as np
import pytest
from problems import two_devices

from gdp.candidate import Candidate
from gdp.learn.finalists import Compare, judge, verdict
from gdp.measurement import Measurement, Status
from gdp.placement import Origin, Placement
from gdp.runtime.timing import Comparison, compare_times

CLUSTER = two_devices()


def took(step_time_s: float) -> Measurement:
    runs = bool(np.isfinite(step_time_s))
    return Measurement(
        status=Status.OK if runs else Status.OUT_OF_MEMORY,
        detail="" if runs else "too large",
        step_time_s=step_time_s,
        step_time_low_s=step_time_s,
        step_time_high_s=step_time_s,
        num_runs=1,
        bottleneck_s=step_time_s,
        peak_memory_bytes=np.zeros(2, np.int64),
        busy_s=np.zeros(2),
        num_transfers=0,
        transferred_bytes=0,
    )


def candidate(name: str, device: list[int], seen_s: float, *, placer: str = "metis") -> Candidate:
    placement = Placement(device=np.array(device, np.int32), origin=Origin(placer=placer))
    return Candidate(name=name, placement=placement, predicted=took(seen_s), measured=took(seen_s))


def in_truth(true_s: dict[tuple[int, ...], float], *, noise: float = 0.0, seed: int = 7) -> Compare:
    """Compares by the true step times, each pair of steps with lognormal noise."""
    generator = np.random.default_rng(seed)

    def compare(first: Placement, second: Placement, *, occasion: str) -> Comparison:
        ours, theirs = (true_s[tuple(one.device.tolist())] for one in (first, second))
        return compare_times((ours * generator.lognormal(0, noise, 48)).tolist(), (theirs * generator.lognormal(0, noise, 48)).tolist())

    return compare


ONE = candidate("one device: d0", [0, 0, 0], 1.0, placer="single-device")
ZERO = candidate("zero-shot", [0, 1, 0], 0.5, placer="gdp")
TUNED = candidate("fine-tuned", [0, 1, 1], 0.4, placer="gdp")
METIS = candidate("metis", [1, 1, 0], 0.6)
SPLIT = candidate("contiguous", [0, 0, 1], 0.9)


def truth(one: float, zero: float, tuned: float, metis: float, split: float = 0.9) -> dict[tuple[int, ...], float]:
    return {(0, 0, 0): one, (0, 1, 0): zero, (0, 1, 1): tuned, (1, 1, 0): metis, (0, 0, 1): split}


def test_what_looked_fastest_gives_way_to_what_is() -> None:
    judged = judge([ONE, ZERO, TUNED, METIS], learned=("gdp",), compare=in_truth(truth(1.0, 0.5, 0.7, 0.6)), objective="step_time")
    assert (judged.best.name, judged.best.judged.step_time_s) == ("zero-shot", pytest.approx(0.5))
    assert judged.against_single is not None and judged.against_single.ratio == pytest.approx(0.5)
    assert judged.against_simple is not None and judged.against_simple.ratio == pytest.approx(0.5 / 0.6)
    sentence = verdict(judged, CLUSTER, objective="step_time")
    assert sentence == (
        "zero-shot is best, on 2 devices: 2.00 times as fast as d0 alone (95 % interval 2.00 to 2.00, timed in turn); 1.20 times as fast as metis (1.20 to 1.20)"
    )


def test_the_best_simple_placement_is_timed_though_it_seemed_fourth_and_wins_when_it_is_faster() -> None:
    third = candidate("early", [1, 0, 1], 0.45, placer="gdp")
    true_s = truth(1.0, 0.5, 0.5, 0.3) | {(1, 0, 1): 0.5}
    judged = judge([ONE, ZERO, TUNED, third, METIS], learned=("gdp",), compare=in_truth(true_s), objective="step_time")
    assert judged.best.name == "metis" and judged.against_simple is None
    assert judged.against_single is not None and judged.against_single.ratio == pytest.approx(0.3)


def test_one_placement_of_three_names_is_one_finalist() -> None:
    twins = [candidate(name, [1, 1, 0], 0.45) for name in ("contiguous", "metis", "list scheduling")]
    timed: list[str] = []
    answers = in_truth(truth(1.0, 0.8, 0.3, 0.5))

    def compare(first: Placement, second: Placement, *, occasion: str) -> Comparison | None:
        timed.append(occasion)
        return answers(first, second, occasion=occasion)

    tuned = candidate("fine-tuned", [0, 1, 1], 0.51, placer="gdp")
    judged = judge([ONE, *twins, ZERO, tuned], learned=("gdp",), compare=compare, objective="step_time")
    assert judged.best.name == "fine-tuned" and timed.count("final") == 3
    assert [one.judged.step_time_s for one in judged.candidates[1:4]] == [pytest.approx(0.5)] * 3


def test_a_learned_placement_that_is_a_simple_one_is_called_by_its_simple_name() -> None:
    same = candidate("fine-tuned", [1, 1, 0], 0.4, placer="gdp")
    judged = judge([ONE, METIS, same], learned=("gdp",), compare=in_truth(truth(1.0, 1.0, 1.0, 0.5)), objective="step_time")
    assert judged.best.name == "metis" and judged.against_simple is None


def test_a_simple_placement_that_is_surely_faster_than_the_learned_one_is_used() -> None:
    answers = in_truth(truth(1.0, 0.55, 0.5, 0.5))

    def compare(first: Placement, second: Placement, *, occasion: str) -> Comparison | None:
        """One device is timed at another hour: what was 0.5 against it is 1.1 against METIS."""
        return compare_times([1.1] * 48, [1.0] * 48) if occasion == "simple" else answers(first, second, occasion=occasion)

    judged = judge([ONE, ZERO, TUNED, METIS], learned=("gdp",), compare=compare, objective="step_time")
    assert judged.best.name == "metis" and judged.against_simple is None


def test_one_device_is_used_where_nothing_beats_it() -> None:
    judged = judge([ONE, ZERO, TUNED, METIS], learned=("gdp",), compare=in_truth(truth(1.0, 1.2, 1.3, 1.4)), objective="step_time")
    assert judged.best.name == ONE.name and judged.against_single is None
    assert verdict(judged, CLUSTER, objective="step_time") == "one device is best: d0"


def test_in_doubt_one_device_is_used() -> None:
    noisy = judge([ONE, TUNED, METIS], learned=("gdp",), compare=in_truth(truth(1.0, 1.0, 0.97, 1.0), noise=0.8), objective="step_time")
    assert noisy.best.name == ONE.name and noisy.against_single is None


def test_equal_placements_seldom_look_better_than_one_device() -> None:
    wrong = 0
    for seed in range(200):
        compare = in_truth(truth(1.0, 1.0, 1.0, 1.0), noise=0.1, seed=seed)
        wrong += judge([ONE, ZERO, TUNED, METIS], learned=("gdp",), compare=compare, objective="step_time").best.name != ONE.name
    assert wrong <= 4  # each of three once in forty at first, and then once in forty again


def test_what_is_told_of_the_winner_is_not_what_it_was_chosen_by() -> None:
    seen: list[tuple[str, float]] = []
    answers = in_truth(truth(1.0, 0.5, 0.5, 0.5), noise=0.1)

    def compare(first: Placement, second: Placement, *, occasion: str) -> Comparison | None:
        comparison = answers(first, second, occasion=occasion)
        assert comparison is not None
        seen.append((occasion, comparison.ratio))
        return comparison

    judged = judge([ONE, ZERO, TUNED, METIS], learned=("gdp",), compare=compare, objective="step_time")
    assert judged.against_single is not None
    assert [occasion for occasion, _ in seen].count("winner") == 1 and seen[-1] == ("winner", judged.against_single.ratio)
    assert judged.best.judged.step_time_s == judged.against_single.ratio * ONE.judged.step_time_s


def test_a_learned_placement_that_is_not_faster_than_the_simple_one_gives_way() -> None:
    answers = in_truth(truth(1.0, 0.6, 0.5, 0.5))

    def compare(first: Placement, second: Placement, *, occasion: str) -> Comparison | None:
        noise = np.random.default_rng(0).lognormal(0, 0.2, 48)
        slightly_slower = compare_times((noise / np.median(noise) * 1.001).tolist(), [1.0] * 48)
        return slightly_slower if occasion == "simple" else answers(first, second, occasion=occasion)

    judged = judge([ONE, ZERO, TUNED, METIS], learned=("gdp",), compare=compare, objective="step_time")
    assert judged.best.name == "metis"


def test_where_no_device_holds_the_program_the_simple_placement_is_the_measure() -> None:
    none = candidate("one device: d0", [0, 0, 0], np.inf, placer="single-device")
    judged = judge([none, TUNED, METIS], learned=("gdp",), compare=in_truth(truth(9.0, 0.5, 0.4, 0.6)), objective="step_time")
    assert judged.best.name == TUNED.name and judged.best_single is None
    assert verdict(judged, CLUSTER, objective="step_time") == (
        "fine-tuned is best, on 2 devices; no single device can hold the program; 1.50 times as fast as metis (1.50 to 1.50)"
    )


def test_in_simulation_the_lowest_prediction_wins() -> None:
    judged = judge([ONE, METIS, SPLIT], learned=("gdp",), compare=None, objective="step_time")
    assert judged.best.name == "metis" and judged.against_single is None
    assert verdict(judged, CLUSTER, objective="step_time") == "metis is best, on 2 devices: 1.67 times as fast as d0 alone (predicted)"
