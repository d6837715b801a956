"""The result of a run in one sentence, no better than the numbers allow."""

from gdp.candidate import Candidate
from gdp.measurement import Objective
from gdp.report.data import Interval, interval
from gdp.report.quantity import ratio


def speedup(best: Candidate, reference: Candidate, objective: Objective) -> Interval | None:
    """How many times faster `best` is than `reference`: measured where both were measured, else predicted; None where either cannot run.

    The interval divides the opposite ends of the two confidence intervals, so it is wider than one from paired runs.
    """
    both = best.measured is not None and reference.measured is not None
    ours = interval(best.measured if both else best.predicted, objective)
    theirs = interval(reference.measured if both else reference.predicted, objective)
    if ours is None or theirs is None or ours.low <= 0 or theirs.low <= 0:
        return None
    return Interval(value=theirs.value / ours.value, low=theirs.low / ours.high, high=theirs.high / ours.low)


def verdict_sentence(best: Candidate, reference: Candidate, objective: Objective) -> str:
    """One sentence: how much faster the chosen placement is than the best single device, or that one device is best."""
    how = "measured" if best.measured is not None and reference.measured is not None else "predicted"
    if best.name == reference.name:
        return f"One device is best: no {how} placement beats {reference.name}."
    gain = speedup(best, reference, objective)
    if gain is None:
        if interval(best.predicted, objective) is None:
            return "No placement that was tried can run on these devices."
        return f"{best.name} runs; no single device can hold this program."
    bounds = "" if gain.low == gain.high else f" [{gain.low:.2f}, {gain.high:.2f}]"
    if gain.low <= 1.0 <= gain.high:
        return f"No difference that can be told from noise: {best.name} is {ratio(gain.value)}{bounds} as fast as {reference.name} ({how})."
    faster = "faster than" if gain.value > 1 else "the speed of"
    return f"{ratio(gain.value)}{bounds} {faster} the best single device ({how})."
