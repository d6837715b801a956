"""The table of candidates that every command prints."""

import math
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from gdp.candidate import Candidate
from gdp.measurement import Measurement, Objective, Status


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with three significant digits or more; a dash where there is no time."""
    if not math.isfinite(seconds):
        return "-"
    value = seconds * 1e3
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def candidates_table(title: str, candidates: Sequence[Candidate], *, best: str, objective: Objective) -> Table:
    """One row a candidate: predicted and measured milliseconds (with 95 % interval), or the ratio to the best prediction where nothing was measured; devices used,
    transfers, memory of the fullest device, and how many placements were tried to find it."""
    with_measured = any(candidate.measured is not None for candidate in candidates)
    fastest_s = min((candidate.objective_s(objective) for candidate in candidates), default=math.inf)
    quantity = "" if objective == "step_time" else "bottleneck, "
    table = Table(title=Text(title), title_justify="left", title_style="bold", padding=(0, 1), collapse_padding=True)
    table.add_column("candidate", no_wrap=True)
    table.add_column(f"{quantity}predicted ms", justify="right")
    table.add_column(f"{quantity}measured ms" if with_measured else "ratio", justify="right", no_wrap=with_measured)
    table.add_column("devices", justify="right")
    table.add_column("moved", justify="right")
    table.add_column("GiB", justify="right")
    table.add_column("tried", justify="right")
    for candidate in candidates:
        table.add_row(
            Text(candidate.name + (" *" if candidate.name == best else "")),
            _time(candidate.predicted, objective),
            _measured(candidate.measured, objective) if with_measured else ratio_text(candidate.objective_s(objective), fastest_s),
            str(candidate.num_devices),
            str(candidate.predicted.num_transfers),
            f"{int(candidate.predicted.peak_memory_bytes.max()) / 2**30:.2f}",
            str(candidate.placement.origin.evaluations or "-"),
            style="bold" if candidate.name == best else None,
        )
    return table


def ratio_text(seconds: float, reference_s: float) -> str:
    """How often the reference goes into a time; a dash where either is no time."""
    if not math.isfinite(seconds) or not math.isfinite(reference_s) or reference_s <= 0:
        return "-"
    return f"{seconds / reference_s:.3f}"


def status_text(status: Status) -> str:
    """A status as people write it."""
    return status.name.lower().replace("_", " ")


def _time(measurement: Measurement, objective: Objective) -> str:
    return milliseconds(measurement.objective_s(objective)) if measurement.status == Status.OK else status_text(measurement.status)


def _measured(measurement: Measurement | None, objective: Objective) -> str:
    if measurement is None:
        return "-"
    if measurement.status != Status.OK:
        return status_text(measurement.status)
    if objective == "bottleneck":
        return milliseconds(measurement.bottleneck_s)
    if not math.isfinite(measurement.step_time_high_s):
        return f"{milliseconds(measurement.step_time_s)} [noisy]"
    return f"{milliseconds(measurement.step_time_s)} [{milliseconds(measurement.step_time_low_s)}-{milliseconds(measurement.step_time_high_s)}]"
