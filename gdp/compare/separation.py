"""Which cells tell placers apart: where the best placement is much better than one device, and than a minimum cut.

On many graphs one device is nearly optimal for a single step; a method that is compared on these alone is not compared at all.
"""

import dataclasses
from collections.abc import Collection
from typing import Literal

import numpy as np

from gdp.compare.standings import SINGLE_DEVICE, CellKey, Standings

METIS = "metis"
SEPARATES = 1.05
"""From this speed-up of the best placement on, a cell separates it from a simpler one."""

Verdict = Literal["search", "rule", "cut", "nothing"]
"""What it takes to be within `SEPARATES` of the best placement of a cell: `nothing` but one device, METIS once (`cut`), some placer that does not search (`rule`), or `search`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Separation:
    """How far apart placements are in one cell. Ratios are larger than 1 where the best placer is faster; infinite where the other does not run, NaN where it was not asked."""

    cell: CellKey
    over_single: float
    """time of one device over that of the best placer."""
    over_metis: float
    """of METIS once."""
    over_rules: float
    """of the best placer that does not search, a minimum cut and one device among them."""
    over_bound: float
    """of the best placer over the lower bound: what nobody has found, or what cannot be had; not a number without a bound above 0."""
    parallelism: float
    """seconds of all ops over those of the longest path: how many devices the graph could keep busy if transfers were free."""
    best: str
    """the best placer, the first one among equals."""
    verdict: Verdict


def separation(standings: Standings, cell: CellKey, *, searches: Collection[str]) -> Separation:
    """Of one of the `timed` cells; `searches` are the placers that spend a budget of evaluations."""
    best_s, bound_s, facts = standings.best[cell], standings.bound_s(cell), standings.facts[cell]
    rules = [placer for placer in standings.placers if placer not in searches]
    over_single, over_metis = (standings.seconds.get((placer, cell), np.nan) / best_s for placer in (SINGLE_DEVICE, METIS))
    over_rules = min((standings.seconds[placer, cell] for placer in rules), default=np.nan) / best_s
    verdict: Verdict = "search"
    if over_single < SEPARATES:
        verdict = "nothing"
    elif over_metis < SEPARATES:
        verdict = "cut"
    elif over_rules < SEPARATES:
        verdict = "rule"
    return Separation(
        cell=cell,
        over_single=over_single,
        over_metis=over_metis,
        over_rules=over_rules,
        over_bound=best_s / bound_s if bound_s > 0 else np.nan,
        parallelism=facts.serial_s / facts.longest_path_s if facts.longest_path_s > 0 else 1.0,
        best=next((placer for placer in standings.placers if standings.seconds[placer, cell] == best_s < np.inf), ""),
        verdict=verdict,
    )
