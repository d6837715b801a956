"""What a fine-tuning leaves behind: placement.json, result.json, and its section of a report."""

import dataclasses
import json
import math
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import gdp
from gdp.atomic_file import write_text
from gdp.candidate import Candidate
from gdp.cli.report_data import section
from gdp.cli.run_folder import source_commit, without_run_dir
from gdp.cli.runtimes import Judges
from gdp.hub.card import Card, base_model_of
from gdp.hub.checkpoint import save_checkpoint
from gdp.learn.finetune import FinetuneResult
from gdp.learn.task import Task
from gdp.measurement import Measurement, Objective, Status
from gdp.placement import Origin, write_placement
from gdp.policy.policy import Policy
from gdp.report import Curve, Interval, Probe, Section
from gdp.runtime.journal import Measured
from gdp.runtime.simulator import Simulator
from gdp.runtime.timing import Comparison
from gdp.runtime.verdict import Dispatch
from gdp.tracking.tracker import Tracker, Value


def write_result(folder: Path, task: Task, result: FinetuneResult, *, objective: Objective) -> None:
    """Writes `placement.json` (docs/formats.md) and `result.json` (there, too): verdict, candidates, comparisons, curve."""
    judgement = result.judgement
    best = judgement.best
    figures = {candidate.name: _figures(candidate) for candidate in judgement.candidates}
    write_placement(
        folder / "placement.json",
        best.placement,
        task.graph,
        task.cluster,
        gdp_version=gdp.__version__,
        predicted=_times(best.predicted) | {"peak_memory_bytes": best.predicted.peak_memory_bytes.tolist()},
        measured={} if best.measured is None else _times(best.measured) | {"num_runs": best.measured.num_runs},
        baselines=figures,
    )
    document = {
        "verdict": result.verdict,
        "best": best.name,
        "objective": objective,
        "candidates": figures,
        "against_one_device": _comparison(judgement.against_single),
        "against_simple_placement": _comparison(judgement.against_simple),
        "against_all_cores_unplaced": _comparison(result.against_all_cores),
        "lower_bound_s": result.bound_s,
        "curve": {
            "evaluations": result.evaluations.tolist(),
            "best_s": [value if math.isfinite(value) else None for value in result.best_s.tolist()],
            "mean_sampled_s": [value if math.isfinite(value) else None for value in result.mean_sampled_s.tolist()],
        },
    }
    write_text(folder / "result.json", json.dumps(document, indent=1, allow_nan=False) + "\n")


def against_all_cores(result: FinetuneResult, judges: Judges) -> FinetuneResult:
    """The result with its verdict's honest end, where times are measured and there are two CPU devices: how long the program takes that was never placed and may use all CPU cores
    for every op, be it beside a placement on several devices or beside one device."""
    compared = None if judges.compare_all_cores is None else judges.compare_all_cores(result.judgement.best.placement)
    if compared is None:
        return result
    gain = compared.speed_up
    takes = {"faster": "it takes", "slower": "it takes only", "equal": "it takes the same time:", "too_noisy": "it takes perhaps"}[
        compared.verdict
    ]
    ending = f"without any placement, on all CPU cores, {takes} {gain.median:.2f} times as long ({gain}, timed in turn)"
    return dataclasses.replace(result, against_all_cores=compared, verdict=f"{result.verdict}; {ending}")


def beside_the_bound(result: FinetuneResult, bound_s: float | None, *, objective: Objective) -> FinetuneResult:
    """The result with how much faster any placement could be, where times are simulated."""
    if bound_s is None or not 0 < bound_s < math.inf:
        return result
    most = result.judgement.best.objective_s(objective) / bound_s
    ending = f"no placement can be more than {most:.2f} times as fast as this one (predicted)"
    return dataclasses.replace(result, bound_s=bound_s, verdict=f"{result.verdict}; {ending}")


def write_checkpoint(folder: Path, policy: Policy, task: Task, result: FinetuneResult, *, origin: Origin, typed: Sequence[str]) -> None:
    """Writes the adapted policy as a checkpoint that `init=`, `--policy` and `gdp hub push` take; its card names the policy it came from."""
    card = Card(
        name=checkpoint_name(origin),
        summary=f"Adapted to one graph on one cluster by {int(result.evaluations[-1])} evaluations. {result.verdict}.",
        recipe=shlex.join(without_run_dir(typed)),
        commit=source_commit(),
        corpus=f"{task.graph.num_ops} ops from {task.graph.source}, on cluster {task.cluster.name}",
        seeds=() if origin.seed is None else (origin.seed,),
        results=(),
        limits="Meant for this graph on this cluster.",
        base_model=base_model_of(origin.policy, origin.revision),
    )
    save_checkpoint(folder, policy, card=card, replace=True)


def track_outcome(tracker: Tracker, folder: Path, task: Task, result: FinetuneResult, *, origin: Origin, step: int) -> None:
    """Tells the tracker what the run folder holds at the end: the candidates, the report with its timelines, the adapted policy and what it was made from."""
    judgement = result.judgement
    rows: list[dict[str, Value]] = [
        {
            "candidate": candidate.name,
            "status": candidate.judged.status.name.lower(),
            "predicted_s": candidate.predicted.step_time_s,
            "measured_s": None if candidate.measured is None else candidate.measured.step_time_s,
            "devices": candidate.num_devices,
            "transfers": int(candidate.predicted.num_transfers),
            "peak_memory_bytes": int(candidate.predicted.peak_memory_bytes.max()),
            "evaluations": candidate.placement.origin.evaluations,
        }
        for candidate in judgement.candidates
    ]
    made_from = {"graph_sha256": task.graph.sha256, "cluster": task.cluster.name, "cluster_sha256": task.cluster.sha256}
    if origin.policy is not None and origin.revision is not None:
        made_from |= {"base_model": origin.policy, "base_revision": origin.revision}
    tracker.table("placements", rows, step=step)
    tracker.page("report", folder / "report.html", step=step)
    tracker.checkpoint(checkpoint_name(origin), folder / "checkpoint", facts=made_from)
    tracker.summarise({"best": judgement.best.name, "best_s": judgement.best.judged.step_time_s, "verdict": result.verdict})


def checkpoint_name(origin: Origin) -> str:
    """The name of the adapted policy: that of the policy it came from, in letters that a name may have, and `-finetuned`."""
    base = Path((origin.policy or "new").partition("@")[0]).resolve().name
    return re.sub(r"[^A-Za-z0-9]+", "-", base).strip("-")[:60].strip("-") + "-finetuned"


def finetune_section(
    title: str, task: Task, result: FinetuneResult, *, measured: Sequence[Measured], objective: Objective, dispatch: Dispatch
) -> Section:
    """The section of a report; `measured` are the placements that really ran, candidates among them."""
    judgement = result.judgement
    curve = Curve(name="fine-tuning", evaluations=result.evaluations, best_s=result.best_s, mean_sampled_s=result.mean_sampled_s)
    return section(
        title,
        task.graph,
        task.cluster,
        judgement.candidates,
        num_groups=task.grouping.num_groups,
        best=judgement.best.name,
        reference=(judgement.best_single or judgement.best).name,
        verdict=result.verdict,
        speed_up=_speed_up(judgement.against_single),
        objective=objective,
        curves=[curve],
        probes=_probes(task, result, measured, dispatch=dispatch),
        notes=[f"{len(measured)} placements really ran; the simulator screened the others with the op times measured here."]
        if measured
        else [],
        dispatch=dispatch,
    )


def _probes(task: Task, result: FinetuneResult, measured: Sequence[Measured], *, dispatch: Dispatch) -> list[Probe]:
    """Predicted and measured time of what ran beside the candidates."""
    shown = {candidate.placement.device.tobytes() for candidate in result.judgement.candidates}
    others = [one for one in measured if one.measurement.status == Status.OK and one.device.tobytes() not in shown]
    if not others:
        return []
    predicted = Simulator(dispatch=dispatch).batch(task.graph, task.cluster, np.stack([one.device for one in others]))
    return [
        Probe(name=f"proposal {number + 1}", predicted_s=float(predicted.step_time_s[number]), measured_s=one.measurement.step_time_s)
        for number, one in enumerate(others)
        if predicted.status[number] == Status.OK
    ]


def _speed_up(compared: Comparison | None) -> Interval | None:
    if compared is None:
        return None
    gain = compared.speed_up
    return Interval(value=gain.median, low=gain.low, high=gain.high)


def _comparison(compared: Comparison | None) -> dict[str, object] | None:
    if compared is None:
        return None
    return {
        "ratio": compared.ratio,
        "low": compared.low,
        "high": compared.high if math.isfinite(compared.high) else None,
        "num_pairs": compared.num_pairs,
        "verdict": compared.verdict,
    }


def _figures(candidate: Candidate) -> dict[str, object]:
    figures: dict[str, object] = {"status": candidate.judged.status.name.lower(), **_times(candidate.judged)}
    if candidate.predicted.status == Status.OK:
        figures["predicted_step_time_s"] = candidate.predicted.step_time_s
    return figures


def _times(measurement: Measurement) -> dict[str, float | None]:
    if measurement.status != Status.OK:
        return {}
    times = {
        "step_time_s": measurement.step_time_s,
        "step_time_low_s": measurement.step_time_low_s,
        "step_time_high_s": measurement.step_time_high_s,
        "bottleneck_s": measurement.bottleneck_s,
    }
    return {name: seconds if math.isfinite(seconds) else None for name, seconds in times.items()}
