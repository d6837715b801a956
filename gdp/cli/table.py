"""The table of candidates that every command prints."""

import math
from collections.abc import Sequence

from rich.table import Table

from gdp.compare import Candidate
from gdp.measurement import Measurement, Objective, Status


def milliseconds(seconds: float) -> str:
    """Seconds as milliseconds with three significant digits or more; a dash where there is no time."""
    if not math.isfinite(seconds):
        return "-"
    value = seconds * 1e3
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def measured_text(measurement: Measurement | None) -> str:
    """Median and its 95 % interval in ms, or why there is none."""
    if measurement is None:
        return "-"
    if measurement.status != Status.OK:
        return measurement.status.name.lower().replace("_", " ")
    interval = f"{milliseconds(measurement.step_time_low_s)}-{milliseconds(measurement.step_time_high_s)}"
    return f"{milliseconds(measurement.step_time_s)} [{interval}]"


def candidates_table(title: str, rows: Sequence[tuple[Candidate, Measurement | None]], *, best: str, objective: Objective) -> Table:
    """One row a candidate: predicted and measured milliseconds, ratio to the best prediction, devices used, memory of the fullest
    one, transfers, and how many placements were tried to find it."""
    fastest_s = min((candidate.measurement.objective_s(objective) for candidate, _ in rows), default=math.inf)
    with_measured = any(measured is not None for _, measured in rows)
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column("candidate", no_wrap=True)
    table.add_column("predicted ms" if objective == "step_time" else "bottleneck ms", justify="right")
    if with_measured:
        table.add_column("measured ms", justify="right", no_wrap=True)
    else:
        table.add_column("ratio", justify="right")
    table.add_column("devices", justify="right")
    table.add_column("peak GiB", justify="right")
    table.add_column("transfers", justify="right")
    table.add_column("tried", justify="right")
    for candidate, measured in rows:
        prediction = candidate.measurement
        seconds = prediction.objective_s(objective)
        time = milliseconds(seconds) if prediction.status == Status.OK else prediction.status.name.lower().replace("_", " ")
        ratio = f"{seconds / fastest_s:.3f}" if math.isfinite(seconds) else "-"
        used = len(set(candidate.placement.device.tolist()))
        table.add_row(
            candidate.placer + (" *" if candidate.placer == best else ""),
            time,
            measured_text(measured) if with_measured else ratio,
            str(used),
            f"{int(prediction.peak_memory_bytes.max()) / 2**30:.2f}",
            str(prediction.num_transfers),
            str(candidate.placement.origin.evaluations or "-"),
            style="bold" if candidate.placer == best else None,
        )
    return table
