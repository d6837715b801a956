"""From what a command found to the page it writes."""

import importlib.metadata
import os
import platform
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import gdp
from gdp.capture.coarsening import coarsen
from gdp.cluster import Cluster
from gdp.compare import Candidate as Compared
from gdp.graph import Graph
from gdp.measurement import Measurement, Objective
from gdp.report import Candidate, Curve, Level, ReportData, Section, write_report
from gdp.runtime.simulator import Simulator


def section(
    title: str,
    graph: Graph,
    cluster: Cluster,
    answers: Sequence[Compared],
    *,
    measured: Mapping[str, Measurement],
    best: str,
    reference: str,
    verdict: str,
    objective: Objective,
    curves: Sequence[Curve],
    notes: Sequence[str],
) -> Section:
    """A page's section: the candidates with what was predicted and, by name, `measured` of them; timelines of `best` and `reference` are simulated here."""
    timed = Simulator(with_timeline=True)
    candidates = [
        Candidate(
            name=answer.placer,
            placement=answer.placement,
            predicted=timed(graph, cluster, answer.placement) if answer.placer in (best, reference) else answer.measurement,
            measured=measured.get(answer.placer),
        )
        for answer in answers
    ]
    judged = {answer.placer: measured.get(answer.placer, answer.measurement) for answer in answers}
    levels = [
        Level(name=name, seconds=value.objective_s(objective))
        for name, value in judged.items()
        if value.status == gdp.Status.OK and name != best
    ]
    return Section(
        title=title,
        graph=graph,
        cluster=cluster,
        num_groups=coarsen(graph).num_groups,
        objective=objective,
        candidates=tuple(candidates),
        best=best,
        reference=reference,
        verdict=verdict,
        curves=tuple(curves),
        levels=tuple(levels) if curves else (),
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
        "gdp": gdp.__version__,
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
