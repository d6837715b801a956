"""Rows -> who stands where: medians over seeds, ratios, geometric means, curves."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float64

from gdp.compare.results import Cell, Results, Row

CellKey = tuple[str, str]

SINGLE_DEVICE, EXPERT = "single-device", "expert"
SAME = 0.005
"""Times that differ by less than this share are called equal."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Standing:
    """One placer over all cells. A ratio is a geometric mean over the cells in which both run; `None` where there is none."""

    placer: str
    over_single: float | None
    over_expert: float | None
    over_best: float | None
    over_bound: float | None
    worst_over_best: float | None
    """in its worst cell."""
    best_in: int
    """cells in which no other placer is faster by more than `SAME`."""
    runs_in: int
    spread: float | None
    """largest over smallest time of its seeds, geometric mean over cells."""
    evaluations: int
    """the most that it used in any cell."""
    wall_s: float
    """median over cells of seconds to answer."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class MeanCurve:
    """Geometric means over cells, infinite until all have found something that runs: of the mean over seeds, of the best seed and of the worst seed of each cell."""

    mean: Float64[np.ndarray, " evaluations"]
    low: Float64[np.ndarray, " evaluations"]
    high: Float64[np.ndarray, " evaluations"]


class Standings:
    """The figures of a comparison, for the given cells, placers and number of seeds; what the results lack counts as not running."""

    def __init__(self, results: Results, cells: Sequence[CellKey], placers: Sequence[str], *, seeds: int) -> None:
        self.cells, self.placers = list(cells), list(placers)
        asked = set(cells)
        self.facts: dict[CellKey, Cell] = {cell.key: cell for cell in results.cells if cell.key in asked}
        self._rows: dict[tuple[str, CellKey], list[Row]] = {(placer, cell): [] for cell in cells for placer in placers}
        for row in results.rows:
            if row.seed < seeds and (row.placer, (row.workload, row.cluster)) in self._rows:
                self._rows[row.placer, (row.workload, row.cluster)].append(row)
        self.seconds: dict[tuple[str, CellKey], float] = {
            key: float(np.median([np.inf if row.seconds is None else row.seconds for row in rows])) if rows else np.inf
            for key, rows in self._rows.items()
        }
        """by placer and cell: the median over seeds, infinite where it does not run."""
        self.best: dict[CellKey, float] = {cell: min((self.seconds[placer, cell] for placer in placers), default=np.inf) for cell in cells}
        self.timed: list[CellKey] = [cell for cell in cells if 0 < self.best[cell] < np.inf]
        """the cells in which a placement runs and takes time; the others have no ratios to the best."""

    def standing(self, placer: str) -> Standing:
        own = [self.seconds[placer, cell] for cell in self.cells]
        best = [self.best[cell] for cell in self.cells]
        ratios = [self.seconds[placer, cell] / self.best[cell] for cell in self.timed if np.isfinite(self.seconds[placer, cell])]
        rows = [row for cell in self.cells for row in self._rows[placer, cell]]
        walls = [row.wall_s for row in rows if row.status != "unknown"]
        return Standing(
            placer=placer,
            over_single=self._over_placer(own, SINGLE_DEVICE),
            over_expert=self._over_placer(own, EXPERT),
            over_best=geometric_mean_ratio(own, best),
            over_bound=geometric_mean_ratio(own, [self.bound_s(cell) for cell in self.cells]),
            worst_over_best=max(ratios, default=None),
            best_in=sum(mine <= least * (1 + SAME) for mine, least in zip(own, best, strict=True) if np.isfinite(mine)),
            runs_in=int(np.isfinite(own).sum()),
            spread=self._spread(placer),
            evaluations=max((row.evaluations for row in rows), default=0),
            wall_s=float(np.median(walls)) if walls else 0.0,
        )

    def bound_s(self, cell: CellKey) -> float:
        """The lower bound; not a number where it is unknown, or where nothing can run."""
        facts = self.facts.get(cell)
        return np.nan if facts is None or facts.bound_s is None else facts.bound_s

    def best_so_far(self, placer: str, evaluations: Sequence[int]) -> "MeanCurve | None":
        """Best times after so many evaluations over the cell's best, of the cells that have one; `None` where the placer has no rows in them."""
        found = [self.best_so_far_s(placer, cell, evaluations) / self.best[cell] for cell in self.timed if self._rows[placer, cell]]
        if not found:
            return None
        logarithms = [np.log(ratios) for ratios in found]
        mean, low, high = (np.exp(np.mean([over(each, axis=0) for each in logarithms], axis=0)) for over in (np.mean, np.min, np.max))
        return MeanCurve(mean=mean, low=low, high=high)

    def best_so_far_s(self, placer: str, cell: CellKey, evaluations: Sequence[int]) -> Float64[np.ndarray, "seeds evaluations"]:
        """The best time of each seed after so many evaluations."""
        rows = [best_after(row.improved_at, row.best_s, evaluations) for row in self._rows[placer, cell]]
        return np.stack(rows) if rows else np.full((0, len(evaluations)), np.inf)

    def range_s(self, placer: str, cell: CellKey) -> tuple[float, float]:
        """The smallest and the largest time of its seeds that run."""
        found = [row.seconds for row in self._rows[placer, cell] if row.seconds is not None]
        return (min(found), max(found)) if found else (np.inf, np.inf)

    def _over_placer(self, own: Sequence[float], placer: str) -> float | None:
        return geometric_mean_ratio(own, [self.seconds.get((placer, cell), np.inf) for cell in self.cells])

    def _spread(self, placer: str) -> float | None:
        ranges = [self.range_s(placer, cell) for cell in self.cells]
        return geometric_mean_ratio([high for _, high in ranges], [low for low, _ in ranges])


def best_after(improved_at: Sequence[int], best_s: Sequence[float], evaluations: Sequence[int]) -> Float64[np.ndarray, " evaluations"]:
    """The best time after each number of evaluations, from the improvements; infinite before the first."""
    known = np.array([np.inf, *best_s])
    return np.array(known[np.searchsorted(np.asarray(improved_at), np.asarray(evaluations), side="right")], np.float64)


def geometric_mean_ratio(seconds: Sequence[float], reference_s: Sequence[float]) -> float | None:
    """Geometric mean over cells of a placer's time to a reference's, over the cells in which both run and take time (finite and positive); `None` when there is none."""
    ours, theirs = np.array(seconds, np.float64), np.array(reference_s, np.float64)
    both = np.isfinite(ours) & np.isfinite(theirs) & (ours > 0) & (theirs > 0)
    return float(np.exp(np.log(ours[both] / theirs[both]).mean())) if both.any() else None


def means_by(standings: Standings, group_of: Mapping[CellKey, str], placers: Sequence[str]) -> dict[str, dict[str, float | None]]:
    """Per group of cells and placer, the geometric mean over the cell's best; groups in the order of their first cell."""
    groups = list(dict.fromkeys(group_of[cell] for cell in standings.cells))
    return {
        group: {
            placer: geometric_mean_ratio(
                [standings.seconds[placer, cell] for cell in standings.cells if group_of[cell] == group],
                [standings.best[cell] for cell in standings.cells if group_of[cell] == group],
            )
            for placer in placers
        }
        for group in groups
    }
