"""Many short events become few marks: what is narrower than a pixel is drawn together with its neighbours."""

import dataclasses

import numpy as np
from jaxtyping import Float64, Int64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    """Events of one lane that are drawn as one."""

    start_s: float
    end_s: float
    busy_s: float
    """sum of the events' seconds; less than the mark's width where there are gaps."""
    first: int
    """the event that starts first, as the caller numbers them."""
    last: int
    num_events: int


def merge(
    event: Int64[np.ndarray, " events"], start_s: Float64[np.ndarray, " events"], end_s: Float64[np.ndarray, " events"], *, pixel_s: float
) -> list[Mark]:
    """The marks of one lane, ascending. Events of at least `pixel_s` stand alone; shorter neighbours, gaps below `pixel_s`, are merged up to three pixels."""
    order = np.lexsort((end_s, start_s))
    marks: list[Mark] = []
    open_run = False
    for number, start, end in zip(event[order].tolist(), start_s[order].tolist(), end_s[order].tolist(), strict=True):
        if end <= start:
            continue
        short = end - start < pixel_s
        if short and open_run and start - marks[-1].end_s < pixel_s and end - marks[-1].start_s <= 3 * pixel_s:
            run = marks[-1]
            marks[-1] = Mark(
                start_s=run.start_s,
                end_s=max(run.end_s, end),
                busy_s=run.busy_s + end - start,
                first=run.first,
                last=number,
                num_events=run.num_events + 1,
            )
        else:
            marks.append(Mark(start_s=start, end_s=end, busy_s=end - start, first=number, last=number, num_events=1))
        open_run = short
    return marks
