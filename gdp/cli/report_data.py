"""From what a command found to the page it writes."""

import dataclasses
import importlib.metadata
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import gdp
from gdp.candidate import Candidate
from gdp.cli.run_folder import source_commit
from gdp.cluster import Cluster
from gdp.graph import Graph
from gdp.measurement import Objective
from gdp.report import Curve, Interval, Level, Probe, ReportData, Section, write_report
from gdp.runtime.simulator import Simulator
from gdp.runtime.verdict import Dispatch


def section(
    title: str,
    graph: Graph,
    cluster: Cluster,
    candidates: Sequence[Candidate],
    *,
    num_groups: int,
    best: str,
    reference: str,
    verdict: str,
    speed_up: Interval | None = None,
    objective: Objective,
    curves: Sequence[Curve],
    probes: Sequence[Probe],
    notes: Sequence[str],
    dispatch: Dispatch,
) -> Section:
    """A page's section. Timelines are simulated here: of `best`, of `reference`, and of the runner-up, which is drawn where one device wins."""
    ranked = sorted(candidates, key=lambda candidate: candidate.objective_s(objective))
    drawn = {best, reference, *(candidate.name for candidate in ranked[:2])}
    timed = Simulator(dispatch=dispatch, with_timeline=True)
    levels = [
        Level(name=candidate.name, seconds=candidate.objective_s(objective))
        for candidate in candidates
        if candidate.judged.status == gdp.Status.OK and candidate.placement.origin.placer != "gdp"
    ]
    return Section(
        title=title,
        graph=graph,
        cluster=cluster,
        num_groups=num_groups,
        objective=objective,
        candidates=tuple(
            dataclasses.replace(candidate, predicted=timed(graph, cluster, candidate.placement)) if candidate.name in drawn else candidate
            for candidate in candidates
        ),
        best=best,
        reference=reference,
        verdict=verdict,
        speed_up=speed_up,
        curves=tuple(curves),
        levels=tuple(levels) if curves else (),
        probes=tuple(probes),
        notes=tuple(notes),
    )


def write_page(path: Path, title: str, sections: Sequence[Section]) -> None:
    """Writes the report with the environment of this process."""
    write_report(path, ReportData(title=title, sections=tuple(sections), environment=environment()))


def environment() -> dict[str, str]:
    """What a run can be repeated with."""
    packages = ("torch", "torch-geometric", "numpy", "numba", "tensorflow")
    found = {name: importlib.metadata.version(name) for name in packages if _installed(name)}
    return {
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "gdp": f"{gdp.__version__}, commit {source_commit()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version}" for name, version in found.items()),
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
    }


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
