"""The table of candidates that every command prints."""

import math
from collections.abc import Sequence

from rich.table import Table

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
    memory of the fullest one, transfers, and how many placements were tried to find it."""
    with_measured = any(candidate.measured is not None for candidate in candidates)
    fastest_s = min((candidate.objective_s(objective) for candidate in candidates), default=math.inf)
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("candidate", no_wrap=True)
    table.add_column("predicted ms" if objective == "step_time" else "bottleneck ms", justify="right", no_wrap=True)
    table.add_column("measured ms" if with_measured else "ratio", justify="right", no_wrap=True)
    table.add_column("devices", justify="right")
    table.add_column("peak GiB", justify="right")
    table.add_column("transfers", justify="right")
    table.add_column("tried", justify="right")
    for candidate in candidates:
        ratio = candidate.objective_s(objective) / fastest_s
        table.add_row(
            candidate.name + (" *" if candidate.name == best else ""),
            _time(candidate.predicted, objective),
            _measured(candidate.measured) if with_measured else (f"{ratio:.3f}" if math.isfinite(ratio) else "-"),
            str(candidate.num_devices),
            f"{int(candidate.predicted.peak_memory_bytes.max()) / 2**30:.2f}",
            str(candidate.predicted.num_transfers),
            str(candidate.placement.origin.evaluations or "-"),
            style="bold" if candidate.name == best else None,
        )
    return table


def _time(measurement: Measurement, objective: Objective) -> str:
    if measurement.status != Status.OK:
        return measurement.status.name.lower().replace("_", " ")
    return milliseconds(measurement.objective_s(objective))


def _measured(measurement: Measurement | None) -> str:
    if measurement is None:
        return "-"
    if measurement.status != Status.OK:
        return measurement.status.name.lower().replace("_", " ")
    interval = f"{milliseconds(measurement.step_time_low_s)}-{milliseconds(measurement.step_time_high_s)}"
    return f"{milliseconds(measurement.step_time_s)} [{interval}]"
