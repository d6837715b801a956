"""How much faster the chosen placement is, no better than the numbers allow."""

from gdp.candidate import Candidate
from gdp.measurement import Objective
from gdp.report.data import Interval, interval


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
