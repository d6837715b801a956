"""The last word on a set of candidates: which of them to use, and what to tell the user.

The fastest of many noisy measurements looks faster than it is. So where times are measured, the fastest candidates are timed in turn with the best single device once
more, for a fixed number of steps; the fastest of these, which was chosen for looking fast again, is timed a last time, and only that is told. A placement is used
instead of one device when both times say that it is surely faster: when in doubt, one device. What a policy found must not be slower than the best placement that
needed no learning, timed in turn with that. What is timed is the step, so a bottleneck stays as it was measured.
"""

import dataclasses
from collections.abc import Collection, Sequence
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from gdp.candidate import Candidate, best, best_single
from gdp.cluster import Cluster
from gdp.measurement import Objective
from gdp.placement import Placement
from gdp.runtime.timing import Comparison

NUM_FINALISTS = 3

Occasion = Literal["final", "winner", "simple"]
"""Every finalist against one device; the winner against it once more; a policy's winner against the best simple placement."""


@runtime_checkable
class Compare(Protocol):
    """Times a placement in turn with another one, for a verdict; `None` when one of them could not run to the end. `occasion` tells one comparison of the same two from another."""

    def __call__(self, candidate: Placement, incumbent: Placement, *, occasion: Occasion) -> Comparison | None: ...


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Judgement:
    """The winner among candidates, and the evidence."""

    best: Candidate
    candidates: tuple[Candidate, ...]
    """all of them, those that were timed in turn with the times found then, on the scale of the single device's."""
    best_single: Candidate | None
    """the best placement on one device; `None` when no device can hold the program."""
    best_simple: Candidate | None
    """the best placement on several devices that no policy made."""
    against_single: Comparison | None = None
    """of `best` with `best_single`; `None` in simulation, or when they are one."""
    against_simple: Comparison | None = None
    """of `best` with `best_simple`; `None` in simulation, or when no policy made `best`."""


def judge(candidates: Sequence[Candidate], *, learned: Collection[str], compare: Compare | None, objective: Objective) -> Judgement:
    """Chooses among `candidates`; those whose origin names one of the placers `learned` are a policy's.

    With `compare` and step times, a candidate that is surely faster than one device is used, the fastest of them, else that device. A policy's placement
    that is not faster than the best simple one gives way to it.
    """
    single = best_single(candidates, objective=objective)
    ahead = [candidate for candidate in candidates if candidate.num_devices > 1 and np.isfinite(candidate.objective_s(objective))]
    ahead.sort(key=lambda candidate: candidate.objective_s(objective))
    simple = next((candidate for candidate in ahead if candidate.placement.origin.placer not in learned), None)
    if compare is None or objective != "step_time":
        return Judgement(best=best(candidates, objective=objective), candidates=tuple(candidates), best_single=single, best_simple=simple)
    finalists = list({candidate.placement.device.tobytes(): candidate for candidate in reversed(ahead)}.values())[: -NUM_FINALISTS - 1 : -1]
    compared: dict[bytes, Comparison] = {}
    if single is not None:
        for finalist in [*finalists, *([] if simple is None else [simple])]:
            placed = finalist.placement.device.tobytes()
            comparison = None if placed in compared else compare(finalist.placement, single.placement, occasion="final")
            if comparison is not None:
                compared[placed] = comparison
    known = {one.name: _timed_in_turn(one, compared.get(one.placement.device.tobytes()), single) for one in candidates}
    simple = None if simple is None else known[simple.name]
    sure = [
        one
        for one in known.values()
        if one.placement.device.tobytes() in compared and compared[one.placement.device.tobytes()].verdict == "faster"
    ]
    winner = best(candidates if single is None else sure or [single], objective=objective)
    against_simple = None
    if simple is not None and winner.placement.origin.placer in learned and (single is None or simple in sure):
        if simple.placement.device.tobytes() != winner.placement.device.tobytes():
            against_simple = compare(winner.placement, simple.placement, occasion="simple")
        if against_simple is None or against_simple.ratio >= 1:
            winner, against_simple = simple, None
    against_single = None
    if single is not None and winner is not single:
        against_single = compare(winner.placement, single.placement, occasion="winner")
        if against_single is None or against_single.verdict != "faster":
            winner, against_single, against_simple = single, None, None
        else:
            winner = known[winner.name] = _timed_in_turn(winner, against_single, single)
    return Judgement(
        best=winner,
        candidates=tuple(known.values()),
        best_single=single,
        best_simple=simple,
        against_single=against_single,
        against_simple=against_simple,
    )


def verdict(judgement: Judgement, cluster: Cluster, *, objective: Objective) -> str:
    """What to tell the user: which placement won, by how much over the best single device, and over the best simple placement where the two were timed in turn."""
    winner, single, against = judgement.best, judgement.best_single, judgement.against_single
    used = winner.num_devices
    if used == 1:
        return f"one device is best: {cluster.devices[int(winner.placement.device[0])].name}"
    beside = ""
    if judgement.best_simple is not None and judgement.against_simple is not None:
        gain = judgement.against_simple.speed_up
        beside = f"; {gain.median:.2f} times as fast as {judgement.best_simple.name} ({gain})"
    if single is None:
        return f"{winner.name} is best, on {used} devices; no single device can hold the program{beside}"
    alone = single.name.removeprefix("one device: ") + " alone"
    if against is None:
        ratio = single.objective_s(objective) / winner.objective_s(objective)
        return f"{winner.name} is best, on {used} devices: {ratio:.2f} times as fast as {alone} (predicted){beside}"
    gain = against.speed_up
    return f"{winner.name} is best, on {used} devices: {gain.median:.2f} times as fast as {alone} (95 % interval {gain}, timed in turn){beside}"


def _timed_in_turn(candidate: Candidate, comparison: Comparison | None, single: Candidate | None) -> Candidate:
    """The candidate with the step time that the comparison found, on the scale of the single device's."""
    if comparison is None or single is None or candidate.measured is None:
        return candidate
    reference_s = single.judged.step_time_s
    measured = dataclasses.replace(
        candidate.measured,
        step_time_s=comparison.ratio * reference_s,
        step_time_low_s=comparison.low * reference_s,
        step_time_high_s=comparison.high * reference_s,
        num_runs=comparison.num_pairs,
    )
    return dataclasses.replace(candidate, measured=measured)
