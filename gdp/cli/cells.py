"""The work behind `gdp compare`, piece by piece: a cell's bounds, a placer's answer in a cell. In this process or in several."""

import dataclasses
import functools
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool

import numpy as np

from gdp.cli.model import Model, resolve_model
from gdp.cli.placers import Setting, placer
from gdp.cli.worker_process import begin_worker
from gdp.cluster import Cluster, preset
from gdp.compare.asking import candidates
from gdp.compare.recorded import Recorded
from gdp.compare.results import Cell, Row, Settings
from gdp.errors import InputError, printable
from gdp.measurement import Runtime, Status
from gdp.runtime.simulator import Simulator
from gdp.runtime.verdict import Dispatch


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What one piece of work finds out: a placer's answer, or, without a placer, what holds for every placement."""

    workload: str
    cluster: str
    placer: str | None
    seed: int
    settings: Settings

    @property
    def cell(self) -> tuple[str, str]:
        return self.workload, self.cluster

    def __str__(self) -> str:
        return f"{self.workload} on {self.cluster}: {self.placer or 'bounds'}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What was found, and for which graph: a workload's name may stand for another one by now."""

    found: Cell | Row
    graph_sha256: str


def answers(questions: Sequence[Question], clusters: Mapping[str, Cluster], *, workers: int) -> Iterator[tuple[Question, Answer]]:
    """Each question with its answer, in the order in which they are found. `clusters` has those that are named.

    With several workers they are processes, each with its share of the cores, and all of them end with the generator.
    """
    if workers == 1:
        for question in questions:
            yield question, _answer(question, clusters[question.cluster])
        return
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (dict(clusters), workers, os.getpid()))
    try:
        asked = {pool.submit(_answer_in_worker, question): question for question in questions}
        for done in as_completed(asked):
            yield asked[done], done.result()
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process was killed, most likely for want of memory; repeat the command with --workers 1, what is in --out is kept"
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()


def _answer(question: Question, cluster: Cluster) -> Answer:
    model = _model(question.workload)
    found = _cell(question, model, cluster) if question.placer is None else _row(question, question.placer, model, cluster)
    return Answer(found=found, graph_sha256=model.graph.sha256)


def _cell(question: Question, model: Model, cluster: Cluster) -> Cell:
    from gdp.baselines.bounds import lower_bound
    from gdp.baselines.memory_shortage import memory_shortage
    from gdp.cli.candidates import refuse_unknown_times
    from gdp.runtime.levels import b_level
    from gdp.runtime.roofline import op_time_s

    refuse_unknown_times(model.graph, cluster)
    shortage = memory_shortage(model.graph, cluster)
    if shortage is not None:
        print(printable(f"{question.workload} on {question.cluster}: no placement can run: {shortage}"), file=sys.stderr)
    bound = lower_bound(model.graph, cluster, objective=question.settings.objective)
    seconds = op_time_s(model.graph, cluster)
    path = b_level(model.graph, seconds.min(axis=1), np.zeros(model.graph.num_edges))
    return Cell(
        workload=question.workload,
        cluster=question.cluster,
        graph_sha256=model.graph.sha256,
        cluster_sha256=cluster.sha256,
        num_ops=model.graph.num_ops,
        bound_s=bound.value_s if np.isfinite(bound.value_s) else None,
        bound=bound.bound,
        serial_s=float(seconds.sum(axis=0).min()),
        longest_path_s=float(path.max()),
    )


def _row(question: Question, name: str, model: Model, cluster: Cluster) -> Row:
    settings = question.settings
    simulator = Simulator(dispatch=settings.dispatch or model.dispatch)
    recorded = Recorded(simulator, objective=settings.objective)
    setting = _setting(settings, recorded, simulator.dispatch, seed=question.seed, family=_families().get(question.workload))
    found = {"workload": question.workload, "cluster": question.cluster, "placer": name, "seed": question.seed}
    built = placer(name, setting)
    if built is None:
        nothing = dict.fromkeys(("evaluations", "devices_used", "transfers", "transferred_bytes"), 0) | {"wall_s": 0.0, "busy_share": 0.0}
        return Row.model_validate({**found, "status": "unknown", "detail": "", "seconds": None, **nothing, "improved_at": [], "best_s": []})
    _warm_up(name, settings)
    (answer,) = candidates(model.graph, cluster, {name: built}, runtime=simulator)
    judged, seconds = answer.judged, answer.objective_s(settings.objective)
    ran = judged.status == Status.OK and judged.step_time_s > 0
    return Row.model_validate(
        {
            **found,
            "status": judged.status.name.lower(),
            "detail": judged.detail,
            "seconds": seconds if np.isfinite(seconds) else None,
            "evaluations": recorded.evaluations,
            "wall_s": answer.wall_s,
            "devices_used": len(np.unique(answer.placement.device)),
            "transfers": int(judged.num_transfers),
            "transferred_bytes": int(judged.transferred_bytes),
            "busy_share": float(judged.busy_s.sum() / (judged.step_time_s * cluster.num_devices)) if ran else 0.0,
            "improved_at": recorded.improved_at,
            "best_s": recorded.best_s,
            "revision": answer.placement.origin.revision,
        }
    )


def _setting(settings: Settings, runtime: Runtime, dispatch: Dispatch, *, seed: int, family: str | None) -> Setting:
    return Setting(
        runtime=runtime,
        dispatch=dispatch,
        budget=settings.budget,
        seed=seed,
        objective=settings.objective,
        policy=settings.policy,
        samples=settings.samples,
        family=family,
    )


@functools.cache
def _warm_up(name: str, settings: Settings) -> None:
    """Places a small graph first, so that nobody's wall time holds what a process does once: compiling, loading libraries and the policy."""
    from gdp.workloads.synthetic import layered

    few = settings.model_copy(update={"budget": min(settings.budget, 64), "samples": min(settings.samples, 64)})
    graph, cluster, simulator = layered(np.random.default_rng(0), num_ops=40), preset("p100x2"), Simulator()
    built = placer(name, _setting(few, simulator, simulator.dispatch, seed=0, family=None))
    if built is not None:
        built(graph, cluster)


@functools.lru_cache(maxsize=2)
def _model(workload: str) -> Model:
    return resolve_model(workload)


@functools.cache
def _families() -> dict[str, str]:
    from gdp.workloads.catalog import CATALOG

    return {entry.name: entry.family for entry in CATALOG}


_clusters_of_worker: dict[str, Cluster] = {}


def _start_worker(clusters: dict[str, Cluster], workers: int, parent: int) -> None:
    begin_worker(parent, num_threads=max(1, len(os.sched_getaffinity(0)) // workers))
    _clusters_of_worker.update(clusters)


def _answer_in_worker(question: Question) -> Answer:
    return _answer(question, _clusters_of_worker[question.cluster])
